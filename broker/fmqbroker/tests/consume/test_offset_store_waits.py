"""Waits before consumer offsets count as stored, frozen, or writable by this broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.offsets.side_journal import SideJournal
from fmqbroker.tests.consume.acked_source import Acked
from fmqbroker.tests.consume_harness import Rig, at, commit_held, key, running, take_over, until
from fmqcore.batch.control import decode_offsets, encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.errors import NoPermission
from fmqcore.ids import Epoch, Offset
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_entry_of_earlier_term_on_own_disk_alone_is_not_stored(
    tmp_path: Path,
) -> None:
    """It counts once the group's policy holds: this broker's disk alone may be lost."""
    async with running(Rig(tmp_path)) as rig:
        await rig.committed()
        with commit_held(rig):
            lost = asyncio.create_task(rig.offsets.put(at(rig, 5)))
            await until(lambda: key() in rig.journal.state.offsets)
            rig.offsets.retire()
            await rig.lead(3)
            with pytest.raises(NoPermission):
                await lost
            await rig.journal.wait_durable(rig.journal.end)
            putting = asyncio.create_task(rig.offsets.put({}))
            await turns()
            assert not putting.done()
        await putting


@asynccontextmanager
async def side_write_held(rig: Rig) -> AsyncIterator[asyncio.Event]:
    """Put an entry and hold its write to the side journal until the event is set."""
    assert rig.offsets._side is not None
    file, may, asked = rig.offsets._side._file, asyncio.Event(), asyncio.Event()
    write = file.write

    async def slow(writes: Any, *, sync: bool) -> None:
        asked.set()
        await may.wait()
        await write(writes, sync=sync)

    file.write = slow  # type: ignore[method-assign]
    putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
    await asked.wait()
    try:
        yield may
    finally:
        may.set()
        await putting


async def test_empty_put_waits_for_the_side_journals_write(tmp_path: Path) -> None:
    """It answers for all that is known, and what is being written is not stored yet."""
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        async with side_write_held(rig):
            putting = asyncio.create_task(rig.offsets.put({}))
            await turns()
            assert not putting.done()
        await putting


async def test_a_record_is_not_frozen_while_it_is_being_written(tmp_path: Path) -> None:
    """F4: the hand-over is announced next; acknowledged progress is on the disk by then."""
    async with running(Rig(tmp_path), lead=False) as rig, AsyncExitStack() as stack:
        await take_over(rig, 2)
        may = await stack.enter_async_context(side_write_held(rig))
        freezing = asyncio.create_task(rig.offsets.freeze())
        await turns()
        assert not freezing.done()
        may.set()
        assert decode_offsets(await freezing)[key()].floor == 5


async def test_a_put_during_a_freeze_is_frozen_and_refused(tmp_path: Path) -> None:
    """It is stored with the record, for the next reader; here no waiter learns of that."""
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        puts: list[asyncio.Task[None]] = []

        def put() -> None:
            more = at(rig, 9, queue=3) if not puts else {}
            puts.append(asyncio.create_task(rig.offsets.put(more)))

        rig.offsets.add_source(Acked(at(rig, 5) | at(rig, 6, queue=1) | at(rig, 7, queue=2), put))
        frozen = decode_offsets(await rig.offsets.freeze())
        assert {k.queue_id: e.floor for k, e in frozen.items()} == {0: 5, 1: 6, 2: 7, 3: 9}
        assert await SideJournal.load(rig.side) == frozen
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [NoPermission] * 3


async def test_reads_lost_during_a_freeze_then_no_record(tmp_path: Path) -> None:
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets.add_source(Acked(at(rig, 5) | at(rig, 6, queue=1), rig.offsets.retire))
        with pytest.raises(NoPermission):
            await rig.offsets.freeze()


async def test_checkpoint_of_ended_term_does_not_replace_the_next(tmp_path: Path) -> None:
    """This broker serves reads again from another record: entries gathered before are older."""
    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        change = rig.group.change
        tried: list[GroupState | None] = []

        async def reported(edit: Callable[[GroupState], GroupState | None]) -> GroupState | None:
            rig.group.become(Mode.SLAVE_CONSUME, 4)  # meanwhile
            tried.append(await change(edit))
            return tried[-1]

        rig.group.change = reported  # type: ignore[method-assign]
        await rig.offsets.put(at(rig, 5))
        await until(lambda: tried)
        assert tried == [None]
        assert rig.group.state.value.offsets == ""


async def test_abandoned_write_fails_its_waiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker stops while its disk hangs; its consumers' streams wait for this."""
    writing = asyncio.Event()

    async def hang(*_: Any) -> None:
        writing.set()
        await asyncio.Event().wait()

    async with running(Rig(tmp_path), lead=False) as rig:
        await take_over(rig, 2)
        monkeypatch.setattr(rig.side, "append", hang)
        putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
        await writing.wait()
    async with asyncio.timeout(10):
        with pytest.raises(NoPermission):
            await putting


async def test_becoming_master_again_keeps_pending_puts(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        with commit_held(rig):
            putting = asyncio.create_task(rig.offsets.put(at(rig, 5)))
            await until(lambda: key() in rig.journal.state.offsets)
            await rig.offsets.become_master()
            await turns()
            assert not putting.done()
        await putting


async def test_master_does_not_empty_record_of_another_masters_term(tmp_path: Path) -> None:
    """The other master has not installed it yet, and this one has not heard that it is deposed."""
    async with running(Rig(tmp_path)) as rig:
        await rig.committed()
        record = replace(rig.group.state.value, epoch=Epoch(4), offsets="cmVj")
        rig.group.state = Versioned(record, 9)
        rig.group.changed.notify()
        await turns()
        assert rig.group.state.value.offsets == "cmVj"


async def test_late_put_does_not_hide_newer_entry(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, offsets_interval_ms=60_000)) as rig:
        newer = OffsetEntry(9 << 32, Offset(7))
        await rig.offsets.install(encode_offsets({key(): newer}))
        late = asyncio.create_task(rig.offsets.put({key(): OffsetEntry(3 << 32, Offset(4))}))
        await turns()
        assert rig.offsets.get(key()) == newer
        late.cancel()
