"""The headers-only kernel sees what the full scan sees, and stops at the same place."""

from collections.abc import Callable
from functools import cache

import pytest

from fmqcore.batch.header import HEADER_LEN, BatchFault, BatchType, seal_header
from fmqcore.ids import Position
from fmqcore.journal.scan import Blank, Cursor, Fault, Scan, Sealed, Stop
from fmqcore.journal.segments import MIN_SEGMENT, Segment, segment_name
from fmqcore.scan.digests import BlockDigests, Digest, batches
from fmqcore.scan.headers import COLUMNS, HeaderBlock, HeaderScan, ScanRange, scan_headers
from fmqcore.tests.journal.writer import JournalWriter, sample


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda length, at: data[at : at + length]


def scan_file(data: bytes, base: int = 0) -> tuple[list[object], Stop | None]:
    end = Position(base + len(data))
    wanted = ScanRange(Segment(Position(base), end), Position(base), end)
    block, scan = scan_headers(reader(data), wanted)
    return list(block.headers()), scan.stop


@cache
def small() -> JournalWriter:
    return sample(batches=200)


@cache
def large() -> JournalWriter:
    """Return batches so large that headers are read one by one, with small ones in between."""
    writer = JournalWriter(4 * 1024 * 1024)
    writer.open_epoch(1)
    for n in range(400):
        writer.data(7, n % 3, [b"x" * (60_000 if n % 100 < 80 else 10)])
    return writer


@pytest.fixture(params=[False, True], ids=["small", "large"])
def writer(request: pytest.FixtureRequest) -> JournalWriter:
    return large() if request.param else small()


def test_every_header_of_every_segment_is_seen_as_written(writer: JournalWriter) -> None:
    found = []
    for base in writer.segments:
        headers, stop = scan_file(writer.files()[segment_name(base)], base)
        found += headers
        assert isinstance(stop, Blank if base == writer.last_base else Sealed)
    assert found == writer.headers


def test_columns_are_the_headers_fields(writer: JournalWriter) -> None:
    data = writer.files()[segment_name(Position(0))]
    block, _ = scan_headers(
        reader(data),
        ScanRange(Segment(Position(0), Position(len(data))), Position(0), Position(len(data))),
    )
    headers = list(block.headers())
    assert len(block) == len(headers)
    for name in COLUMNS:
        assert list(block.column(name)) == [getattr(header, name) for header in headers], name


def test_large_batches_are_not_read() -> None:
    writer = large()
    data = writer.files()[segment_name(Position(0))]
    scan = HeaderScan(
        reader(data),
        ScanRange(Segment(Position(0), Position(len(data))), Position(0), Position(len(data))),
    )
    assert sum(len(block) for block in scan) > 50
    assert scan.bytes_read < len(data) / 5


def test_range_scan_keeps_its_bounds(writer: JournalWriter) -> None:
    data = writer.files()[segment_name(Position(0))]
    end = Position(len(data))
    whole, _ = scan_file(data)
    some = writer.headers[3:9]
    wanted = ScanRange(Segment(Position(0), end), some[0].position, Position(some[-1].position + 1))
    block, scan = scan_headers(reader(data), wanted)
    assert list(block.headers()) == some == whole[3:9]
    assert scan.stop is None
    assert scan.position == some[-1].end


@pytest.mark.parametrize("header", [0, 1, 5, 30])
@pytest.mark.parametrize("byte", range(0, HEADER_LEN, 3))
def test_damaged_header_stops_header_scan_like_full_scan(header: int, byte: int) -> None:
    writer = small()
    data = bytearray(writer.files()[segment_name(Position(0))])
    data[writer.headers[header].position + byte] ^= 1
    full = Scan(bytes(data), Position(0), Cursor(Position(0)), payloads=False)
    seen = list(full)
    headers, stop = scan_file(bytes(data))
    assert headers == seen
    assert isinstance(stop, Fault)
    assert isinstance(full.stop, Fault)
    assert (stop.position, stop.fault) == (full.stop.position, full.stop.fault)


def test_a_swapped_batch_breaks_the_chain() -> None:
    writer = small()
    victim = next(h for h in writer.headers[8:] if h.type == BatchType.DATA)
    data = bytearray(writer.files()[segment_name(Position(0))])
    at = victim.position
    fresh = writer.headers.index(victim)
    raw, _ = seal_header((*victim[:19], 12345, *victim[20:]))
    data[at : at + HEADER_LEN] = raw
    headers, stop = scan_file(bytes(data))
    assert len(headers) == fresh
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.CHAIN


@pytest.mark.parametrize("cut", [0, 1, 95, 96, 97, 5000, MIN_SEGMENT - 1])
def test_segment_truncated_anywhere_is_not_sealed(cut: int) -> None:
    writer = small()
    data = writer.files()[segment_name(Position(0))][:cut]
    wanted = ScanRange(Segment(Position(0), Position(MIN_SEGMENT)), Position(0), Position(cut))
    _, scan = scan_headers(reader(data), wanted)
    eof = next(h for h in writer.headers if h.type == BatchType.EOF)
    assert isinstance(scan.stop, Sealed) == (cut >= eof.position + HEADER_LEN)


def digests(headers: HeaderBlock) -> list[Digest]:
    made = BlockDigests()
    for header in headers.headers():
        made(header)
    return made.made


def test_blocks_differ_exactly_where_the_headers_do() -> None:
    one, two = large(), large()
    first = next(h for h in two.headers if h.position > 2_500_000)
    data = bytearray(two.files()[segment_name(Position(0))])
    headers = [h for h in one.headers if h.position < one.segment_bytes]
    wanted = ScanRange(Segment(Position(0), Position(len(data))), Position(0), Position(len(data)))
    block, _ = scan_headers(reader(bytes(data)), wanted)
    blocks = digests(block)
    assert [d.first // (1 << 20) for d in blocks] == [0, 1, 2, 3]
    assert blocks[-1].end == headers[-1].end
    changed = bytearray(block.raw)
    place = headers.index(first)
    changed[place * HEADER_LEN + 12] ^= 1
    other = digests(HeaderBlock(bytes(changed)))
    assert [a == b for a, b in zip(blocks, other, strict=True)] == [True, True, False, True]
    pairs = zip(batches(block), batches(HeaderBlock(bytes(changed))), strict=True)
    assert [a.position for a, b in pairs if a != b] == [first.position]


def test_a_gap_ends_a_block() -> None:
    headers = [h for h in small().headers if h.position < MIN_SEGMENT]
    gone = headers[5]
    made = BlockDigests()
    for header in headers:
        if header is not gone:
            made(header)
    places = [(digest.first, digest.end) for digest in made.made]
    assert places == [(0, gone.position), (gone.end, headers[-1].end)]
