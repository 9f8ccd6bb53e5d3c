"""The journal handles the state of many queues in short turns."""

import asyncio
from pathlib import Path
from typing import Any

from fmqbroker.journal.journal import BatchDraft
from fmqbroker.tests.consume_harness import TOPIC, Rig, running
from fmqbroker.tests.longest_turn import MOST_LINES, turns_counted
from fmqbroker.tests.turns_kit import (
    GROUPS,
    QUEUES,
    WIDE,
    Full,
    entries,
    full,
    in_short_turns,
    some,
)
from fmqcore.batch.control import decode_offsets_packed, encode_offsets, encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.derived import QUEUE_INDEX
from fmqcore.journal.resume_file import RESUME
from fmqcore.journal.segments import snap_batch
from fmqcore.journal.state import JournalState

__all__ = ["entries", "full"]  # fixtures


async def test_a_long_snap_is_decoded_in_short_turns(tmp_path: Path) -> None:
    """By a slave that gets it, at a truncation, and at the next start."""
    writer = JournalState()
    for key, entry in some().items():
        writer.offsets[key] = entry
    base, size = Position(32 * 1024 * 1024), 16 * 1024 * 1024
    fields: dict[str, Any] = {"epoch": Epoch(1), "prev_header_crc": 0, "store_ms": 1}
    raw, _ = snap_batch(base=base, segment_bytes=size, payload=writer.to_snap(1), **fields)
    rig = Rig(tmp_path, segment_bytes=size)
    await rig.open()
    await rig.journal.reset(base)
    running_journal = asyncio.create_task(rig.journal.run())

    async def followed() -> None:
        snaps = await rig.journal.unpack(raw)
        await asyncio.sleep(0)  # else it counts as one turn with the last piece
        rig.journal.append_replica(base, raw, snaps)

    await in_short_turns(followed())
    assert rig.journal.state.offsets == some()
    rig.journal.append(draft_of(some(1000)))
    await in_short_turns(rig.journal.truncate(Position(base + len(raw))))
    running_journal.cancel()
    await asyncio.wait([running_journal])
    await rig.journal.close()
    again = Rig(tmp_path, segment_bytes=size)
    await in_short_turns(again.open())
    assert again.journal.state.offsets == some()
    await again.journal.close()


async def test_deleting_a_wide_topic_takes_a_short_turn(full: Full) -> None:
    state, topic = full.rig.journal.state, full.topics[0]
    before = len(state.offsets)
    payload = encode_topic(topic.id, topic.name, 0)

    async def deleted() -> None:
        full.rig.journal.append(BatchDraft(BatchType.CONFIG, payload, crc32c(payload)))

    await in_short_turns(deleted())
    assert len(state.offsets) == before - WIDE * GROUPS
    assert topic.id not in state.offsets.topics()


async def test_a_roll_drops_old_tombstones_in_short_turns(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        state = rig.journal.state
        for group in range(5 * GROUPS):
            keys = [OffsetKey(f"group-{group}", TOPIC.id, queue) for queue in range(WIDE)]
            payload = encode_offsets(dict.fromkeys(keys, tombstone(1 << 32)))
            state.merge_offsets(decode_offsets_packed(payload), store_ms=1)
        start = rig.journal.end

        async def rolled() -> None:
            for _ in range(2):
                rig.produce(0, bytes(600_000))
            while state.deleted_ms:
                await asyncio.sleep(0)

        await in_short_turns(rolled())
        assert rig.journal.end - start > 1_200_000
        assert (state.offsets, state.deleted_ms, state.progress_bytes) == ({}, {}, 0)


async def test_an_index_is_stored_and_read_in_short_turns(tmp_path: Path) -> None:
    """Of a segment with 10,000 queues: at an orderly stop, a start, a roll and a read."""
    rig = Rig(tmp_path, segment_bytes=2 * 1024 * 1024)
    await rig.open()
    running_journal = asyncio.create_task(rig.journal.run())
    for queue in range(QUEUES):
        rig.produce(queue % WIDE, b"x", topic=TopicId(1 + queue // WIDE))
    running_journal.cancel()
    await asyncio.wait([running_journal])
    await in_short_turns(rig.journal.close())
    assert (tmp_path / RESUME).stat().st_size > 40 * QUEUES
    await in_short_turns(rig.open())
    running_journal = asyncio.create_task(rig.journal.run())
    rig.produce(0, bytes(1_000_000))
    catalog, (first, _) = rig.journal._parts.catalog, rig.journal._parts.store.segments

    async def stored() -> None:
        while catalog.needs_save(first.end):
            await asyncio.sleep(0.01)

    async def read() -> None:
        assert len((await catalog._files.load(QUEUE_INDEX, first)).queues()) == QUEUES
        assert len((await catalog._read_start(first)).next_offsets) == 0

    with turns_counted() as turns:
        await asyncio.create_task(stored())
        await asyncio.create_task(read())
    assert 0 < turns.longest <= MOST_LINES, turns.where
    running_journal.cancel()
    await asyncio.wait([running_journal])
    await rig.journal.close()


async def test_a_resume_file_of_many_groups_takes_short_turns(tmp_path: Path) -> None:
    """All progress has changed since the last one; a roll right after it is short, too."""
    async with running(Rig(tmp_path, segment_bytes=4 * 1024 * 1024)) as rig:
        for n in range(8000):
            keys = [OffsetKey(f"group-{n:05}", TOPIC.id, queue) for queue in (0, 1)]
            payload = encode_offsets(dict.fromkeys(keys, OffsetEntry(1 << 32, Offset(1))))
            rig.journal.state.merge_offsets(decode_offsets_packed(payload), store_ms=1)
        rig.produce(0, bytes(1_400_000))
        await rig.journal.wait_durable(rig.journal.end)
        await in_short_turns(rig.journal._resumes.at_close())
        assert (tmp_path / RESUME).exists()

        async def rolled() -> None:
            rig.produce(0, bytes(2_900_000))

        start = rig.journal.end
        await in_short_turns(rolled())
        assert rig.journal.end - start > 2_900_000 + 8000 * 2 * 40


def draft_of(entries: dict[OffsetKey, OffsetEntry]) -> BatchDraft:
    payload = encode_offsets(entries)
    return BatchDraft(BatchType.OFFSETS, payload, crc32c(payload))
