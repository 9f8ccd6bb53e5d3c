"""Consumer offsets on the master, and their return from a takeover reader."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.consume.offsets import append
from fmqbroker.consume.offsets.side_journal import SideJournal
from fmqbroker.tests.consume.acked_source import Acked
from fmqbroker.tests.consume_harness import (
    ME,
    SLAVE,
    Rig,
    at,
    commit_held,
    key,
    running,
    stored,
    take_over,
    until,
)
from fmqbroker.tests.seen_harness import known
from fmqcore.batch.control import decode_offsets, encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, tombstone
from fmqcore.consume.offsets.side_journal import NAME
from fmqcore.errors import FmqError, NoPermission, StorageFull
from fmqcore.ids import Epoch, Offset, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import Mode
from fmqport.coordination import ConnectionLost
from fmqport.disk import DiskFull

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
            rig.commit.changed.notify()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not putting.done()
        await putting
        assert rig.commit.commit_end == rig.journal.end


async def test_empty_put_returns_once_entries_of_earlier_term_commit(
    tmp_path: Path,
) -> None:
    """Acks sent again to the same broker change nothing there, and may not be stored yet."""
    async with running(Rig(tmp_path)) as rig:
        await rig.committed()
        await rig.offsets.put({})
        with commit_held(rig):
            lost = asyncio.create_task(rig.offsets.put(at(rig, 5)))
            await until(lambda: key() in rig.journal.state.offsets)
            behind = asyncio.create_task(rig.offsets.put({}))
            rig.offsets.retire()
            await rig.lead(3)
            for refused in (lost, behind):
                with pytest.raises(NoPermission):
                    await refused
            putting = asyncio.create_task(rig.offsets.put({}))
            rig.commit.changed.notify()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not putting.done()
        await putting
        assert rig.commit.commit_end == rig.journal.end


async def test_entry_being_stored_is_already_visible(tmp_path: Path) -> None:
    """Otherwise the next change gets the same version, and one of the two is lost."""
    async with running(Rig(tmp_path, offsets_interval_ms=60_000)) as rig:
        entries = at(rig, 5)
        putting = asyncio.create_task(rig.offsets.put(entries))
        await asyncio.sleep(0)
        assert rig.offsets.get(key()) == entries[key()]
        assert rig.offsets.next_version(key()) == entries[key()].version + 1
        rig.offsets.retire()
        with pytest.raises(NoPermission):
            await putting


async def test_entry_refused_by_the_journal_is_not_reported_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Rig(tmp_path)) as rig:

        def full(*_: object, **__: object) -> None:
            raise StorageFull("no room")

        monkeypatch.setattr(rig.journal, "append", full)
        with pytest.raises(StorageFull, match="no room"):
            await rig.offsets.put(at(rig, 5))


async def test_entries_put_together_form_one_batch_and_survive_restart(tmp_path: Path) -> None:
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
        assert known(rig) == sorted(kept)


async def test_an_older_entry_never_overwrites_a_newer_one(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        old, new = at(rig, 5), {}
        new[key()] = OffsetEntry(old[key()].version + 1, Offset(2))
        await asyncio.gather(rig.offsets.put(new), rig.offsets.put(old))
        assert rig.offsets.get(key()) == new[key()]
        await rig.offsets.put(old)
        assert rig.journal.state.offsets == new


async def test_deleted_progress_is_not_listed_and_keeps_its_version(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 5))
        await rig.offsets.put({key(): tombstone(rig.offsets.next_version(key()))})
        assert known(rig) == []
        entry = rig.offsets.get(key())
        assert entry is not None
        assert entry.deleted
        assert rig.offsets.next_version(key()) == entry.version + 1


async def test_closed_offset_store_refuses_puts_and_fails_waiters(tmp_path: Path) -> None:
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


async def test_large_table_is_split_into_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "BATCH_BYTES", 1000)
    async with running(Rig(tmp_path)) as rig:
        entries = {key(q): OffsetEntry(1, Offset(q)) for q in range(50)}
        await rig.offsets.put(entries)
        assert rig.journal.state.offsets == entries
        assert rig.commit.commit_end == rig.journal.end


# ---- the return to the master


async def test_record_stays_until_every_claimant_has_its_offsets(
    tmp_path: Path,
) -> None:
    """A master lost right after it opened takes with it what only it had installed."""
    async with running(Rig(tmp_path), lead=False) as rig:
        entries = {key(): OffsetEntry(2 << 32, Offset(5))}
        rig.group.become(Mode.MASTER, 3)
        with commit_held(rig):
            await rig.offsets.install(encode_offsets(entries))
            rig.group.state = Versioned(replace(rig.group.state.value, offsets="cmVj"), 7)
            await rig.offsets.become_master()
            rig.commit.advance(rig.journal.end, Position(rig.journal.end - 8))
            rig.group.changed.notify()
            for _ in range(20):
                await asyncio.sleep(0)
            assert rig.group.state.value.offsets, "one slave lacks it"
            rig.group.failing = ConnectionLost("no answer")
        await until(lambda: rig.commit.all_end >= rig.journal.end)
        assert rig.group.state.value.offsets, "ZooKeeper does not answer"
        rig.group.failing = None
        await until(lambda: not rig.group.state.value.offsets)
        assert (rig.group.state.value.mode, rig.group.state.value.epoch) == (Mode.MASTER, 3)
        rig.group.become(Mode.SLAVE_CONSUME, 4, SLAVE)
        rig.group.state = Versioned(replace(rig.group.state.value, offsets="cmVj"), 9)
        rig.group.changed.notify()
        for _ in range(20):
            await asyncio.sleep(0)
        assert rig.group.state.value.offsets, "another's term"


async def test_freeze_stores_accepted_entries_and_refuses_the_rest(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, offsets_interval_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets.add_source(Acked({key(7): OffsetEntry(2 << 32, Offset(70))}))
        putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
        await asyncio.sleep(0)
        payload = await rig.offsets.freeze()
        assert await SideJournal.load(rig.side) == decode_offsets(payload), "on disk at return"
        await putting
        assert {k.queue_id: e.floor for k, e in decode_offsets(payload).items()} == {0: 5, 7: 70}
        with pytest.raises(NoPermission, match="handed over"):
            await rig.offsets.put(at(rig, 6))
        assert await rig.offsets.freeze() == payload
        rig.offsets.retire()
        with pytest.raises(NoPermission):
            await rig.offsets.freeze()


async def test_master_installs_newer_entries_durably_and_once(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 50) | at(rig, 60, queue=1))
        await rig.offsets.put(at(rig, 55))
        rig.offsets.retire()
        of_taker = {
            key(): OffsetEntry(2 << 32, Offset(52)),  # the takeover reader had not seen 55
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


async def test_progress_over_records_missing_at_master_is_truncated(tmp_path: Path) -> None:
    """A lost reader delivered them: the next records at those offsets must be delivered."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b", b"c")
        rig.offsets.retire()
        taker = OffsetEntry(2 << 32, Offset(2), ((Offset(3), Offset(7)),))
        payload = encode_offsets({key(): taker, key(1): OffsetEntry(9, Offset(4))})
        await rig.offsets.install(payload, lacking=True)
        found = rig.journal.state.offsets
        assert (found[key()].floor, found[key()].ranges) == (2, ())
        assert found[key(1)].floor == 0
        end = rig.journal.end
        await rig.offsets.install(payload, lacking=True)
        assert rig.journal.end == end


async def test_offsets_go_from_master_to_takeover_reader_and_back(tmp_path: Path) -> None:
    """The master stores, the slave takes over and freezes, the master installs."""
    master, slave = Rig(tmp_path / "m"), Rig(tmp_path / "s")
    async with running(master), running(slave, lead=False):
        await master.offsets.put(at(master, 10) | at(master, 20, queue=1))
        data = await master.journal.read(master.journal.journal_start, 1 << 20)
        slave.journal.append_replica(master.journal.journal_start, data)
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


async def test_entries_waiting_at_term_end_are_not_written_later(tmp_path: Path) -> None:
    """An empty round ended below all others and reported acks as stored."""
    async with running(Rig(tmp_path)) as rig:
        rig.offsets._clock = rig.hand
        with commit_held(rig):
            putting = [asyncio.create_task(rig.offsets.put(at(rig, 5)))]
            await until(lambda: rig.hand.sleeps_until(rig.hand.monotonic_ms() + 2))
            rig.hand.advance(2)
            await until(lambda: stored(rig, 0).floor == 5, "written, not committed")
            putting.append(asyncio.create_task(rig.offsets.put(at(rig, 6))))
            await until(lambda: rig.hand.sleeps_until(rig.hand.monotonic_ms() + 2))
            rig.offsets.retire()
            refused = await asyncio.gather(*putting, return_exceptions=True)
            assert [type(each) for each in refused] == [NoPermission, NoPermission]
            await rig.lead(2)
            rig.hand.advance(2)
            for _ in range(9):
                await asyncio.sleep(0)
            again = asyncio.create_task(rig.offsets.put({}))
            for _ in range(9):
                await asyncio.sleep(0)
            assert not again.done(), "5 is not committed"
        await again


async def test_change_carries_the_serving_term_not_a_later_known_term(
    tmp_path: Path,
) -> None:
    """Entries that a deposed master still writes never win over its successor's seek."""
    async with running(Rig(tmp_path)) as rig:
        rig.group.become(Mode.SLAVE_CONSUME, 2, reader=SLAVE)
        assert rig.offsets.next_version(key()) == 1 << 32


async def test_a_master_removes_its_side_journal(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        assert NAME in dict(await rig.disk.list())
        rig.group.state = Versioned(replace(rig.group.state.value, mode=Mode.MASTER, master=ME), 9)
        await rig.lead(3)
        assert NAME not in dict(await rig.disk.list())
        await rig.offsets.put(at(rig, 5))
        assert rig.journal.state.offsets[key()] == OffsetEntry(3 << 32, Offset(5))


async def test_slave_removes_side_journal_once_master_serves(
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
        assert await SideJournal.load(rig.side)
        rig.group.become(Mode.MASTER, 4)
        names: list[str] = [NAME]
        while NAME in names:
            names = [name for name, _ in await rig.disk.list()]


async def test_promoted_reader_keeps_side_journal_until_its_term_opens(tmp_path: Path) -> None:
    """It is the only whole copy of a record too large for the group's state."""
    async with running(Rig(tmp_path), lead=False) as rig:
        rig.produce(0, *(b"%d" % n for n in range(5)))
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        await rig.offsets.freeze()
        claimed = replace(
            rig.group.state.value, mode=Mode.MASTER, epoch=Epoch(3), required_epoch=Epoch(3)
        )
        rig.group.state = Versioned(claimed, 9)
        rig.offsets.retire()  # no takeover record is awaited any more
        for _ in range(9):
            await asyncio.sleep(0)
        await rig.offsets.install_own(Epoch(4))
        assert key() not in rig.journal.state.offsets, "who opened that has what was in it"
        await rig.offsets.install_own(Epoch(2))  # the newest term opened when this broker took over
        assert rig.journal.state.offsets[key()].floor == 5


async def test_own_progress_beyond_the_journal_counts_up_to_its_end(tmp_path: Path) -> None:
    """A person let the group begin again: the next messages at those offsets must be delivered."""
    async with running(Rig(tmp_path), lead=False) as rig:
        for queue in (0, 1):
            rig.produce(queue, b"a", b"b", b"c")
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 9))
        kept = at(rig, 2, 1)
        await rig.offsets.put(kept)
        rig.offsets.retire()
        rig.group.become(Mode.NEW, 2)
        for _ in range(2):  # the first try to open the term may fail
            await rig.offsets.install_own(Epoch(0))
            cut, whole = stored(rig, 0), stored(rig, 1)
            assert (cut.floor, cut.seek_number) == (3, cut.version), (
                "acks for what is missing are void"
            )
            assert {key(1): whole} == kept, "these messages are there, and acked"


async def test_full_disk_at_the_claim_does_not_stop_reads(
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
        floors = {k.queue_id: e.floor for k, e in (await SideJournal.load(rig.side)).items()}
        assert floors == {0: 5, 1: 6}


async def test_full_disk_is_reported_and_the_next_try_stores(
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
        assert (await SideJournal.load(rig.side))[key()].floor == 6
