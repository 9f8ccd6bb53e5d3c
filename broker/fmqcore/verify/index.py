"""Compare a segment's index file with the segment's headers. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from hashlib import blake2b
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.findings import REMADE_AT_START, Code, Finding, Severity, warning
from fmqcore.journal.index import ENTRY_LEN, IndexEntry, IndexFile, SegmentIndex
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.scan import Readable
from fmqcore.journal.segments import index_name

_REMEDY: Final = "stop the broker and remove the index file: it is rebuilt at the next start"
_OTHER_QUEUES: Final = "its queues are not those of the journal"
_FEW: Final = 4096
_DIGEST_LEN: Final = 16


class IndexState(Enum):
    """The state of a segment's index file."""

    OK = "ok"
    NONE = "-"  # the newest segment needs none
    MISSING = "missing"
    UNREADABLE = "unreadable"
    DIFFERS = "differs"


class _Report(Protocol):
    file: SegmentFile
    sealed: bool
    index: IndexState
    findings: list[Finding]


class BuiltIndex:
    """What a segment's index must hold, built from its headers: for each queue the number of
    entries and their digest. Keeps at most a few thousand entries, however many there are.
    """

    def __init__(self, base: Position) -> None:
        self.base = base
        self.end = base
        self._few = SegmentIndex(base)
        self._room = _FEW
        self._queues: dict[QueueKey, _Entries] = {}

    def add(self, header: BatchHeader) -> None:
        """Add the next batch's header."""
        self.end = header.end
        self._few.add(header)
        self._room -= 1
        if not self._room:
            self._fold()

    def is_in(self, file: IndexFile) -> bool:
        """Whether the index file holds exactly these entries."""
        self._fold()
        summary = {key: entries.summary for key, entries in self._queues.items()}
        return (file.base, file.end) == (self.base, self.end) and summary == _queues(file)

    def _fold(self) -> None:
        for key in self._few.queues():
            self._queues.setdefault(key, _Entries()).add(self._few.packed(key))
        self._few, self._room = SegmentIndex(self.base), _FEW


class _Summary(NamedTuple):
    """The number of entries of one queue, and their digest."""

    entries: int
    digest: bytes


class _Entries:
    """Counts and hashes the entries of one queue."""

    def __init__(self) -> None:
        self._length = 0
        self._hash = blake2b(digest_size=_DIGEST_LEN)

    def add(self, packed: bytes) -> None:
        self._length += len(packed)
        self._hash.update(packed)

    @property
    def summary(self) -> _Summary:
        return _Summary(self._length // ENTRY_LEN, self._hash.digest())


def check_index(
    report: _Report,
    built: BuiltIndex,
    raw: Readable | None,
    headers: Iterable[BatchHeader],
    *,
    pending: bool = False,
) -> None:
    """Set `report.index` and add findings. `built` is from the segment's headers; `headers` are the
    same again, iterated over if the file is not exactly what it must be.

    `pending`: a running broker may not have written the file yet.
    """
    name = index_name(report.file.base)
    if raw is None:
        if report.sealed and not pending:
            report.index = IndexState.MISSING
            sentence = "the file is missing"
            report.findings.append(warning(Code.I001, name, None, sentence, REMADE_AT_START))
        return
    try:
        stored = IndexFile(raw)
    except Malformed as bad:
        report.index = IndexState.UNREADABLE
        report.findings.append(warning(Code.I002, name, None, str(bad), REMADE_AT_START))
        return
    found = _difference(stored, built, headers, sealed=report.sealed)
    report.index = IndexState.DIFFERS if found else IndexState.OK
    if found:
        code, position, sentence = found
        report.findings.append(Finding(code, Severity.ERROR, name, position, sentence, _REMEDY))


_Difference = tuple[Code, Position | None, str]


def _difference(
    stored: IndexFile, built: BuiltIndex, headers: Iterable[BatchHeader], *, sealed: bool
) -> _Difference | None:
    if stored.base != built.base:
        return Code.I005, None, f"it is of the segment at {stored.base}"
    if sealed and stored.end < built.end:
        return Code.I003, stored.end, f"it ends there, its segment at {built.end}"
    if sealed and stored.end > built.end:
        return Code.I004, built.end, f"its segment ends there, it goes on to {stored.end}"
    if built.is_in(stored):
        return None
    if sealed:
        return _entry_by_entry(stored, headers) or (Code.I005, None, _OTHER_QUEUES)
    # One may be behind the other: only the range that both cover counts.
    return _entry_by_entry(stored, headers, min(stored.end, built.end))


def _queues(stored: IndexFile) -> dict[QueueKey, _Summary]:
    summary = {}
    for key, at, length in stored.queues:
        entries = _Entries()
        for piece in stored.packed(at, length):
            entries.add(piece)
        summary[key] = entries.summary
    return summary


def _entry_by_entry(
    stored: IndexFile, headers: Iterable[BatchHeader], end: Position | None = None
) -> _Difference | None:
    """Compare both in journal order, up to `end`; return the first difference by kind."""
    wanted: Iterator[_Side] = (
        (h.position, True, (h.topic_id, h.queue_id), _entry(h))
        for h in headers
        if h.type == BatchType.DATA
    )
    sides = [wanted, *(_side(stored, *queue) for queue in stored.queues)]
    total, counts, first = 0, Counter[Code](), dict[Code, Position]()
    try:
        for position, group in groupby(merge(*sides, key=_position), key=_position):
            if end is not None and position >= end:
                break
            of_both = list(group)
            must = [side[2:] for side in of_both if side[1]]
            have = [side[2:] for side in of_both if not side[1]]
            total += len(must)
            if have != must:
                # An excess entry may be for an existing batch, beside that batch's own entry.
                more = all(entry in have for entry in must)
                code = Code.I003 if not have else Code.I004 if more else Code.I005
                counts[code] += 1
                first.setdefault(code, position)
    except _OutOfOrderError as bad:
        return (
            Code.I005,
            bad.position,
            f"its entries of a queue go back behind that at {bad.position}",
        )
    for code in sorted(counts, key=lambda code: code.name):
        return code, first[code], f"{code.value} ({counts[code]} of {total}; the first of them)"
    return None


_Side = tuple[Position, bool, QueueKey, IndexEntry]
"""A batch's position, whether it is from the journal, its queue, and its entry."""
_position: Final = itemgetter(0)


class _OutOfOrderError(Exception):
    """A queue's entries go back behind a position: they were not made from a journal."""

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.position = position


def _side(stored: IndexFile, key: QueueKey, at: int, length: int) -> Iterator[_Side]:
    before = Position(0)
    for entry in stored.entries(at, length):
        if entry.position < before:
            raise _OutOfOrderError(before)
        before = entry.position
        yield entry.position, False, key, entry


def _entry(header: BatchHeader) -> IndexEntry:
    return IndexEntry(
        header.base_offset,
        header.position,
        header.total_len,
        header.record_count,
        header.store_ms,
        header.tag_mask,
    )
