"""Progress entries by version: which of two wins, tables merged, thinned and cut up. Pure.

The higher version wins; of one version the higher floor, then the more ranges: a total order, so
merging may be done in any order, any number of times. Versions are made by
`fmqcore.journal.offsets.next_version`: those of a later epoch are higher than all earlier ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from fmqcore.journal.offsets import OffsetEntry, OffsetKey

_ENTRY_BYTES: Final = 64
"""More than an encoded entry takes besides its group's name and ranges."""
_RANGE_BYTES: Final = 16


def newer(one: OffsetEntry, other: OffsetEntry) -> bool:
    """Whether `one` wins over `other`; never both ways, and never over itself."""
    return tuple(one) > tuple(other)


def merge_into(table: dict[OffsetKey, OffsetEntry], more: Mapping[OffsetKey, OffsetEntry]) -> None:
    """Take in the entries of `more` that win."""
    for key, entry in more.items():
        held = table.get(key)
        if held is None or newer(entry, held):
            table[key] = entry


def merged(*tables: Mapping[OffsetKey, OffsetEntry]) -> dict[OffsetKey, OffsetEntry]:
    """All tables in one, sorted by key."""
    result: dict[OffsetKey, OffsetEntry] = {}
    for table in tables:
        merge_into(result, table)
    return dict(sorted(result.items()))


def news_for(
    table: Mapping[OffsetKey, OffsetEntry], more: Mapping[OffsetKey, OffsetEntry]
) -> dict[OffsetKey, OffsetEntry]:
    """The entries of `more` that `table` lacks or that win over its own, sorted by key."""
    found = {}
    for key, entry in sorted(more.items()):
        held = table.get(key)
        if held is None or newer(entry, held):
            found[key] = entry
    return found


def thinned(table: Mapping[OffsetKey, OffsetEntry]) -> dict[OffsetKey, OffsetEntry]:
    """Without what is done above the floors: smaller; costs duplicates, never records."""
    return {key: entry._replace(ranges=()) for key, entry in table.items()}


def size_of(key: OffsetKey, entry: OffsetEntry) -> int:
    """Bytes that an encoded entry takes at most."""
    return _ENTRY_BYTES + len(key.group.encode()) + _RANGE_BYTES * len(entry.ranges)


def cut_up(
    table: Iterable[tuple[OffsetKey, OffsetEntry]], max_bytes: int
) -> Iterator[dict[OffsetKey, OffsetEntry]]:
    """Parts that encode to at most `max_bytes` each (one entry at least)."""
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
