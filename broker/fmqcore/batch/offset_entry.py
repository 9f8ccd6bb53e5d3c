"""Consumer progress: its key, its entry, which of two entries wins, and their encoding. Pure.

Not here: the OFFSETS payload (`control.py`) and the table as of a position (`state.py`).
"""

from collections.abc import Mapping, MutableMapping
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.fields import Fields, encode_name
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Offset, TopicId

QueueKey = tuple[TopicId, int]
"""(topic, queue)"""

TOMBSTONE_FLOOR: Final = Offset(2**64 - 1)
"""The floor of a deleted entry: no record can have this offset."""

MAX_RANGES: Final = 65_536
"""Most ranges of one entry."""

_KEY: Final = Struct("<IH")
_ENTRY: Final = Struct("<QQI")
_RANGE: Final = Struct("<QQ")
MIN_ENTRY_BYTES: Final = 2 + _KEY.size + _ENTRY.size
"""The smallest encoded entry: a name of one letter, no ranges."""
_SEEK: Final = Struct("<Q")
_START: Final = Struct("<Q")
_HAS_SEEK: Final = 1 << 31
"""A flag in the count of ranges: the version of the last seek follows the ranges."""
_HAS_START: Final = 1 << 30
"""Another one: the start number follows, after the seek if both are there."""
_COUNT: Final = _HAS_START - 1
_VERSION_EPOCH_SHIFT: Final = 32
_RANGES_A_STEP: Final = 16
"""Ranges of an entry that take as long as an entry without any."""


class OffsetKey(NamedTuple):
    """The consumer group, topic and queue of an entry."""

    group: str  # consumer group
    topic_id: TopicId
    queue_id: int


class OffsetEntry(NamedTuple):
    """A consumer group's progress in one queue.

    `version` rises at every change; of two entries the higher version wins, so that a seek
    backwards survives a merge and a stale record never overwrites a newer one. `next_version` makes
    it: versions made in a later epoch are higher than all of an earlier one, so what a reader in
    slave-consume stores always wins over what its lost master had stored last.

    A deleted entry stays as a tombstone (`tombstone`, `deleted`): floor 2**64 - 1, no ranges, so
    that an older record merged in later does not bring it back. It leaves SNAP a day later.

    `seek_number` is the seek since which this progress counts: with it a consumer that was away
    recognises, on any reader, whether its earlier acks still count.

    `start_number`, on an ordered topic: the start in the chain since which it counts (K18). Another
    broker group may have made the subscription again, or moved it: then this entry is void.
    """

    version: int
    floor: Offset  # everything below is done
    ranges: tuple[tuple[Offset, Offset], ...] = ()  # done above it: [first, end), ascending
    seek_number: int = 0  # the version that the last seek (or deletion) made; 0 = none so far
    start_number: int = 0  # `fmqcore.zk.chain.Chain.start_numbers`; 0 on an ordinary topic

    @property
    def deleted(self) -> bool:
        """Whether this is a tombstone: treat it as no entry, but keep its version."""
        return self.floor == TOMBSTONE_FLOOR


def cost_of(entry: OffsetEntry) -> int:
    """Return the time to encode or decode the entry, in entries without ranges."""
    return 1 + len(entry.ranges) // _RANGES_A_STEP


def next_version(entry: OffsetEntry | None, epoch: Epoch) -> int:
    """Return the version of the change that follows `entry`, made in `epoch` (C3)."""
    return max(entry.version + 1 if entry else 1, epoch << _VERSION_EPOCH_SHIFT)


def version_epoch(version: int) -> Epoch:
    """Return the epoch in which that version was made."""
    return Epoch(version >> _VERSION_EPOCH_SHIFT)


def tombstone(version: int) -> OffsetEntry:
    """Return a deleted entry."""
    return OffsetEntry(version, TOMBSTONE_FLOOR)


def merge(
    into: MutableMapping[OffsetKey, OffsetEntry], entries: Mapping[OffsetKey, OffsetEntry]
) -> list[OffsetKey]:
    """Merge the winning `entries` into `into`; return the keys that changed.

    The higher version wins, then the higher floor, then the more ranges: a total order, so that
    merging in any order, any number of times, gives the same.
    """
    changed = []
    for key, entry in entries.items():
        old = into.get(key)
        if old is None or entry > old:
            into[key] = entry
            changed.append(key)
    return changed


def encode_entry(key: OffsetKey, entry: OffsetEntry) -> bytes:
    """Encode one key and its entry; raise `Malformed` for ranges that do not rise."""
    flat = (entry.floor, *chain.from_iterable(entry.ranges))
    _check_ranges(flat, f"progress of {key.group} in topic {key.topic_id} queue {key.queue_id}")
    return b"".join(
        (
            encode_name(key.group),
            _KEY.pack(key.topic_id, key.queue_id),
            _ENTRY.pack(
                entry.version,
                entry.floor,
                len(entry.ranges)
                | (_HAS_SEEK if entry.seek_number else 0)
                | (_HAS_START if entry.start_number else 0),
            ),
            Struct(f"<{len(flat) - 1}Q").pack(*flat[1:]),
            _SEEK.pack(entry.seek_number) if entry.seek_number else b"",
            _START.pack(entry.start_number) if entry.start_number else b"",
        )
    )


def decode_entry(fields: Fields) -> tuple[OffsetKey, OffsetEntry]:
    """Decode one key and its entry; raise `Malformed`."""
    group = fields.name()
    topic_id, queue_id = fields.take(_KEY)
    version, floor, count = fields.take(_ENTRY)
    ranges = tuple((Offset(a), Offset(b)) for a, b in fields.many(_RANGE, count & _COUNT))
    (seek_number,) = fields.take(_SEEK) if count & _HAS_SEEK else (0,)
    (start_number,) = fields.take(_START) if count & _HAS_START else (0,)
    key = OffsetKey(group, TopicId(topic_id), queue_id)
    _check_ranges((floor, *chain.from_iterable(ranges)), f"progress {key}")
    if seek_number > version or (count & _HAS_SEEK and not seek_number):
        raise Malformed(f"progress {key} of version {version} counts since seek {seek_number}")
    if count & _HAS_START and not start_number:
        raise Malformed(f"progress entry {key} has no number of the start from which it counts")
    return key, OffsetEntry(version, Offset(floor), ranges, seek_number, start_number)


def _check_ranges(flat: tuple[int, ...], what: str) -> None:
    if len(flat) > 2 * MAX_RANGES + 1:
        raise Malformed(f"{what} has {len(flat) // 2} ranges, at most {MAX_RANGES}")
    if list(flat) != sorted(flat):
        raise Malformed(f"{what} has ranges that do not rise above its floor")
