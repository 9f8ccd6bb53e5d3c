"""A check's memory for a segment does not grow with the number of batches."""

import tracemalloc

import pytest

from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    HEADER_LEN,
    BatchType,
    batch_len,
    encode_header,
    padding,
    parse_header,
)
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.findings import Code
from fmqcore.journal.index import ENTRY_LEN, SegmentIndex
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.resume_file import Resume, encode_resume
from fmqcore.journal.scan import Cursor, Scan
from fmqcore.journal.segments import snap_batch
from fmqcore.journal.state import JournalState
from fmqcore.scan.digests import BlockDigests
from fmqcore.verify.directory import SegmentReport, Verifier
from fmqcore.verify.index import IndexState
from fmqcore.verify.small_files import note_resume

TOPIC = TopicId(7)
QUEUES = 3
BASE, EPOCH = Position(0), Epoch(0)
ONCE = 9_000


def segment(batches: int) -> tuple[bytes, SegmentIndex]:
    """Return a segment exactly full of that many batches of 120 bytes, and its index."""
    attrs, payload = encode([b"0123456789"])
    length, body = batch_len(len(payload)), payload + padding(len(payload))
    snap = JournalState(topics={TOPIC: ("small", QUEUES)}).to_snap(0)
    size = batch_len(len(snap)) + batches * length
    raw, crc = snap_batch(
        base=BASE, segment_bytes=size, epoch=EPOCH, prev_header_crc=0, payload=snap, store_ms=1
    )
    data, index = bytearray(raw), SegmentIndex(BASE)
    index.add(parse_header(raw[:HEADER_LEN]))
    for number in range(batches):
        raw, crc = encode_header(
            type=BatchType.DATA,
            position=Position(len(data)),
            epoch=EPOCH,
            prev_header_crc=crc,
            payload_len=len(payload),
            payload_crc=crc32c(payload),
            store_ms=1,
            attrs=attrs,
            topic_id=TOPIC,
            queue_id=number % QUEUES,
            record_count=1,
            base_offset=Offset(number // QUEUES),
        )
        index.add(parse_header(raw))
        data += raw + body
    return bytes(data), index


def verified(data: bytes, index: bytes) -> tuple[SegmentReport, int]:
    """Return the findings and the peak memory."""
    file = SegmentFile(BASE, len(data))
    digests = BlockDigests()
    verifier = Verifier([(file.name, file.size)], None, seen=digests)
    tracemalloc.start()
    try:
        report = verifier.segment(file, data, index)
        assert digests.made[-1].end == len(data)
        return report, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("whole", [True, False])
def test_twice_as_many_small_batches_take_no_more(whole: bool) -> None:
    peaks = []
    for batches in (ONCE, 2 * ONCE):
        data, index = segment(batches)
        if not whole:
            index.truncate(Position(len(data) - 1200))
            index.end = Position(len(data))
        report, peak = verified(data, index.encode())
        assert report.records == batches
        assert report.index is (IndexState.OK if whole else IndexState.DIFFERS)
        peaks.append(peak)
    assert peaks[1] < peaks[0] * 1.3


def noted(data: bytes, index: SegmentIndex) -> int:
    """Return the peak memory of checking a resume file against the segment."""
    file, last = SegmentFile(BASE, len(data)), index.last((TOPIC, 0))
    assert last is not None
    index.truncate(last.position)
    state, crc = JournalState(), 0
    for header in Scan(data, BASE, Cursor(BASE), until=index.end):
        payload = data[header.position + HEADER_LEN : header.end]
        apply_batch(state, header, payload[: header.payload_len])
        crc = header.header_crc
    raw = encode_resume(
        Resume(
            BASE,
            file.end,
            index.end,
            1,
            crc32c(data[: index.end]),
            crc,
            EPOCH,
            state.to_snap(0),
            index.encode(),
        )
    )
    tracemalloc.start()
    try:
        note = note_resume(raw, [file], data, live=False)
        assert note.fits, note.says
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_resume_note_of_twice_as_many_batches_takes_no_more() -> None:
    peaks = [noted(*segment(batches)) for batches in (ONCE, 2 * ONCE)]
    assert peaks[1] < peaks[0] * 1.3


def test_entries_that_do_not_ascend_are_not_the_journals() -> None:
    data, index = segment(600)
    raw = bytearray(index.encode())
    raw[-2 * ENTRY_LEN :] = raw[-ENTRY_LEN:] + raw[-2 * ENTRY_LEN : -ENTRY_LEN]
    raw[8:12] = crc32c(bytes(raw[12:])).to_bytes(4, "little")
    report, _ = verified(data, bytes(raw))
    last = int.from_bytes(raw[-2 * ENTRY_LEN + 8 :][:8], "little")  # it comes before its turn
    [found] = report.findings
    assert (found.code, found.position) == (Code.I005, last)
    assert found.sentence == f"its entries of a queue go back behind that at {last}"
