"""Read splits, the ranges of segments that tasks read (`planning` makes them).

A split reads only batches that can match. In a full segment it finds them by the segment's index,
if that index names all that it must according to the SNAPs on both sides, else by the headers. An
index is derived: where it leads to a batch other than the one that it names, the headers decide. If
one replica's bytes are damaged or gone, the next replica goes on where that one ended. What no
replica can give is an error, never fewer rows.

A driver holds all splits at once, so no split carries tables of many queues or topics: its reader
takes them from the SNAPs.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import gt
from typing import Final, NamedTuple

from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import CorruptJournal, FmqError, Malformed, NewerJournal, NotFound
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.scan import Fault
from fmqcore.journal.segments import Segment, segment_name
from fmqcore.scan.headers import HeaderScan, ScanRange
from fmqcore.scan.payloads import PayloadScan, Slab, damaged
from fmqcore.scan.selection import (
    Places,
    Range,
    Wanted,
    index_is_whole,
    places_in_headers,
    places_in_index,
)
from fmqspark.source.access import Bytes, first_of, index_bytes, open_bytes
from fmqspark.source.brokers import Patience, gone, is_broker
from fmqspark.source.files import Throttle
from fmqspark.source.snaps import read_snap, topic_names_in

_HEADER_COLUMNS: Final = (
    *("topic_id", "queue_id", "position", "total_len"),
    *("base_offset", "record_count", "store_ms"),
)
"""Header columns that an index also holds."""
_U32: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Split:
    """The batches of one segment that begin in [begin, end). Small and picklable."""

    segment: Segment
    begin: Position
    end: Position
    known: Position  # where a batch begins, at or before `begin`: from there on headers are read
    sources: tuple[str, ...]
    wanted: Wanted
    tables: "Tables | None"  # None: they are many
    open: bool  # the newest segment, which is not full
    until: Position  # how far the segment may be read, from all of the sources
    behind: Position  # and the one behind it; 0: there is none
    partly: tuple[
        tuple[str, Position], ...
    ]  # replicas that hold it up to there, and may have a name
    closing: int | None = None  # its last batch's header CRC, by the segment that follows


class Tables(NamedTuple):
    """Names and next offsets of what is wanted, from the SNAPs at both ends of a segment."""

    names: dict[TopicId, str]
    before: dict[QueueKey, Offset]
    after: dict[QueueKey, Offset]


@dataclass(slots=True)
class Tally:
    """The cost of reading."""

    bytes_read: int = 0
    batches: int = 0
    records: int = 0


class SplitReader:
    """Iterate over the slabs of a split.

    Raises `CorruptJournal`, `NotFound`, `Unavailable`, `OSError`. `names`: the topics; one that the
    journal forgot within this segment has its number. `times`: the slab size as a multiple of the
    usual size.
    """

    def __init__(
        self,
        split: Split,
        columns: tuple[str, ...],
        throttle: Throttle,
        tally: Tally | None = None,
        times: int = 1,
    ) -> None:
        self.names = dict(split.tables.names) if split.tables else {}
        self._split = split
        self._columns = columns
        self._throttle = throttle
        self._tally = tally if tally is not None else Tally()
        self._times = times
        self._good_to = split.begin

    def __iter__(self) -> Iterator[Slab]:
        patience = Patience()
        while True:
            failures: list[Exception] = []
            good_before = self._good_to
            for source in self._split.sources:
                begin = self._good_to
                try:
                    yield from self._from(source)
                except (FmqError, OSError) as error:
                    failures.append(error)
                else:
                    return
                if self._good_to > begin:
                    patience.progress()
            # A source that failed before another one went on may have what that one lacks.
            if self._good_to == good_before and not patience.again(failures):
                raise self._failure(failures) from failures[0]

    def _failure(self, failures: list[Exception]) -> Exception:
        """Return the error to raise when no source could give what is left."""
        first, source = failures[0], self._split.sources[0]
        if is_broker(source):
            return gone(self._good_to, self._split.end, failures)
        if isinstance(first, FileNotFoundError):
            return NotFound(
                f"{first.filename} is gone: retention removed it while it was to be read; run again"
            )
        if isinstance(first, OSError):
            return OSError(first.errno, first.strerror, f"{source}/{self._name}")
        kind = NewerJournal if isinstance(first, NewerJournal) else CorruptJournal
        return kind(f"{source}/{first}")

    @property
    def _name(self) -> str:
        return segment_name(self._split.segment.base)

    def _from(self, source: str) -> Iterator[Slab]:
        split = self._split
        until = split.end if split.open else split.until
        with open_bytes(source, split.segment.base, self._throttle, until, split.end) as data:
            try:
                tables = split.tables or self._tables_of(source)
                index = self._index(source, tables) if tables and not split.open else None
                if index is not None:
                    self._look_at_end(data, index)
                    with suppress(CorruptJournal):  # the segment's fault, or only its index's
                        yield from self._payloads(
                            data, places_in_index(index, self._wanted()), index
                        )
                        return
                for places in self._places(data):
                    yield from self._payloads(data, places)
            finally:
                self._tally.bytes_read += data.bytes_read

    def _payloads(
        self, data: Bytes, places: Places, index: SegmentIndex | None = None
    ) -> Iterator[Slab]:
        scan = PayloadScan(data.read, self._split.segment.base, places, self._columns, self._times)
        for slab in scan:
            if index is not None:
                self._hold_against(index, slab)
            self._know(data, slab)
            self._tally.batches += slab.batches
            self._tally.records += slab.records
            self._good_to = scan.good_to
            yield slab

    def _hold_against(self, index: SegmentIndex, slab: Slab) -> None:
        """Raise `CorruptJournal` for a batch that is not the one that the index names there.

        Each such batch has good checksums: it may be another queue's, or come twice.
        """
        end = self._good_to
        rows = zip(*map(slab.headers.column, _HEADER_COLUMNS), strict=True)
        for topic, queue, at, length, base, count, ms in rows:
            bases, positions, sizes, store_ms, _ = index.columns((TopicId(topic), queue))
            i = bisect_left(positions, at)
            if (
                at < end
                or i == len(positions)
                or (positions[i], bases[i], store_ms[i]) != (at, base, ms)
                or sizes[i] != length | count << 32
            ):
                raise damaged(index.base, Position(at), "its index names another batch")
            end = Position(at + length)

    def _wanted(self) -> Wanted:
        """Return `wanted` without the positions that were read already."""
        here = self._split.wanted.positions.cut(Range(self._good_to, self._split.end))
        return replace(self._split.wanted, positions=here)

    def _places(self, data: Bytes) -> Iterator[Places]:
        """Yield the places of the wanted batches that were not read yet, by the headers."""
        split, wanted = self._split, self._wanted()
        begin = self._good_to if self._good_to > split.begin else split.known
        scan = HeaderScan(data.read, ScanRange(split.segment, begin, split.end))
        for block in scan:
            yield places_in_headers(block, wanted)
        require_all(scan, split.end)
        self._require_closing(scan)

    def _look_at_end(self, data: Bytes, index: SegmentIndex) -> None:
        """Raise `CorruptJournal` if the segment's last batch belongs to another journal.

        What an index leads to may be whole, and of another journal.
        """
        split = self._split
        if split.closing is None or split.end < split.segment.end:
            return
        lasts = (places[-1] for key in index.queues() if (places := index.columns(key)[1]))
        begin = Position(max(lasts, default=split.segment.base))
        scan = HeaderScan(data.read, ScanRange(split.segment, begin, split.segment.end))
        with suppress(FmqError, OSError):  # reported by the reader that needs it
            for _ in scan:
                pass
        self._require_closing(scan)

    def _require_closing(self, scan: HeaderScan) -> None:
        """Raise `CorruptJournal` if the segment behind this one follows another batch."""
        closing, end = self._split.closing, self._split.segment.end
        if scan.position < end or closing is None or scan.last_crc is None:
            return
        if scan.last_crc != closing:
            why = f"it is not what the segment at {end} follows: one of them is not of here"
            raise damaged(scan.segment.base, scan.segment.base, why)

    def _tables_of(self, source: str) -> Tables | None:
        """Return the SNAPs' tables; None if the SNAP behind the segment cannot be read here.

        Without the segment's own SNAP there are no names: raises what reading that one raises.
        """
        split, takes = self._split, self._split.wanted.takes
        others = [each for each in split.sources if each != source]
        own = first_of(
            (source, *others), lambda each: read_snap(each, split.segment.base, split.until)
        )
        self.names |= own.names
        if not split.behind:
            return None
        try:
            behind = read_snap(source, split.segment.end, split.behind)
        except (FmqError, OSError):
            return None
        before, after = (
            {key: end for key, end in snap.next_offsets.items() if takes(key)}
            for snap in (own, behind)
        )
        return Tables(own.names, before, after)

    def _index(self, source: str, tables: Tables) -> SegmentIndex | None:
        """Return the segment's index if it can be relied upon, else None.

        The headers hold the same.
        """
        split = self._split
        try:
            raw = index_bytes(source, split.segment.base)
        except OSError:  # of a directory; a broker's failure is another
            raw = None
        if raw is None:
            return None
        self._tally.bytes_read += len(raw)
        self._throttle.read(len(raw))
        try:
            index = SegmentIndex.decode(raw)
        except Malformed:
            return None
        keys = {key for key in index.queues() if split.wanted.takes(key)} | tables.after.keys()
        if index.base != split.segment.base:
            return None
        if any(_overlap(index, key) for key in keys):
            return None
        return index if index_is_whole(index, keys, tables.before, tables.after) else None

    def _know(self, data: Bytes, slab: Slab) -> None:
        """Learn the names of all topics of a slab."""
        unknown = {TopicId(i) for i in set(slab.headers.column("topic_id"))} - self.names.keys()
        if not unknown:
            return
        split, failed = self._split, None
        try:
            self._learn(data, split.end)
        except CorruptJournal as error:
            failed = error
        for source, end in split.partly:
            if unknown - self.names.keys():
                with (
                    suppress(FmqError, OSError),
                    open_bytes(source, split.segment.base, self._throttle, end) as other,
                ):
                    self._learn(other, end)
        for topic_id in unknown - self.names.keys():
            if failed is not None:
                raise failed  # another replica may have its name
            self.names[topic_id] = f"#{topic_id}"

    def _learn(self, data: Bytes, end: Position) -> None:
        """Learn the topics that are named below `end`, or as far as the headers are good."""
        segment = self._split.segment
        scan = HeaderScan(data.read, ScanRange(segment, segment.base, end))
        for block in scan:
            if BatchType.CONFIG in block.column("type"):
                self.names |= topic_names_in(data.read, segment.base, block)
        require_all(scan, end)


def require_all(scan: HeaderScan, end: Position, of: str = "") -> None:
    """Raise `CorruptJournal` if the scan ended before `end`; `of`: whose bytes they are."""
    if scan.position < end:
        why = scan.stop if isinstance(scan.stop, Fault) else "there are no bytes"
        raise damaged(scan.segment.base, scan.position, why, of)


def _overlap(index: SegmentIndex, key: QueueKey) -> bool:
    """Whether two entries of an index overlap: then it lacks the entry of another batch."""
    _, positions, sizes, _, _ = index.columns(key)
    ends = (at + (size & _U32) for at, size in zip(positions, sizes, strict=True))
    return any(map(gt, ends, positions[1:]))
