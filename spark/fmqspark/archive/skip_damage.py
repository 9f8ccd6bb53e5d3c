"""Find what no replica can give of a unit, batch by batch, so that the rest is archived.

Used only for a unit whose reading has failed. A batch that no replica has good is found by any good
header: that shows where the next one begins. Where the header is what is damaged, an index shows
that; without one all behind is out of reach, up to where another replica ends. Leaves nothing on
disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

from fmqcore.errors import CorruptJournal, FmqError, NewerJournal
from fmqcore.ids import Position
from fmqcore.journal.index import SegmentIndex
from fmqcore.scan.headers import HeaderScan, ScanRange
from fmqcore.scan.selection import Range, places_in_headers, places_in_index
from fmqspark.archive.ledger import Unit
from fmqspark.source.access import index_bytes, open_bytes
from fmqspark.source.arrow import record_batch, stored
from fmqspark.source.files import Throttle
from fmqspark.source.splits import Split, SplitReader, Tally

MOST: Final = 100
"""Maximum places of one unit that are looked for at a time; a later run looks behind them."""


class Bad(NamedTuple):
    """A range, and why no replica can give it."""

    unit: Unit
    why: FmqError | OSError


def around(unit: Unit, bad: Sequence[Bad]) -> list[Unit]:
    """Return what is left of a unit, in journal order."""
    edges = [unit.begin, *(edge for each in bad for edge in each.unit), unit.end]
    return [Unit(begin, end) for begin, end in list(pairwise(edges))[::2] if begin < end]


def part(splits: Sequence[Split], unit: Unit) -> tuple[Split, ...]:
    """Return the parts of splits that lie in a unit; where that begins, a batch does."""
    return tuple(
        replace(
            split,
            begin=Position(max(split.begin, unit.begin)),
            end=Position(min(split.end, unit.end)),
            known=Position(max(split.known, unit.begin)),
        )
        for split in splits
        if split.begin < unit.end and split.end > unit.begin
    )


def _from(split: Split, at: int) -> Split:
    """Return the part of a split that begins at `at`, where a batch does, or later."""
    at = Position(at)
    return replace(split, begin=at, known=at) if at > split.begin else split


class Search:
    """Finds what no replica can give of a unit's splits; `find` raises what is not damage."""

    def __init__(
        self, unit: Unit, columns: tuple[str, ...], throttle: Throttle, tally: Tally
    ) -> None:
        self._unit = unit
        self._columns = columns
        self._throttle = throttle
        self._tally = tally

    def find(self, splits: Sequence[Split]) -> list[Bad]:
        """Return bad ranges, ascending and joined, each as small as any replica's headers allow."""
        found: list[Bad] = []
        for number, bad in enumerate(self._each(splits)):
            last = found[-1] if found else None
            if number == MOST:
                bad = Bad(Unit(bad.unit.begin, self._unit.end), _too_many(bad.why))
            if last is not None and last.unit.end >= bad.unit.begin:
                found[-1] = last._replace(unit=Unit(last.unit.begin, bad.unit.end))
            else:
                found.append(bad)
            if number == MOST:
                break
        return found

    def _each(self, splits: Sequence[Split]) -> Iterator[Bad]:
        for split in splits:
            at: int = split.begin
            while at < split.end and (bad := self._first(_from(split, at))) is not None:
                yield bad
                at = bad.unit.end

    def _first(self, split: Split) -> Bad | None:
        """Return the first bad range; None if all can be read."""
        at, why = self._read(split)
        if why is None:
            return None
        place = self._place(_from(split, at))
        return Bad(place, why) if place.begin < place.end else None  # else it can be read by now

    def _read(self, split: Split) -> tuple[int, CorruptJournal | OSError | None]:
        """Return how far a split can be read at least, and why not to its end."""
        reader = SplitReader(split, stored(self._columns), self._throttle, self._tally)
        at: int = split.begin
        try:
            for slab in reader:
                record_batch(slab, self._columns, reader.names)
                at = slab.headers.column("position")[-1] + slab.headers.column("total_len")[-1]
        except NewerJournal:  # no damage: nothing may be left out
            raise
        except (CorruptJournal, OSError) as error:
            return at, error
        return at, None

    def _place(self, split: Split) -> Unit:
        """Return the first batch that no replica gives; of several that were read as one, any."""
        reached: int = split.begin
        for source in split.sources:
            place, end = self._by_headers(split, source)
            if place is not None:
                return place
            reached = max(reached, end)
        for source in split.sources:
            place = self._by_index(split, source, reached)
            if place is not None:
                return place
        return Unit(reached, max(reached, split.end))

    def _by_headers(self, split: Split, source: str) -> tuple[Unit | None, int]:
        """Return the bad batch, by its own header; and how far the headers are good."""
        base, reached = split.segment.base, split.begin
        wanted = replace(split.wanted, positions=Range(split.begin, split.end))
        with (
            suppress(FmqError, OSError),
            open_bytes(source, base, self._throttle, split.until, split.end) as data,
        ):
            scan = HeaderScan(data.read, ScanRange(split.segment, split.known, split.end))
            try:
                for block in scan:
                    place = self._failing(
                        split, zip(*places_in_headers(block, wanted), strict=True)
                    )
                    if place is not None:
                        return place, reached
            finally:
                reached = max(scan.position, reached)
                self._tally.bytes_read += data.bytes_read
        return None, reached

    def _by_index(self, split: Split, source: str, at: int) -> Unit | None:
        """Return the bad batch, by an index; or what lies before the next batch that this names."""
        try:
            index = SegmentIndex.decode(index_bytes(source, split.segment.base) or b"")
        except (FmqError, OSError):
            return None
        wanted = replace(split.wanted, positions=Range(at, split.end))
        places = list(zip(*places_in_index(index, wanted), strict=True))
        behind = [begin for begin, _ in places if begin > at]
        return self._failing(split, places) or (Unit(at, behind[0]) if behind else None)

    def _failing(self, split: Split, places: Iterable[tuple[int, int]]) -> Unit | None:
        """Return the first of these batches that cannot be read alone."""
        for begin, length in places:
            at, end = Position(begin), Position(begin + length)
            alone = replace(split, begin=at, end=end, known=at)
            if self._read(alone)[1] is not None:
                return Unit(begin, end)
        return None


def _too_many(why: FmqError | OSError) -> FmqError | OSError:
    message = f"{why}; before it {MOST} batches of the unit are damaged, so the next run goes on"
    return OSError(message) if isinstance(why, OSError) else CorruptJournal(message)
