"""Merge, compare, thin and split tables of progress entries. Pure.

`fmqcore.batch.offset_entry` (`merge`) defines which of two entries wins: the higher version, then
the higher floor, then the more ranges; a total order. Versions of a later epoch are higher than all
of an earlier one (`next_version`).
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import islice
from typing import Final

from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, QueueKey, merge, next_version
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.ids import Epoch, Offset
from fmqcore.turns import PIECE, Turns

Entries = dict[OffsetKey, OffsetEntry]

_ENTRY_BYTES: Final = 64
"""Upper bound of an encoded entry without its group's name and its ranges."""
_RANGE_BYTES: Final = 16


def merged(*tables: Mapping[OffsetKey, OffsetEntry]) -> dict[OffsetKey, OffsetEntry]:
    """Return all tables merged into one, sorted by key: for small tables (`merging`)."""
    result: Entries = {}
    for table in tables:
        merge(result, table)
    return dict(sorted(result.items()))


def pieces_of(table: Mapping[OffsetKey, OffsetEntry], most: int = PIECE) -> Iterator[Entries]:
    """Yield the table in pieces of at most `most` entries; none is empty.

    A `ProgressTable` may change between two pieces: each entry is as it is when its piece is
    yielded, one that is gone by then is left out, and so may be one that was added.
    """
    keys = table.by_topic() if isinstance(table, ProgressTable) else iter(table)
    while some := list(islice(keys, most)):
        if piece := {key: entry for key in some if (entry := table.get(key)) is not None}:
            yield piece


def merging(
    into: MutableMapping[OffsetKey, OffsetEntry], *tables: Mapping[OffsetKey, OffsetEntry]
) -> Turns[bool]:
    """Merge `tables` into `into` in pieces; return whether that changed anything.

    Both may change meanwhile if they are of the type `ProgressTable`: merging in any order gives
    the same.
    """
    changed = False
    for table in tables:
        for piece in pieces_of(table):
            changed = bool(merge(into, piece)) or changed
            yield
    return changed


def news_for(
    table: Mapping[OffsetKey, OffsetEntry], more: Mapping[OffsetKey, OffsetEntry]
) -> Entries:
    """Return the entries of `more` that `table` lacks or that win over its own, in their order."""
    return {k: e for k, e in more.items() if (held := table.get(k)) is None or e > held}


def within(
    table: Mapping[OffsetKey, OffsetEntry],
    next_offsets: Mapping[QueueKey, Offset],
    term: Epoch,
) -> Entries:
    """Return `table` limited to a journal that ends there: progress on missing messages is void.

    Otherwise the messages that get those offsets next would count as done, and no consumer would
    ever get them. The progress counts from here on, as after a seek, because acks that no broker
    has stored yet may be for missing messages. Repeated in one `term` the result is the same.
    """
    first = next_version(None, term)
    return {
        key: entry
        if entry.deleted or entry.seek_number >= first
        else _cut(entry, next_offsets.get((key.topic_id, key.queue_id), Offset(0)), term)
        for key, entry in table.items()
    }


def shortened(
    table: Mapping[OffsetKey, OffsetEntry],
    next_offsets: Mapping[QueueKey, Offset],
    term: Epoch,
) -> dict[OffsetKey, OffsetEntry]:
    """Return `table` with the entries that reach beyond the journal's end limited to it.

    For a journal that is shorter than it was, although no reader is known to have served more. An
    entry at or below the end is about messages that are there: it stays as it is.
    """
    found = {}
    for key, entry in table.items():
        end = next_offsets.get((key.topic_id, key.queue_id), Offset(0))
        reach = max(entry.floor, entry.ranges[-1][1] if entry.ranges else entry.floor)
        found[key] = entry if entry.deleted or reach <= end else _cut(entry, end, term)
    return found


def _cut(entry: OffsetEntry, end: Offset, term: Epoch) -> OffsetEntry:
    version = next_version(entry, term)
    ranges = tuple((at, min(to, end)) for at, to in entry.ranges if at < end)
    return OffsetEntry(version, min(entry.floor, end), ranges, version, entry.start_number)


def thinned(table: Mapping[OffsetKey, OffsetEntry]) -> dict[OffsetKey, OffsetEntry]:
    """Return `table` without ranges above the floors: smaller, at the cost of duplicates."""
    return {key: entry._replace(ranges=()) for key, entry in table.items()}


def size_of(key: OffsetKey, entry: OffsetEntry) -> int:
    """Return the most bytes that an encoded entry takes."""
    return _ENTRY_BYTES + len(key.group.encode()) + _RANGE_BYTES * len(entry.ranges)


def cut_up(
    table: Iterable[tuple[OffsetKey, OffsetEntry]], max_bytes: int
) -> Iterator[dict[OffsetKey, OffsetEntry]]:
    """Yield parts that encode to at most `max_bytes` each, but have at least one entry."""
    part: dict[OffsetKey, OffsetEntry] = {}
    size = 0
    for key, entry in table:
        length = size_of(key, entry)
        if part and size + length > max_bytes:
            yield part
            part, size = {}, 0
        part[key] = entry
        size += length
    if part:
        yield part
