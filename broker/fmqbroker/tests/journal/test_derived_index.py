"""A planted derived index follows its journal, and holds retention by its low watermark."""

from array import array
from pathlib import Path

import pytest

from fmqbroker.journal import catalog, resume_file
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.journal_kit import (
    SEGMENT,
    data,
    epoch,
    everything,
    headers,
    running,
    segment_files,
    until,
)
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.segments import index_name
from fmqcore.turns import Turns

EVERY = 9
"""One batch of so many is marked."""


class MarkedPart:
    """Positions of one segment's batches that have a delivery time."""

    def __init__(self, base: Position, end: Position | None = None) -> None:
        self.base = base
        self.end = base if end is None else end
        self.marked = array("Q")

    @property
    def held_bytes(self) -> int:
        return 8 * len(self.marked)

    def add(self, header: BatchHeader) -> None:
        assert header.position == self.end, "each batch comes once, in order"
        self.end = header.end
        if header.deliver_at_ms:
            self.marked.append(header.position)

    def encoding(self) -> Turns[bytes]:
        yield
        return array("Q", (self.base, self.end, *self.marked)).tobytes()


class Marked:
    """All marked batches; those at or above `needed_from` are still needed."""

    suffix = "marked"
    holds_retention = True

    def __init__(self) -> None:
        self.needed_from = Position(0)
        self.restored = 0

    def begin(self, base: Position) -> MarkedPart:
        return MarkedPart(base)

    def restore(self, data: Buffer) -> Turns[MarkedPart]:
        yield
        if len(data) % 8 or len(data) < 16:
            raise Malformed(f"{len(data)} bytes are no part")
        base, end, *marked = array("Q", bytes(data))
        part = MarkedPart(Position(base), Position(end))
        part.marked.extend(marked)
        self.restored += 1
        return part

    def low_watermark(self, part: MarkedPart, /) -> Position | None:
        return next((Position(at) for at in part.marked if at >= self.needed_from), None)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Marked:
    monkeypatch.setattr(catalog, "MAX_HOT_BYTES", 0)  # only the newest segment stays in memory
    monkeypatch.setattr(resume_file, "EVERY_BYTES", 16 * 1024)
    return Marked()


async def grow(journal: Journal, count: int) -> None:
    for number in range(count):
        due = 0 if number % EVERY else 1
        journal.append(data(bytes(900), queue=number % 3, deliver_at_ms=due))
    await journal.wait_durable(journal.end)
    await until(lambda: not journal._parts.catalog.needs_save(journal.durable_end))


async def filled(path: Path, index: Marked, *, crash: bool = False) -> None:
    async with running(path, indexes=[index], crash=crash) as journal:
        journal.append(epoch(1))
        await grow(journal, 300)
        await agrees(journal, index)
    assert len(part_files(path)) > 3


async def agrees(journal: Journal, index: Marked) -> None:
    """Compare the index with the stored headers, segment by segment."""
    marked = [h.position for h in headers(await everything(journal)) if h.deliver_at_ms]
    found = list[int]()
    for segment in journal._parts.store.segments:
        part = await journal._parts.catalog.part_of(index, segment)
        assert (part.base, part.end) == (segment.base, min(segment.end, journal.end))
        found += part.marked
    assert found == marked


def part_files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.glob("*.marked"))}


@pytest.mark.parametrize("crash", [False, True])
async def test_planted_index_survives_rolls_and_restarts(
    tmp_path: Path, index: Marked, crash: bool
) -> None:
    await filled(tmp_path, index, crash=crash)
    stored, again = part_files(tmp_path), Marked()
    async with running(tmp_path, indexes=[again], crash=crash) as journal:
        await agrees(journal, again)
        assert again.restored == len(stored)  # not rebuilt
        await grow(journal, 100)
        await agrees(journal, again)
    assert stored.items() < part_files(tmp_path).items()


async def test_lost_parts_are_rebuilt_bit_for_bit(tmp_path: Path, index: Marked) -> None:
    await filled(tmp_path, index)
    stored = part_files(tmp_path)
    first, second, third, *_ = stored
    (tmp_path / first).unlink()
    (tmp_path / second).write_bytes(stored[third])  # covers something else
    (tmp_path / third).write_bytes(stored[third][:-1])
    async with running(tmp_path, indexes=[index]) as journal:
        await agrees(journal, index)
    assert part_files(tmp_path) == stored


async def test_index_added_to_an_old_journal_is_built(tmp_path: Path, index: Marked) -> None:
    await filled(tmp_path, index)
    stored = part_files(tmp_path)
    async with running(tmp_path) as journal:  # a version without that index
        journal.append(data(b"more"))
    for name in stored:
        (tmp_path / name).unlink()
    async with running(tmp_path, indexes=[index]) as journal:
        await agrees(journal, index)
    assert part_files(tmp_path) == stored


async def test_planted_index_forgets_a_torn_tail(tmp_path: Path, index: Marked) -> None:
    await filled(tmp_path, index, crash=True)
    (tmp_path / "checkpoint").unlink()  # else it knows of a durable end above
    newest = tmp_path / list(segment_files(tmp_path))[-1]
    raw = bytearray(newest.read_bytes())
    written = len(raw.rstrip(b"\0"))
    raw[written // 2 : written // 2 + 64] = b"\xff" * 64
    newest.write_bytes(raw)
    async with running(tmp_path, indexes=[index]) as journal:
        assert journal.end % SEGMENT < written
        await agrees(journal, index)
        await grow(journal, 100)
        await agrees(journal, index)


@pytest.mark.parametrize("whole_segments", [False, True])
async def test_planted_index_is_cut_with_its_journal(
    tmp_path: Path, index: Marked, whole_segments: bool
) -> None:
    await filled(tmp_path, index)
    async with running(tmp_path, indexes=[index]) as journal:
        inside = headers(await everything(journal))[150].end
        to = Position(inside // SEGMENT * SEGMENT if whole_segments else inside)
        await agrees(journal, index)  # all parts are cached
        await journal.truncate(to)
        assert max(part_files(tmp_path)) < index_name(to, "marked")
        await agrees(journal, index)
        await grow(journal, 100)
        await agrees(journal, index)
        await journal.reset(Position(1 << 30))
        assert not part_files(tmp_path)


async def test_planted_index_grows_on_a_slave(tmp_path: Path, index: Marked) -> None:
    await filled(tmp_path / "m", Marked())
    async with (
        running(tmp_path / "m") as master,
        running(tmp_path / "s", indexes=[index]) as slave,
    ):
        while slave.end < master.end:
            slave.append_replica(slave.end, await master.read(slave.end, 5000))
        await agrees(slave, index)


async def test_low_watermark_holds_retention(tmp_path: Path, index: Marked) -> None:
    await filled(tmp_path, index)
    async with running(tmp_path, indexes=[index], retention_bytes=SEGMENT) as journal:
        assert await journal.retire(journal.end, 0) == 0
        marked = [h.position for h in headers(await everything(journal)) if h.deliver_at_ms]
        needed = index.needed_from = next(at for at in marked if at >= 2 * SEGMENT)
        assert await journal.retire(journal.end, 0) == 2 * SEGMENT
        assert journal.journal_start <= needed
        await agrees(journal, index)
        assert min(part_files(tmp_path)) == index_name(journal.journal_start, "marked")
        index.needed_from = journal.end
        assert await journal.retire(journal.end, 0) > 0
        assert journal.journal_start == journal._parts.store.segments[-1].base
    async with running(tmp_path, indexes=[index]) as journal:
        await agrees(journal, index)


async def test_parts_of_retired_segments_go_at_a_start(tmp_path: Path, index: Marked) -> None:
    await filled(tmp_path, index)
    index.needed_from = Position(1 << 40)
    stored = part_files(tmp_path)
    async with running(tmp_path, indexes=[index], retention_bytes=SEGMENT) as journal:
        assert await journal.retire(journal.end, 0) > 0
    kept = part_files(tmp_path)
    for name in stored:
        (tmp_path / name).write_bytes(stored[name])  # as a crash in retention leaves them
    async with running(tmp_path, indexes=[index]):
        assert part_files(tmp_path) == kept
