"""Consumer offsets in slave-consume: side journal, checkpoint, restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.offsets import store
from fmqbroker.consume.offsets.side_journal import SideJournal
from fmqbroker.tests.consume.acked_source import Acked
from fmqbroker.tests.consume_harness import SLAVE, Rig, at, key, running, take_over, until
from fmqbroker.tests.seen_harness import known
from fmqcore.batch.control import decode_offsets, encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, tombstone
from fmqcore.consume.offsets.merge import merged
from fmqcore.consume.offsets.side_journal import NAME, encode_frame, encode_head
from fmqcore.consume.offsets.takeover_record import decode_record, encode_record
from fmqcore.errors import Malformed, NoPermission
from fmqcore.ids import Epoch, Offset
from fmqcore.journal.state import TOMBSTONE_MS
from fmqcore.turns import finish
from fmqcore.zk.group_state import Mode
from fmqport.coordination import ConnectionLost
from fmqport.disk import DiskFile, DiskFull

# ---- as takeover reader


async def test_takeover_reader_stores_in_side_journal_and_checkpoints(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        end = rig.journal.end
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        stored = await SideJournal.load(rig.side)
        assert stored[key()] == OffsetEntry(2 << 32, Offset(5))
        assert rig.journal.end == end, "in slave-consume no broker appends to the journal"
        await until(lambda: rig.group.state.value.offsets)
        assert decode_record(rig.group.state.value.offsets) == stored
        await rig.offsets.put(at(rig, 7, queue=1))
        assert set(await SideJournal.load(rig.side)) == {key(), key(1)}, "one behind the other"
        await rig.offsets.put(at(rig, 7))
        await until(lambda: decode_record(rig.group.state.value.offsets)[key()].floor == 7)


async def test_takeover_reader_keeps_progress_above_its_commit_end(
    tmp_path: Path,
) -> None:
    """The master may lack entries above the commit end, and this reader may be lost next."""
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 5))
        committed = rig.journal.end
        await rig.offsets.put(at(rig, 9, queue=1))
        rig.offsets.retire()
        rig.group.become(Mode.SLAVE_CONSUME, 2)
        await rig.offsets.become_taker("", committed)
        await until(lambda: rig.group.state.value.offsets)
        kept = decode_record(rig.group.state.value.offsets)
        assert {k: e.floor for k, e in kept.items()} == {key(1): 9}
        # Again after a restart: what it delivered counts as committed by then.
        await rig.offsets.become_taker("", rig.journal.end)
        assert decode_offsets(await rig.offsets.freeze()) == kept
        # A master has opened a term since: it has all of this journal.
        rig.offsets.retire()
        rig.group.become(Mode.SLAVE_CONSUME, 4, opened=3)
        await rig.offsets.become_taker("", rig.journal.end)
        assert not decode_offsets(await rig.offsets.freeze())


async def test_nothing_is_accepted_while_a_takeover_gathers(tmp_path: Path) -> None:
    """Its table is put in place of the old one: an entry that came meanwhile would be lost."""
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        again = asyncio.create_task(rig.offsets.become_taker("", rig.journal.end))
        refused = 0
        while not again.done():
            await asyncio.sleep(0)
            if not again.done():
                with pytest.raises(NoPermission):
                    rig.offsets.accept(at(rig, 7, queue=1))
                refused += 1
        await again
        assert refused > 2
        await rig.offsets.put(at(rig, 6))
        assert {k: e.floor for k, e in (await SideJournal.load(rig.side)).items()} == {key(): 6}


async def test_takeover_reader_fsyncs_entries_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        assert rig.offsets._side is not None
        write = rig.offsets._side._file.write
        may, asked = asyncio.Event(), []

        async def slow(writes: Any, *, sync: bool) -> None:
            asked.append(sync)
            await may.wait()
            await write(writes, sync=sync)

        monkeypatch.setattr(rig.offsets._side._file, "write", slow)
        putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
        await until(lambda: asked)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not putting.done()
        may.set()
        await putting
        assert asked == [True]


async def test_reader_that_lost_the_reads_leaves_group_state_alone(tmp_path: Path) -> None:
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
        rig.group.become(Mode.SLAVE_CONSUME, 4)  # this broker again, in a term not started yet
        await rig.offsets.put(at(rig, 6))
        await until(lambda: len(tried) == 2)
        assert rig.group.changes == 0
        assert rig.group.state.value.offsets == ""


async def test_failed_checkpoint_is_retried(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        rig.group.failing = ConnectionLost("no answer")
        change, over = rig.group.change, asyncio.Event()

        async def reported(edit):  # type: ignore[no-untyped-def]
            try:
                return await change(edit)
            finally:
                over.set()

        rig.group.change = reported  # type: ignore[method-assign]
        await rig.offsets.put(at(rig, 5))
        await over.wait()
        rig.group.failing = None
        await until(lambda: rig.group.state.value.offsets, "though nothing more was acked")


async def test_orderly_stop_of_takeover_reader_checkpoints_entries(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await rig.offsets.checkpoint()
        assert rig.group.changes == 0, "no taker"
        await take_over(rig, 2)
        entries = at(rig, 5)
        await rig.offsets.put(entries)
        await rig.offsets.checkpoint()
        assert rig.group.state.value.offsets == encode_record(entries).text


async def test_restarted_takeover_reader_finds_acknowledged_progress(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5) | at(rig, 6, queue=1))
        kept = await SideJournal.load(rig.side)
    async with running(Rig(tmp_path), lead=False) as rig:
        other = {key(2): OffsetEntry(2 << 32, Offset(9))}
        record = encode_record(other).text
        assert record is not None
        await take_over(rig, 2, record)
        assert rig.offsets.get(key(1)) == kept[key(1)]
        assert decode_offsets(await rig.offsets.freeze()) == kept | other
        assert await SideJournal.load(rig.side) == kept | other


async def test_next_takeover_reader_starts_from_record_not_its_journal(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 5) | at(rig, 6, queue=2))
        own = dict(rig.journal.state.offsets)
        record = {key(): OffsetEntry(3 << 32, Offset(1)), key(1): OffsetEntry(1, Offset(3))}
        text = encode_record(merged(own, record)).text
        assert text is not None
        await take_over(rig, 4, text)
        assert rig.offsets.get(key()) == record[key()], (
            "the higher version, though its floor is low"
        )
        assert rig.offsets.next_version(key()) == 4 << 32
        assert decode_offsets(await rig.offsets.freeze()) == merged(own, record)


async def test_takeover_reader_refuses_unreadable_record(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        for bad in ("%%%", "AAAA"):
            with pytest.raises(Malformed):
                await take_over(rig, 2, bad)
        with pytest.raises(NoPermission):
            await rig.offsets.put(at(rig, 1))


async def test_damaged_side_journal_loses_only_unstored_entries(
    tmp_path: Path,
) -> None:
    first, second = at_version(1, 5), at_version(2, 9)
    data = encode_head(Epoch(2)) + encode_frame(first) + encode_frame(second)[:-9]
    async with running(Rig(tmp_path), lead=False) as rig:
        await rig.disk.replace_file(NAME, data)
        assert await SideJournal.load(rig.side) == decode_offsets(first)
        await take_over(rig, 3)
        assert rig.offsets.get(key()) == OffsetEntry(1, Offset(5))
        await rig.disk.replace_file(NAME, b"rubbish")
        assert await SideJournal.load(rig.side) == {}


def at_version(version: int, floor: int) -> bytes:
    return encode_offsets({key(): OffsetEntry(version, Offset(floor))})


async def test_grown_side_journal_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmqbroker.consume.offsets.side_journal.COMPACT_BYTES", 500)
    files: list[DiskFile] = []
    started_in_all = 0
    async with running(Rig(tmp_path), lead=False) as rig:
        begin, close = rig.side.replace, rig.side.close

        async def started(data: bytes) -> DiskFile:
            nonlocal started_in_all
            started_in_all += 1
            files.append(await begin(data))
            return files[-1]

        async def closed(file: DiskFile) -> None:
            files.remove(file)
            await close(file)

        monkeypatch.setattr(rig.side, "replace", started)
        monkeypatch.setattr(rig.side, "close", closed)
        await take_over(rig, 2)
        for floor in range(40):
            await rig.offsets.put(at(rig, floor))
            assert len(files) == 1, "the one before is closed"
        assert dict(await rig.disk.list())[NAME] < 700
        assert (await SideJournal.load(rig.side))[key()].floor == 39
        await rig.offsets.put({key(queue): OffsetEntry(2 << 32, Offset(1)) for queue in range(60)})
        before = started_in_all
        for floor in range(40, 45):
            await rig.offsets.put(at(rig, floor))
        assert started_in_all == before, "a table that is large is not rewritten at each put"


async def test_repeated_put_does_not_store_entry_that_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry was counted, so a repeated ack changes nothing, not even in the next term."""
    async with running(Rig(tmp_path), lead=False) as rig:
        replace_file = rig.disk.replace_file

        async def full(name: str, data: bytes) -> None:
            raise DiskFull("no space")

        monkeypatch.setattr(rig.disk, "replace_file", full)
        await take_over(rig, 2)
        for _ in range(2):
            with pytest.raises(DiskFull):
                await rig.offsets.put(at(rig, 5))
            rig.offsets.retire()
            await take_over(rig, 3)
            with pytest.raises(DiskFull):
                await rig.offsets.put({})
        monkeypatch.setattr(rig.disk, "replace_file", replace_file)
        await rig.offsets.put({})
        assert (await SideJournal.load(rig.side))[key()].floor == 5


async def test_stored_entry_is_not_written_twice(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        size = (tmp_path / NAME).stat().st_size
        await rig.offsets.put({})
        assert (tmp_path / NAME).stat().st_size == size


async def test_masters_side_entries_do_not_outlive_a_tombstone(tmp_path: Path) -> None:
    """C7: a deleted group is forgotten after a day and starts again, in memory as well."""
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        payload = await rig.offsets.freeze()
        rig.offsets.retire()
        await rig.offsets.install(payload)
        await rig.lead(3)
        version = rig.offsets.next_version(key())
        await rig.offsets.put({key(): tombstone(version)})
        state = rig.journal.state
        state.settle(state.snapshot(rig.clock.wall_ms() + 2 * TOMBSTONE_MS))
        finish(state.dropping())
        assert rig.offsets.get(key()) is None
        assert known(rig) == []


async def test_takeover_reader_keeps_record_until_its_reads_end(tmp_path: Path) -> None:
    """The state names a later term before this broker's failover has read it."""
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        await rig.offsets.put(at(rig, 5))
        rig.group.become(Mode.MASTER, 3)
        for _ in range(9):
            await rig.disk.list()  # any removal would be done by now
        assert decode_offsets(await rig.offsets.freeze())[key()].floor == 5
        rig.offsets.retire()
        await until(lambda: not (tmp_path / NAME).exists())


async def test_oversized_record_keeps_floors_or_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = tuple((Offset(2 * i), Offset(2 * i + 1)) for i in range(1, 100))
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        monkeypatch.setattr(store, "MAX_CHECKPOINT_CHARS", 200)
        await rig.offsets.put({key(): OffsetEntry(2 << 32, Offset(1), ranges)})
        await until(lambda: rig.group.state.value.offsets)
        kept = rig.group.state.value.offsets
        assert decode_record(kept) == {key(): OffsetEntry(2 << 32, Offset(1))}
        await rig.offsets.put({key(q): OffsetEntry(2 << 32, Offset(q)) for q in range(1, 9)})
        await until(lambda: rig.offsets._checkpointed)
        assert rig.group.state.value.offsets == kept


async def test_every_field_of_an_entry_survives_a_hand_over(tmp_path: Path) -> None:
    """Without ranges acked messages are redelivered; without `seek_number` a seek counts twice."""
    ranges = ((Offset(20), Offset(25)), (Offset(30), Offset(31)))
    sent, late = (
        OffsetEntry((2 << 32) + n, Offset(15), ranges, (2 << 32) + n - 1, 7) for n in (8, 9)
    )
    assert all(all(entry) for entry in (sent, late)), "every field is set"
    async with running(Rig(tmp_path / "s", offsets_interval_ms=60_000), lead=False) as taker:
        await take_over(taker, 2)
        taker.offsets.add_source(Acked({key(1): late}))
        putting = asyncio.create_task(taker.offsets.put({key(0): sent}))
        await asyncio.sleep(0)
        payload = await taker.offsets.freeze()
        await putting
        assert await SideJournal.load(taker.side) == {key(0): sent, key(1): late}
    assert decode_offsets(payload) == {key(0): sent, key(1): late}
    async with running(Rig(tmp_path / "m")) as master:
        await master.offsets.install(payload)
        await master.lead(3)
        assert (master.offsets.get(key(0)), master.offsets.get(key(1))) == (sent, late)
