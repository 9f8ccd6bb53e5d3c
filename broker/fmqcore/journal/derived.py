"""The seam of derived indexes: what finds batches without reading the journal. Pure.

An index is derived from the headers of the stored batches alone (what a payload means is state: a
row of `kinds.py`). It has one part for each segment:

    begin ── add each header ──> part ── encoding ──> `<base>.<suffix>` ── restore ──> part

The catalog (`fmqbroker/journal/catalog.py`) does this for all indexes alike: it begins a part when
a segment begins, stores it when the segment is full and durable, builds it again from the segment
after a start, a truncation, or a lost file, and drops it with the segment. Retention keeps
a segment while any index has a low watermark there.

A new index is a class like `QueueIndex`, passed to `Journal.open`.
"""

from typing import Final, Protocol, TypeVar

from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader
from fmqcore.ids import Position
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.segments import INDEX
from fmqcore.turns import Turns


class Part(Protocol):
    """One index of one segment, in memory. `end`: positions below it are indexed."""

    base: Position
    end: Position

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the index takes, roughly."""
        ...

    def add(self, header: BatchHeader) -> None:
        """Apply the next batch of any kind, and move `end` to its end. Called for every batch."""
        ...

    def encoding(self) -> Turns[bytes]:
        """Return the encoded part of a full segment, in pieces; the part no longer grows."""
        ...


P = TypeVar("P", bound=Part)


class DerivedIndex(Protocol[P]):
    """One index over all segments of a journal."""

    @property
    def suffix(self) -> str:
        """The ending of the files' names: lower-case letters, different for each index."""
        ...

    @property
    def holds_retention(self) -> bool:
        """Whether this index has low watermarks, which retention must read."""
        ...

    def begin(self, base: Position) -> P:
        """Return the empty part of a segment."""
        ...

    def restore(self, data: Buffer) -> Turns[P]:
        """Decode a part's snapshot, in pieces. Raises `Malformed`: the part is then rebuilt."""
        ...

    def low_watermark(self, part: P, /) -> Position | None:
        """Return the lowest position in that segment whose batch is still needed; None: none is."""
        ...


class QueueIndex:
    """Offsets and times of each queue to positions."""

    suffix: Final = INDEX
    holds_retention: Final = False

    def begin(self, base: Position) -> SegmentIndex:
        """See `DerivedIndex`."""
        return SegmentIndex(base)

    def restore(self, data: Buffer) -> Turns[SegmentIndex]:
        """See `DerivedIndex`."""
        return SegmentIndex.decoding(data)

    def low_watermark(self, _part: SegmentIndex, /) -> Position | None:
        """See `DerivedIndex`: a batch that retention deletes needs no index."""
        return None


QUEUE_INDEX: Final = QueueIndex()
"""The index that every journal has."""
