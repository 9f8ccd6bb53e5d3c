"""A slave's journal is byte for byte the master's; batches that do not fit are refused."""

import asyncio
import random
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.tests.journal_kit import (
    SEGMENT,
    TOPIC,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
    segment_files,
)
from fmqcore.batch.control import encode_offsets, encode_topic
from fmqcore.batch.crc import Buffer, crc32c
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchFault, BatchType, seal_header
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.segments import snap_batch
from fmqcore.journal.snap_payload import Snapshot
from fmqcore.journal.state import JournalState, OffsetEntry, OffsetKey
from fmqcore.turns import FREED, Turns


def control(kind: BatchType, payload: bytes) -> BatchDraft:
    return BatchDraft(kind, payload, crc32c(payload))


def history(master: Journal, rounds: int = 60) -> None:
    """Append records, topics, progress, producers and terms over several segments."""
    chance = random.Random(5)
    for number in range(rounds):
        if number % 20 == 0:
            master.append(epoch(master.epoch + 1))
        if number % 7 == 0:
            master.append(control(BatchType.CONFIG, encode_topic(TopicId(number + 1), "t", 4)))
        key, entry = OffsetKey("g", TOPIC, number % 3), OffsetEntry(number + 1, Offset(number))
        master.append(control(BatchType.OFFSETS, encode_offsets({key: entry})))
        for sequence in range(chance.randrange(8)):
            size, count = chance.randrange(1, 3000), chance.randrange(1, 5)
            master.append(
                data(bytes(size), queue=number % 5, count=count, producer_id=1 + number % 2,
                     producer_epoch=number, base_sequence=sequence)
            )  # fmt: skip


async def follow(master: Journal, slave: Journal, step: int) -> None:
    """Send all missing batches, as replication does."""
    while slave.end < master.end:
        slave.append_replica(slave.end, await master.read(slave.end, step))


@pytest.mark.parametrize("step", [1, 5000, 1 << 20])
async def test_a_replica_is_byte_identical(tmp_path: Path, step: int) -> None:
    # The slave's own segment length setting does not count: the stream carries it.
    async with (
        running(tmp_path / "m") as master,
        running(tmp_path / "s", segment_bytes=2 * SEGMENT) as slave,
    ):
        history(master)
        await follow(master, slave, step)
        assert slave.state == master.state
        assert (slave.end, slave.epoch, slave.last_header_crc) == (
            master.end,
            master.epoch,
            master.last_header_crc,
        )
        await slave.wait_durable(slave.end)
        await master.wait_durable(master.end)
        for queue in range(5):
            assert slave.next_offset(TOPIC, queue) == master.next_offset(TOPIC, queue)
            offset = Offset(0)
            while found := await master.find(TOPIC, queue, offset, 3):
                assert list(await slave.find(TOPIC, queue, offset, 3)) == list(found)
                offset = found[-1].end_offset
            assert offset == master.next_offset(TOPIC, queue) > 0
    assert segment_files(tmp_path / "s") == segment_files(tmp_path / "m")
    assert len(segment_files(tmp_path / "m")) > 3
    async with running(tmp_path / "s") as slave, running(tmp_path / "m") as master:
        assert slave.state == master.state
        history(slave, 19)  # and it can continue as a master
        await follow(slave, master, step)


async def test_new_slave_can_start_at_any_segment(tmp_path: Path) -> None:
    async with running(tmp_path / "m") as master:
        history(master)
        bases = [h.position for h in headers(await everything(master)) if h.type == BatchType.SNAP]
        for base in bases[1:3]:
            path = tmp_path / f"s{base}"
            async with running(path) as slave:
                await slave.reset(base)
                assert (slave.journal_start, slave.end, slave.durable_end) == (base, base, base)
            async with running(path) as slave:
                assert slave.end == base
                await follow(master, slave, 1 << 20)
                assert slave.state == master.state
                assert slave.begin_offset(TOPIC, 0) > 0
            async with running(path) as slave:
                assert (slave.journal_start, slave.end) == (base, master.end)
                assert slave.state == master.state


async def test_batch_that_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    async with running(tmp_path / "m") as master, running(tmp_path / "s") as slave:
        master.append(epoch(3))
        fill(master, 10)
        raw = await everything(master)
        half = headers(raw)[5].position
        slave.append_replica(Position(0), raw[:half])
        before = (slave.end, slave.state.next_offsets.copy(), slave.last_header_crc)
        rest = raw[half:]
        flipped = bytearray(rest)
        flipped[HEADER_LEN + 5] ^= 1
        wrong: list[tuple[int, bytes, BatchFault]] = [
            (0, raw, BatchFault.POSITION),
            (half + 8, rest, BatchFault.POSITION),
            (half, rest[:-1], BatchFault.SHORT),
            (half, bytes(flipped), BatchFault.PAYLOAD_CRC),
            (half, raw[headers(raw)[6].position :], BatchFault.POSITION),
            (half, b"\xff" * 200, BatchFault.MAGIC),
            (half, bytes(200), BatchFault.MAGIC),
        ]
        for position, stream, fault in wrong:
            with pytest.raises(BadBatch) as caught:
                slave.append_replica(Position(position), stream)
            assert caught.value.fault is fault
            assert (slave.end, slave.state.next_offsets, slave.last_header_crc) == before
        slave.append_replica(Position(half), rest)
        assert slave.state == master.state


async def test_another_history_is_refused_by_its_chain(tmp_path: Path) -> None:
    async with running(tmp_path / "m") as master, running(tmp_path / "s") as slave:
        for journal in (master, slave):
            journal.append(epoch(1))
            journal.append(data(b"same"))
        master.append(data(b"one"))
        slave.append(data(b"two"))
        at = master.end
        master.append(data(b"next"))
        with pytest.raises(BadBatch) as caught:
            slave.append_replica(at, await master.read(at, 1000))
        assert caught.value.fault is BatchFault.CHAIN


async def test_invalid_control_batch_is_refused_whole(tmp_path: Path) -> None:
    async with running(tmp_path / "m") as master, running(tmp_path / "s") as slave:
        master.append(epoch(1))
        first = master.append(data(b"x"))
        draft = control(BatchType.DELIVER, b"no topic's setting")
        at = master.append(draft).position
        raw = bytearray(await everything(master))
        # As a peer with another CONFIG kind makes it: right checksums, unknown content.
        header = headers(bytes(raw[at:]))[0]._replace(type=BatchType.CONFIG)
        raw[at : at + HEADER_LEN] = seal_header(header)[0]
        with pytest.raises(BadBatch) as caught:
            slave.append_replica(Position(0), bytes(raw))
        assert caught.value.fault is BatchFault.CONTENT
        assert (slave.end, slave.next_offset(TOPIC, 0)) == (0, 0)
        assert first.base_offset == 0


async def test_a_snap_that_a_slave_would_write_itself_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding a large state is a long pause, and at a roll every broker already has it."""
    decoded = []
    real = JournalState.decoding_snap

    def decoding_snap(payload: Buffer) -> Turns[JournalState]:
        decoded.append(len(payload))
        return real(payload)

    async with running(tmp_path / "m") as master, running(tmp_path / "s") as slave:
        master.append(epoch(1))
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        monkeypatch.setattr(JournalState, "decoding_snap", decoding_snap)
        for number in range(300):
            more = {"producer_id": 1 + number % 7, "base_sequence": number // 7}
            master.append(data(bytes(1000), queue=number % 3, **more))
        while slave.end < master.end:
            slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        assert len(segment_starts(master)) > 4
        assert not decoded
        assert slave.state == master.state
        await slave.wait_durable(slave.end)
    async with running(tmp_path / "s") as slave:
        assert slave.state == master.state


def segment_starts(journal: Journal) -> list[int]:
    return [segment.base for segment in journal._parts.store.segments]


async def test_a_slave_builds_its_own_snapshot_once_for_a_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compare it with a long SNAP, before and when it is appended: each build is a long turn."""
    built, snapshot = list[int](), JournalState.snapshot

    def watched(self: JournalState, *args: int) -> Snapshot:
        built.append(id(self))
        return snapshot(self, *args)

    async with (
        running(tmp_path / "m", segment_bytes=1 << 20) as master,
        running(tmp_path / "s") as slave,
    ):
        keys = [OffsetKey("g", TOPIC, queue) for queue in range(4000)]
        entries = dict.fromkeys(keys, OffsetEntry(1, Offset(0)))
        master.append(epoch(1))
        master.append(control(BatchType.OFFSETS, encode_offsets(entries)))
        await follow(master, slave, 1 << 20)
        for _ in range(2):
            master.append(data(bytes(600_000)))
        monkeypatch.setattr(JournalState, "snapshot", watched)
        while slave.end < master.end:
            batches = await master.read(slave.end, 1 << 20)
            slave.append_replica(slave.end, batches, await slave.unpack(batches))
        assert built == [id(slave.state)]
        assert slave.state == master.state


async def test_replaced_tables_are_freed_in_short_turns(tmp_path: Path) -> None:
    """By a reset, and by the SNAP that a joining slave gets: freed at once they hold the loop."""
    base, payload = Position(SEGMENT), JournalState().to_snap(1)
    raw, _ = snap_batch(
        base=base, segment_bytes=SEGMENT, epoch=Epoch(1), prev_header_crc=0, payload=payload,
        store_ms=1,
    )  # fmt: skip
    async with running(tmp_path) as slave:

        async def joined() -> None:
            slave.append_replica(base, raw)

        await freed_in_short_turns(filled(slave.state), slave.reset(base))
        await freed_in_short_turns(filled(slave.state), joined())


def filled(state: JournalState) -> ProgressTable:
    keys = (OffsetKey("g", TopicId(topic), queue) for topic in (1, 2, 3) for queue in range(FREED))
    state.offsets = ProgressTable(dict.fromkeys(keys, OffsetEntry(1, Offset(0))))
    return state.offsets


async def freed_in_short_turns(table: ProgressTable, work: Coroutine[Any, Any, None]) -> None:
    """See how many entries each turn removes; they stay with a table that nothing empties."""
    sizes, left, replacing = [len(table)], 20, asyncio.create_task(work)
    while left:
        await asyncio.sleep(0)
        sizes.append(len(table))
        left -= replacing.done()
    await replacing
    assert (sizes[0], sizes[-1]) == (3 * FREED, 0)
    assert max(before - after for before, after in pairwise(sizes)) <= FREED
