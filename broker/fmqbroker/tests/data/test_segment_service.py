"""Stored segments over the wire: ranges, commit end, retention, throttle, waiting readers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.visible import Visible
from fmqbroker.data.segment_service import CHUNK_BYTES, STUCK_S, SegmentService
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.tests.consume_harness import HandClock, until
from fmqbroker.tests.journal_kit import SEGMENT, epoch, everything, fill, running, settings
from fmqbroker.tests.pipes import BrokerEnd, Pipe
from fmqcore.ids import Position
from fmqcore.journal.segments import index_name, segment_name
from fmqport.tests.call_context import CALL
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2
from fmqproto.v1.segments_pb2 import SegmentRead, SegmentsRequest


class Rig:
    """A journal of a few small segments, and the service on it."""

    def __init__(self, path: Path, journal: Journal, **changes: Any) -> None:
        self.path = path
        self.journal = journal
        self.commit = CommitFrontier()
        self.hand = HandClock()
        changed = settings(path, **{"scan_bytes_per_s": 0, **changes})
        visible = Visible(journal, self.commit)
        self.reason = ""
        self.service = SegmentService(changed, self.hand, journal, visible, lambda: self.reason)

    def committed(self, end: int) -> None:
        self.commit.advance(Position(end), Position(0))

    def ask(self, base: int, at: int = 0, length: int = 0, **more: Any) -> tuple[Pipe, Any]:
        pipe = Pipe()
        pipe.requests.put_nowait(SegmentRead(base=base, at=at, length=length, **more))
        return pipe, asyncio.create_task(self.service.serve(CALL, BrokerEnd(pipe)))

    async def read(self, base: int, at: int = 0, length: int = 0, **more: Any) -> bytes:
        """Read a whole range; an error is raised by its code."""
        pipe, serving = self.ask(base, at, length, **more)
        await serving
        return joined(pipe)


class Refused(Exception):
    """An error with its code."""


def joined(pipe: Pipe) -> bytes:
    data = b""
    while not pipe.replies.empty():
        part = pipe.replies.get_nowait()
        if part.HasField("error"):
            raise Refused(part.error.code, part.error.message)
        assert 0 < len(part.data) <= CHUNK_BYTES
        data += part.data
    return data


@asynccontextmanager
async def serving(path: Path, **changes: Any) -> AsyncIterator[Rig]:
    async with running(path, retention_bytes=2 * SEGMENT) as journal:
        journal.append(epoch(1))
        fill(journal, 250)  # four segments
        await journal.wait_durable(journal.end)
        yield Rig(path, journal, **changes)


async def test_committed_segments_are_listed_and_read_byte_for_byte(tmp_path: Path) -> None:
    async with serving(tmp_path) as rig:
        rig.committed(rig.journal.end)
        reply = await rig.service.list(CALL, SegmentsRequest())
        assert (reply.group, reply.broker, reply.journal_start) == ("g1", "g1-0", 0)
        assert reply.end == rig.journal.end
        assert [s.base for s in reply.segments] == [SEGMENT * i for i in range(len(reply.segments))]
        assert [s.sealed for s in reply.segments] == [True] * (len(reply.segments) - 1) + [False]
        assert len(reply.segments) >= 4
        data = b"".join([await rig.read(s.base) for s in reply.segments])
        files = b"".join(
            (tmp_path / segment_name(Position(s.base))).read_bytes() for s in reply.segments
        )
        assert data == files[: rig.journal.end]
        assert await rig.read(SEGMENT, 100, 50) == files[SEGMENT + 100 : SEGMENT + 150]
        assert rig.service.sent_bytes == len(data) + 50
        later = await rig.service.list(CALL, SegmentsRequest(since=SEGMENT))
        assert [s.base for s in later.segments] == [s.base for s in reply.segments][1:]


async def test_listing_names_what_is_stored_above_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as rig:
        rig.reason = "they wait for slave g1-1"
        rig.committed(SEGMENT)
        reply = await rig.service.list(CALL, SegmentsRequest())
        assert (reply.end, reply.stored_end) == (SEGMENT, rig.journal.end)
        assert reply.withheld_reason == rig.reason
        rig.committed(rig.journal.end)
        whole = await rig.service.list(CALL, SegmentsRequest())
        assert (whole.stored_end, whole.withheld_reason) == (whole.end, "")


async def test_nothing_above_the_commit_end_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path) as rig:
        assert not (await rig.service.list(CALL, SegmentsRequest())).segments
        end = SEGMENT + 4096  # within a sealed segment
        rig.committed(end)
        reply = await rig.service.list(CALL, SegmentsRequest())
        assert (reply.end, [s.base for s in reply.segments]) == (end, [0, SEGMENT])
        assert len(await rig.read(SEGMENT)) == 4096
        for at, length in ((0, 4097), (4097, 0), (4000, 97), (1 << 40, 1)):
            with pytest.raises(Refused) as caught:
                await rig.read(SEGMENT, at, length)
            assert caught.value.args[0] == client_pb2.INVALID_ARGUMENT
        with pytest.raises(Refused, match="4096 bytes are committed here"):
            await rig.read(SEGMENT, 0, 5000)
        with pytest.raises(Refused, match="0 bytes are committed"):
            await rig.read(2 * SEGMENT, 0, 100)


async def test_an_index_file_is_read_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as rig:
        rig.committed(rig.journal.end)
        path = tmp_path / index_name(Position(0))
        await until(path.exists)
        assert await rig.read(0, index=True) == path.read_bytes()
        newest = rig.journal.raw.extents()[-1].base
        with pytest.raises(Refused, match="has no index file now"):
            await rig.read(newest, index=True)


@pytest.mark.parametrize("gone", ["retired", "dropped"])
async def test_segment_deleted_during_scan_ends_it_with_an_error(tmp_path: Path, gone: str) -> None:
    async with serving(tmp_path, scan_bytes_per_s=SEGMENT // 8) as rig:
        rig.committed(rig.journal.end)
        stored = (tmp_path / segment_name(Position(SEGMENT))).read_bytes()
        pipe, scan = rig.ask(SEGMENT)
        await until(lambda: not pipe.replies.empty())
        if gone == "retired":
            assert await rig.journal.retire(rig.journal.end, 0) > 0
        else:
            await rig.journal.reset(Position(SEGMENT))
        while not scan.done():
            rig.hand.advance(1000)
            await asyncio.sleep(0.001)
        *parts, last = [pipe.replies.get_nowait() for _ in range(pipe.replies.qsize())]
        came = b"".join(part.data for part in parts)
        assert 0 < len(came) < SEGMENT
        assert came == stored[: len(came)]
        assert last.error.code == client_pb2.NOT_FOUND
        with pytest.raises(Refused):
            await rig.read(SEGMENT)
        reply = await rig.service.list(CALL, SegmentsRequest())
        if gone == "retired":
            assert (
                reply.journal_start == reply.segments[0].base == rig.journal.journal_start > SEGMENT
            )
        else:
            assert (reply.journal_start, reply.end, list(reply.segments)) == (SEGMENT, SEGMENT, [])


@pytest.mark.parametrize("gone", ["retired", "started again"])
async def test_segment_deleted_during_a_read_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    async with serving(tmp_path) as rig:
        rig.committed(rig.journal.end)
        real = rig.journal.raw.read

        async def read(base: Position, at: int, length: int) -> bytes:
            data = await real(base, at, length)
            if gone == "retired":
                assert await rig.journal.retire(rig.journal.end, 0) > 0
            else:
                await rig.journal.reset(base)
                rig.journal.append(epoch(2))  # a segment of that base is there again
                assert rig.journal.raw.extent(base)
            return data

        monkeypatch.setattr(rig.journal.raw, "read", read)
        with pytest.raises(Refused) as caught:
            await rig.read(SEGMENT)
        assert caught.value.args[0] == client_pb2.NOT_FOUND
        assert rig.service.sent_bytes == 0


async def test_all_streams_together_keep_to_the_rate(tmp_path: Path) -> None:
    async with serving(tmp_path, scan_bytes_per_s=SEGMENT // 4) as rig:
        rig.committed(rig.journal.end)
        scans = [rig.ask(SEGMENT * i) for i in range(2)]
        for second in range(8):
            while rig.service.sent_bytes < (second + 1) * SEGMENT // 4:
                await asyncio.sleep(0.001)
            assert not (second < 7 and all(task.done() for _, task in scans))
            rig.hand.advance(999)
            for _ in range(20):
                await asyncio.sleep(0)
            assert rig.service.sent_bytes == (second + 1) * SEGMENT // 4
            rig.hand.advance(1)
        for pipe, scan in scans:
            await scan
            assert len(joined(pipe)) == SEGMENT


async def test_scans_above_the_limit_are_refused_until_one_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, scan_streams=2) as rig:
        rig.committed(rig.journal.end)
        stuck = [rig.ask(0), rig.ask(0)]
        for pipe, _ in stuck:
            pipe.full = True
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="2 scans are at work") as caught:
            await rig.read(0)
        assert caught.value.args[0] == client_pb2.OVERLOADED
        assert rig.service.refused == 1
        stuck[0][0].torn.set()  # its reader is gone
        with pytest.raises(TransportError):
            await stuck[0][1]
        assert len(await rig.read(0)) == SEGMENT
        stuck[1][1].cancel()
        await asyncio.gather(stuck[1][1], return_exceptions=True)
        assert len(await rig.read(0)) == SEGMENT


async def test_a_reader_that_takes_nothing_loses_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert STUCK_S > 10
    monkeypatch.setattr("fmqbroker.data.segment_service.STUCK_S", 0.01)
    async with serving(tmp_path, scan_streams=1) as rig:
        rig.committed(rig.journal.end)
        pipe, scan = rig.ask(0)
        pipe.full = True
        await scan
        assert pipe.torn.is_set()
        silent = Pipe()
        await rig.service.serve(CALL, BrokerEnd(silent))
        assert silent.torn.is_set()
        monkeypatch.setattr("fmqbroker.data.segment_service.STUCK_S", 60)
        assert len(await rig.read(0)) == SEGMENT


async def test_reads_disturb_no_append(tmp_path: Path) -> None:
    """Files are read while the journal grows; readers get what was stored."""
    async with serving(tmp_path) as rig:
        rig.committed(rig.journal.end)
        end = rig.journal.end
        reads = [asyncio.create_task(rig.read(SEGMENT * i)) for i in range(3)]
        fill(rig.journal, 50)
        found = await asyncio.gather(*reads)
        stored = await everything(rig.journal)
        assert rig.journal.end > end
        # `read` returns an EOF as its 96 bytes: the rest of the segment is zeros in the file.
        assert all(len(part) == SEGMENT for part in found)
        assert found[0][:4096] == stored[:4096]
