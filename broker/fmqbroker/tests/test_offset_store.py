"""Consumer offsets in each mode: journal, side journal, checkpoint, and the way back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker import offset_store
from fmqbroker.takeover import SideJournal
from fmqbroker.tests.consume_harness import ME, SLAVE, Rig, commit_held, running, until
from fmqcore.cluster import Mode, Versioned
from fmqcore.consume.merge import merged
from fmqcore.consume.record import decode_record, encode_record
from fmqcore.consume.sidefile import NAME, encode_frame, encode_head
from fmqcore.errors import FmqError, Malformed, NoPermission
from fmqcore.journal.control import decode_offsets, encode_offsets
from fmqcore.journal.offsets import OffsetEntry, OffsetKey, tombstone
from fmqcore.words import Epoch, Offset, TopicId
from fmqport.coordination import ConnectionLost
from fmqport.disk import DiskFull


def key(queue: int = 0, group: str = "billing") -> OffsetKey:
    return OffsetKey(group, TopicId(1), queue)


def at(rig: Rig, floor: int, queue: int = 0) -> dict[OffsetKey, OffsetEntry]:
    """The next entry of a queue."""
    return {key(queue): OffsetEntry(rig.offsets.next_version(key(queue)), Offset(floor))}


async def take_over(rig: Rig, epoch: int, record: str = "") -> None:
    rig.group.become(Mode.SLAVE_CONSUME, epoch)
    await rig.offsets.become_taker(record)


# ---- as master


async def test_put_returns_once_the_entry_is_below_the_commit_end(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.committed()
        with commit_held(rig):
            putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
            await until(lambda: rig.journal.durable_end == rig.journal.end > rig.commit.commit_end)
            entry = rig.journal.state.offsets[key()]
            assert entry.floor == 5
            assert rig.offsets.get(key()) == entry
            await asyncio.sleep(0)
            assert not putting.done()
        await putting
        assert rig.commit.commit_end == rig.journal.end


async def test_entries_put_together_make_one_batch_and_survive_a_restart(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, offsets_interval_ms=20)) as rig:
        before = rig.journal.end
        puts = [rig.offsets.put(at(rig, floor, queue=floor)) for floor in range(20)]
        await asyncio.gather(*puts)
        size = len(encode_offsets(rig.journal.state.offsets))
        assert rig.journal.end - before < size + 200, "one header, one payload"
        kept = dict(rig.journal.state.offsets)
    async with running(Rig(tmp_path), epoch=2) as rig:
        assert rig.journal.state.offsets == kept
        assert rig.offsets.next_version(key(3)) == 2 << 32, "a later term begins higher"
        assert rig.offsets.known() == sorted(kept)


async def test_an_older_entry_never_overwrites_a_newer_one(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        old, new = at(rig, 5), {}
        new[key()] = OffsetEntry(old[key()].version + 1, Offset(2))
        await asyncio.gather(rig.offsets.put(new), rig.offsets.put(old))
        assert rig.offsets.get(key()) == new[key()]
        await rig.offsets.put(old)
        assert rig.journal.state.offsets == new


async def test_deleted_progress_is_not_listed_and_its_version_goes_on(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 5))
        await rig.offsets.put({key(): tombstone(rig.offsets.next_version(key()))})
        assert rig.offsets.known() == []
        entry = rig.offsets.get(key())
        assert entry is not None
        assert entry.deleted
        assert rig.offsets.next_version(key()) == entry.version + 1


async def test_who_keeps_no_offsets_refuses_and_whoever_waits_is_told(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        with pytest.raises(NoPermission, match="epoch 1, reader g1-0"):
            await rig.offsets.put(at(rig, 1))
        await rig.lead()
        await rig.committed()
        with commit_held(rig):
            appended = asyncio.create_task(rig.offsets.put(at(rig, 1)))
            await until(lambda: key() in rig.journal.state.offsets)
            gathered = asyncio.create_task(rig.offsets.put(at(rig, 2)))
            await asyncio.sleep(0)
            rig.offsets.retire()
            for putting in (appended, gathered):
                with pytest.raises(NoPermission, match="neither master nor taker"):
                    await putting


async def test_a_large_table_is_cut_into_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_store, "_BATCH_BYTES", 1000)
    async with running(Rig(tmp_path)) as rig:
        entries = {key(q): OffsetEntry(1, Offset(q)) for q in range(50)}
        await rig.offsets.put(entries)
        assert rig.journal.state.offsets == entries
        assert rig.commit.commit_end == rig.journal.end


# ---- as taker


async def test_a_taker_stores_in_its_side_journal_and_checkpoints(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        end = rig.journal.end
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        stored = await SideJournal.load(rig.disk)
        assert stored[key()] == OffsetEntry(2 << 32, Offset(5))
        assert rig.journal.end == end, "in slave-consume nobody appends to the journal"
        await until(lambda: rig.group.state.value.offsets)
        assert decode_record(rig.group.state.value.offsets) == stored
        await rig.offsets.put(at(rig, 7))
        await until(lambda: decode_record(rig.group.state.value.offsets)[key()].floor == 7)


async def test_a_taker_that_lost_the_reads_does_not_touch_the_state(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        rig.group.become(Mode.SLAVE_CONSUME, 3, reader=SLAVE)
        asked = rig.group.change
        tried = []

        async def change(edit):  # type: ignore[no-untyped-def]
            tried.append(edit)
            return await asked(edit)

        rig.group.change = change  # type: ignore[method-assign]
        await rig.offsets.put(at(rig, 5))
        await until(lambda: tried)
        await until(lambda: len(tried) == 1 and rig.offsets._checkpointed)
        rig.group.become(Mode.SLAVE_CONSUME, 4)  # me again, in a term that I have not begun
        await rig.offsets.put(at(rig, 6))
        await until(lambda: len(tried) == 2)
        assert rig.group.changes == 0
        assert rig.group.state.value.offsets == ""


async def test_a_checkpoint_that_failed_is_made_again(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        rig.group.failing = ConnectionLost("no answer")
        await rig.offsets.put(at(rig, 5))
        rig.group.failing = None
        await until(lambda: rig.group.state.value.offsets)


async def test_a_restarted_taker_finds_what_it_had_acknowledged(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5) | at(rig, 6, queue=1))
        kept = await SideJournal.load(rig.disk)
    async with running(Rig(tmp_path), lead=False) as rig:
        other = {key(2): OffsetEntry(2 << 32, Offset(9))}
        record = encode_record(other).text
        assert record is not None
        await take_over(rig, 2, record)
        assert rig.offsets.get(key(1)) == kept[key(1)]
        assert decode_offsets(await rig.offsets.freeze()) == kept | other
        assert await SideJournal.load(rig.disk) == kept | other


async def test_the_next_taker_goes_on_from_the_record_whatever_its_journal_has(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 5))
        mine = dict(rig.journal.state.offsets)
        record = {key(): OffsetEntry(3 << 32, Offset(1)), key(1): OffsetEntry(1, Offset(3))}
        text = encode_record(merged(mine, record)).text
        assert text is not None
        await take_over(rig, 4, text)
        assert rig.offsets.get(key()) == record[key()], (
            "the higher version, though its floor is low"
        )
        assert rig.offsets.next_version(key()) == 4 << 32
        assert decode_offsets(await rig.offsets.freeze()) == merged(mine, record)


async def test_a_taker_refuses_to_begin_from_a_record_it_cannot_read(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        for bad in ("%%%", "AAAA"):
            with pytest.raises(Malformed):
                await take_over(rig, 2, bad)
        with pytest.raises(NoPermission):
            await rig.offsets.put(at(rig, 1))


async def test_a_torn_or_unreadable_side_journal_costs_only_what_was_not_stored(
    tmp_path: Path,
) -> None:
    first, second = at_version(1, 5), at_version(2, 9)
    data = encode_head(Epoch(2)) + encode_frame(first) + encode_frame(second)[:-9]
    async with running(Rig(tmp_path), lead=False) as rig:
        await rig.disk.replace_file(NAME, data)
        assert await SideJournal.load(rig.disk) == decode_offsets(first)
        await take_over(rig, 3)
        assert rig.offsets.get(key()) == OffsetEntry(1, Offset(5))
        await rig.disk.replace_file(NAME, b"rubbish")
        assert await SideJournal.load(rig.disk) == {}


def at_version(version: int, floor: int) -> bytes:
    return encode_offsets({key(): OffsetEntry(version, Offset(floor))})


async def test_a_side_journal_is_written_anew_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmqbroker.takeover.COMPACT_BYTES", 500)
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        for floor in range(40):
            await rig.offsets.put(at(rig, floor))
        sizes = dict(await rig.disk.list())
        assert sizes[NAME] < 700
        assert (await SideJournal.load(rig.disk))[key()].floor == 39


async def test_a_record_above_the_bound_keeps_its_floors_or_stays_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = tuple((Offset(2 * i), Offset(2 * i + 1)) for i in range(1, 100))
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        monkeypatch.setattr(offset_store, "MAX_CHECKPOINT_CHARS", 200)
        await rig.offsets.put({key(): OffsetEntry(2 << 32, Offset(1), ranges)})
        await until(lambda: rig.group.state.value.offsets)
        kept = rig.group.state.value.offsets
        assert decode_record(kept) == {key(): OffsetEntry(2 << 32, Offset(1))}
        await rig.offsets.put({key(q): OffsetEntry(2 << 32, Offset(q)) for q in range(1, 9)})
        await until(lambda: rig.offsets._checkpointed)
        assert rig.group.state.value.offsets == kept


# ---- the way back


async def test_freeze_stores_what_was_taken_in_and_refuses_the_rest(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, offsets_interval_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets.add_source(lambda: {key(7): OffsetEntry(2 << 32, Offset(70))})
        putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
        await asyncio.sleep(0)
        payload = await rig.offsets.freeze()
        await putting
        assert {k.queue_id: e.floor for k, e in decode_offsets(payload).items()} == {0: 5, 7: 70}
        assert await SideJournal.load(rig.disk) == decode_offsets(payload)
        with pytest.raises(NoPermission, match="handed over"):
            await rig.offsets.put(at(rig, 6))
        assert await rig.offsets.freeze() == payload
        rig.offsets.retire()
        with pytest.raises(NoPermission):
            await rig.offsets.freeze()


async def test_the_master_installs_what_is_newer_durably_and_only_once(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 50) | at(rig, 60, queue=1))
        await rig.offsets.put(at(rig, 55))
        rig.offsets.retire()
        of_taker = {
            key(): OffsetEntry(2 << 32, Offset(52)),  # the taker had not seen 55
            key(1): OffsetEntry(1, Offset(99)),  # stale, however high its floor
            key(2): OffsetEntry(2 << 32, Offset(7), ((Offset(8), Offset(9)),)),
        }
        payload = encode_offsets(of_taker)
        rig.hold_commit = True
        await rig.offsets.install(payload)
        assert rig.journal.durable_end == rig.journal.end
        found = rig.journal.state.offsets
        assert (found[key()].floor, found[key(1)].floor) == (52, 60)
        assert found[key(2)] == of_taker[key(2)]
        end = rig.journal.end
        await rig.offsets.install(payload)
        assert rig.journal.end == end
    async with running(Rig(tmp_path), epoch=3) as rig:
        assert rig.journal.state.offsets == found
        await rig.offsets.put(at(rig, 53))
        assert rig.journal.state.offsets[key()] == OffsetEntry(3 << 32, Offset(53))


async def test_a_whole_round_trip_from_master_to_taker_and_back(tmp_path: Path) -> None:
    """Master stores, slave (with the journal so far) takes over, freezes; the master installs."""
    master, slave = Rig(tmp_path / "m"), Rig(tmp_path / "s")
    async with running(master), running(slave, lead=False):
        await master.offsets.put(at(master, 10) | at(master, 20, queue=1))
        data = await master.journal.read(master.journal.log_start, 1 << 20)
        slave.journal.append_replica(master.journal.log_start, data)
        await master.offsets.put(at(master, 11))  # never reached the slave
        await take_over(slave, 2)
        assert slave.offsets.get(key()) == OffsetEntry(1 << 32, Offset(10))
        await slave.offsets.put(at(slave, 15))
        payload = await slave.offsets.freeze()
        assert list(decode_offsets(payload)) == [key()], "only what changed since the claim"
        master.offsets.retire()
        await master.offsets.install(payload)
        await master.lead(3)
        assert master.offsets.get(key()) == OffsetEntry(2 << 32, Offset(15))
        assert master.offsets.get(key(1)) == OffsetEntry((1 << 32), Offset(20))


async def test_a_master_removes_its_side_journal(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        assert NAME in dict(await rig.disk.list())
        rig.group.state = Versioned(replace(rig.group.state.value, mode=Mode.MASTER, master=ME), 9)
        await rig.lead(3)
        assert NAME not in dict(await rig.disk.list())
        await rig.offsets.put(at(rig, 5))
        assert rig.journal.state.offsets[key()] == OffsetEntry(3 << 32, Offset(5))


async def test_a_slave_removes_its_side_journal_once_a_master_serves_again(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        await rig.offsets.freeze()
        rig.offsets.retire()
        rig.group.become(Mode.HANDOVER, 3)
        await asyncio.sleep(0.01)
        assert NAME in dict(await rig.disk.list())
    async with running(Rig(tmp_path), lead=False) as rig:
        rig.group.become(Mode.MASTER, 2)  # not a later term
        await asyncio.sleep(0.01)
        assert await SideJournal.load(rig.disk)
        rig.group.become(Mode.MASTER, 4)
        names: list[str] = [NAME]
        while NAME in names:
            names = [name for name, _ in await rig.disk.list()]


async def test_a_disk_full_at_the_claim_does_not_stop_the_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        replace_file = rig.disk.replace_file

        async def full(name: str, data: bytes) -> None:
            raise DiskFull("no space")

        monkeypatch.setattr(rig.disk, "replace_file", full)
        await take_over(rig, 2)
        with pytest.raises(FmqError, match="no space"):
            await rig.offsets.put(at(rig, 5))
        monkeypatch.setattr(rig.disk, "replace_file", replace_file)
        await rig.offsets.put(at(rig, 6, queue=1))
        floors = {k.queue_id: e.floor for k, e in (await SideJournal.load(rig.disk)).items()}
        assert floors == {0: 5, 1: 6}


async def test_a_full_disk_is_told_and_the_next_try_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        assert rig.offsets._side is not None
        write = rig.offsets._side._file.write

        async def full(*_: object, **__: object) -> None:
            raise DiskFull("no space")

        monkeypatch.setattr(rig.offsets._side._file, "write", full)
        with pytest.raises(FmqError, match="no space"):
            await rig.offsets.put(at(rig, 5))
        monkeypatch.setattr(rig.offsets._side._file, "write", write)
        await rig.offsets.put(at(rig, 6))
        assert (await SideJournal.load(rig.disk))[key()].floor == 6
