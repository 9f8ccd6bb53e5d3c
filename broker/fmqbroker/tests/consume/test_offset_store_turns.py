"""The offset store handles the progress of many queues in short turns."""

import asyncio
import base64
from pathlib import Path

import pytest

from fmqbroker.consume.offsets.append import append_offsets
from fmqbroker.consume.offsets.side_journal import COMPACT_BYTES, SideJournal
from fmqbroker.runtime.slices import in_turns
from fmqbroker.tests.consume_harness import Rig, running, take_over
from fmqbroker.tests.longest_turn import MOST_LINES, turns_counted
from fmqbroker.tests.turns_kit import GROUPS, SOME, WIDE, Full, entries, full, some, topics_of
from fmqcore.batch.control import decode_offsets, decoding_offsets, encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.consume.offsets.takeover_record import decode_record
from fmqcore.errors import NoPermission
from fmqcore.ids import Epoch, Offset, Permission, TopicId
from fmqcore.zk.group_state import Mode
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import client_pb2

__all__ = ["entries", "full"]  # fixtures

LIVE = 4 * GROUPS * WIDE
"""Queues of live groups: of twenty on each of the wide topics."""


async def all_dirty(rig: Rig, topics: list[TopicConfig]) -> None:
    groups = rig.fetch.groups
    for topic in topics[:4]:
        for g in range(GROUPS):
            name = f"group-{g:02}"
            group = await groups.ensure(name, topic, client_pb2.START_EARLIEST, 0)
            for queue in range(WIDE):
                group.mark(queue)


@pytest.mark.parametrize("count", [SOME, 10_000])
async def test_a_checkpoint_of_a_taker_takes_short_turns(tmp_path: Path, count: int) -> None:
    entries = some(count)
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets._takeover = ProgressTable(entries)
        with turns_counted() as turns:
            await asyncio.create_task(rig.offsets.checkpoint())
        record = decode_record(rig.group.state.value.offsets)
        assert record == ({} if count == SOME else entries)
        assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_a_side_journal_is_compacted_in_short_turns(tmp_path: Path) -> None:
    """Progress goes on during the compaction and is appended after it."""
    entries, late = some(), OffsetKey("late", TopicId(1), 0)
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets._takeover = ProgressTable(entries)
        side = rig.offsets._side
        assert side is not None
        side._end += COMPACT_BYTES

        async def put() -> None:
            await rig.offsets.put({late: OffsetEntry(2 << 32, Offset(4))})  # starts it
            await rig.offsets.put({late: OffsetEntry(3 << 32, Offset(5))})

        with turns_counted() as turns:
            await asyncio.create_task(put())
        assert (await SideJournal.load(rig.side)) == entries | {
            late: OffsetEntry(3 << 32, Offset(5))
        }
        assert side._end < COMPACT_BYTES, "it was compacted"
        assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_a_frozen_record_is_encoded_and_decoded_in_short_turns(tmp_path: Path) -> None:
    entries = some()
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets._takeover = ProgressTable(entries)
        payloads: list[bytes] = []

        async def frozen() -> None:
            payloads.append(await rig.offsets.freeze())

        async def decoded() -> None:
            assert await in_turns(decoding_offsets(payloads[0])) == entries

        with turns_counted() as turns:
            await asyncio.create_task(frozen())
            await asyncio.create_task(decoded())
        assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_dropped_groups_are_stored_in_short_turns(full: Full) -> None:
    """Each of 80,000 queues was acked since the last write."""
    groups, stored = full.rig.fetch.groups, full.rig.journal.state.offsets
    before = dict(stored)
    await all_dirty(full.rig, full.topics)

    async def dropped() -> None:
        groups.drop(NoPermission("the reads are over"))
        await groups.stored()

    with turns_counted() as turns:
        await asyncio.create_task(dropped())
    assert 0 < turns.longest <= MOST_LINES, turns.where
    assert len([key for key in stored if stored[key] != before[key]]) == LIVE


async def test_a_freeze_takes_all_acks_in_short_turns(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        topics = topics_of()[:4]
        rig.cluster.set(*topics)
        rig.permit(Permission.READ, epoch=2)
        await all_dirty(rig, topics)
        payloads: list[bytes] = []

        async def frozen() -> None:
            rig.gate.grant(Permission.NONE, "handing over")  # drops the groups in another task
            payloads.append(await rig.offsets.freeze())

        with turns_counted() as turns:
            await asyncio.create_task(frozen())
        assert 0 < turns.longest <= MOST_LINES, turns.where
        assert len(decode_offsets(payloads[0])) == LIVE


async def test_installed_entries_take_short_turns(tmp_path: Path) -> None:
    """A master installs the reader's entries and limits its own, with a journal that lacks some."""
    own, given = some(), {k: OffsetEntry(2 << 32, Offset(9)) for k in list(some())[: SOME // 2]}
    async with running(Rig(tmp_path, segment_bytes=16 * 1024 * 1024)) as rig:
        for key, entry in own.items():
            rig.journal.state.offsets[key] = entry
        payload = encode_offsets(given)

        async def installed() -> None:
            await rig.offsets.install(payload)
            await rig.offsets.install(payload, lacking=True)

        with turns_counted() as turns:
            await asyncio.create_task(installed())
        assert 0 < turns.longest <= MOST_LINES, turns.where
        floors = {entry.floor for entry in rig.journal.state.offsets.values()}
        assert floors == {0}, "no message of these queues is here"


async def test_a_takeover_gathers_its_entries_in_short_turns(tmp_path: Path) -> None:
    """From its own side journal, the record of the reader before and its journal's tail."""
    own = some()
    earlier = {key: OffsetEntry(2 << 32, Offset(2)) for key in list(own)[: SOME // 3]}
    tail = {key: OffsetEntry(3 << 32, Offset(3)) for key in list(own)[-SOME // 3 :]}
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        side = await SideJournal.start(rig.side, Epoch(2), own)
        await side.close()
        committed = rig.journal.end
        await append_offsets(rig.journal, tail)
        rig.group.become(Mode.SLAVE_CONSUME, 5, opened=3)
        record = base64.b64encode(encode_offsets(earlier)).decode()

        async def taken() -> None:
            await rig.offsets.become_taker(record, committed)

        with turns_counted() as turns:
            await asyncio.create_task(taken())
        assert 0 < turns.longest <= MOST_LINES, turns.where
        assert rig.offsets._takeover == own | earlier | tail
        assert await SideJournal.load(rig.side) == own | earlier | tail
