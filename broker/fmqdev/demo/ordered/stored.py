"""Look into a journal from outside: which offsets of a queue does it hold?

Reads segment files as bytes; parses batch headers only. Also of a broker that was killed: what it
wrote after the last whole batch is not looked at.
"""

from collections.abc import Iterator
from pathlib import Path

from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchHeader, BatchType, parse_header
from fmqcore.journal.segments import segment_base
from fmqinspect.files import DataDirectory, SegmentBytes


class StoredOffsets:
    """Offsets that a data directory holds of one queue, as half-open ranges."""

    def __init__(self, data: Path, topic_id: int, queue: int = 0) -> None:
        self._ranges: list[tuple[int, int]] = []
        for header in _headers(data):
            if (header.topic_id, header.queue_id) == (topic_id, queue):
                self._add(header.base_offset, header.end_offset)

    def _add(self, first: int, end: int) -> None:
        if self._ranges and self._ranges[-1][1] == first:
            first = self._ranges.pop()[0]
        self._ranges.append((first, end))

    def __contains__(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in self._ranges)


def _headers(data: Path) -> Iterator[BatchHeader]:
    """Yield the headers of message batches, in the order of the journal."""
    directory = DataDirectory(data)
    names = ((segment_base(name), name) for name, _ in directory.listing)
    for _, name in sorted((base, name) for base, name in names if base is not None):
        with directory.segment(name) as segment:
            yield from _headers_of(segment)


def _headers_of(segment: SegmentBytes) -> Iterator[BatchHeader]:
    at = 0
    while at + HEADER_LEN <= len(segment):
        try:
            header = parse_header(segment[at : at + HEADER_LEN])
        except BadBatch:
            return  # zeros, or a torn write: the end
        if header.type == BatchType.DATA:
            yield header
        at += header.total_len
