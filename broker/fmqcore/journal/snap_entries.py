"""The entries of consumer progress in a SNAP, and when tombstones leave it. Pure.

A roll must not walk over tombstones: a broker may delete a hundred thousand of them within an hour.
So they are kept by the hour of their deletion, and those of a whole hour leave SNAP together: after
a day and at most an hour more. A presence note is a tombstone, too; it stands with the group's
progress, so it does not leave before that, and no roll looks at it.

What a SNAP leaves out is *leaving*: the tables still have it until it is dropped in short turns. It
is in no later SNAP, and counts as absent: an entry for the same key replaces it whatever its
version. So each SNAP is of one moment, and a broker that drops late agrees with one that decodes
the SNAP.
"""

from collections.abc import Mapping, Set
from typing import Final

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets.packed_entries import BlockKey, PackedOffsets
from fmqcore.turns import Turns

PRESENCE_QUEUE: Final = 0xFFFF
"""Not a queue: a tombstone under this number records when a consumer group last had members.

Its `deleted_ms` is that time, for one topic. An older version treats it as a plain tombstone and
drops it from SNAP after a day; this version keeps it while the group has progress in the topic.
"""
TEMPORARY_QUEUE: Final = 0xFFFE
"""As `PRESENCE_QUEUE`, for an unnamed group: it is deleted some minutes after its members left."""
NOTES: Final = (PRESENCE_QUEUE, TEMPORARY_QUEUE)
HOUR_MS: Final = 3600 * 1000

_Times = Mapping[OffsetKey, int]
"""When a tombstone came, by key (`JournalState.deleted_ms`)."""


class SnapEntries:
    """Encoded entries: progress and its groups' notes, other tombstones by hour, leaving ones."""

    __slots__ = ("_hours", "_leaving", "_progress")

    def __init__(self) -> None:
        self._progress = PackedOffsets()
        self._hours: dict[int, PackedOffsets] = {}
        self._leaving: dict[int, PackedOffsets] = {}  # by hour, too

    @property
    def count(self) -> int:
        """Number of entries in a SNAP that leaves nothing out."""
        return self._progress.count + _count(self._hours)

    @property
    def size(self) -> int:
        """Bytes of all entries in a SNAP that leaves nothing out."""
        return self._progress.size + sum(packed.size for packed in self._hours.values())

    @property
    def leaving(self) -> int:
        """Number of entries that the tables still have and no SNAP has."""
        return _count(self._leaving)

    # ---- changes
    def put(self, key: OffsetKey, raw: bytes, times: _Times, before_ms: int | None = None) -> None:
        """Set the bytes of an entry; those of a tombstone include its time, which `times` has.

        `before_ms`: the time of the tombstone that it replaces, if it does.
        """
        block, ms = (key.group, key.topic_id), times.get(key)
        if before_ms is not None:
            self._take(key, before_ms)
        if ms is None:
            if self._progress.put(key, raw):
                self._hold_notes(block, times)
            return
        had_progress = before_ms is None and self._progress.take(key) is not None
        if key.queue_id in NOTES and self._has_progress(block):
            self._progress.put(key, raw)
        else:
            self._hours.setdefault(ms // HOUR_MS, PackedOffsets()).put(key, raw)
        if had_progress and not self._has_progress(block):
            self._release_notes(block, times)

    def drop(self, block: BlockKey) -> None:
        """Remove all entries of a group in a topic, leaving ones too."""
        self._progress.drop(block)
        for packed in (*self._hours.values(), *self._leaving.values()):
            packed.drop(block)

    def freeing(self) -> Turns[None]:
        """Remove everything in pieces; this is not used again."""
        for packed in (self._progress, *self._hours.values(), *self._leaving.values()):
            yield from packed.freeing()

    # ---- SNAPs
    def hours_before(self, before_ms: int) -> tuple[int, ...]:
        """Return the hours that had ended by then and of which a SNAP would have tombstones."""
        return tuple(sorted(hour for hour in self._hours if hour < before_ms // HOUR_MS))

    def parts(self, without: tuple[int, ...]) -> tuple[list[bytes], int]:
        """Return the entries as parts to join, without these hours, and their number.

        The order is a function of the entries alone: progress, then hour by hour, by key in each.
        """
        parts, count = self._progress.parts(), self._progress.count
        for hour in sorted(self._hours.keys() - set(without)):
            parts += self._hours[hour].parts()
            count += self._hours[hour].count
        return parts, count

    def leave(self, hour: int) -> None:
        """Begin to drop the tombstones of an hour; none of that hour may be leaving already."""
        assert hour not in self._leaving
        self._leaving[hour] = self._hours.pop(hour)

    def is_leaving(self, hour: int) -> bool:
        """Return whether tombstones of that hour are leaving."""
        return hour in self._leaving

    def recall(self, key: OffsetKey, ms: int) -> bool:
        """Take a tombstone back from those that leave; return whether it was among them."""
        packed = self._leaving.get(ms // HOUR_MS)
        return packed is not None and packed.take(key) is not None

    def pop_leaving(self) -> tuple[BlockKey, Set[int]] | None:
        """Remove leaving tombstones; return their group and topic, and their queues."""
        while self._leaving:
            hour, packed = next(iter(self._leaving.items()))
            if packed.count:
                return packed.pop_block()
            del self._leaving[hour]
        return None

    # ---- inside
    def _take(self, key: OffsetKey, ms: int) -> bytes | None:
        """Remove a tombstone of that time; return its bytes."""
        packed = self._hours.get(ms // HOUR_MS)
        raw = None if packed is None else packed.take(key)
        return self._progress.take(key) if raw is None else raw

    def _has_progress(self, block: BlockKey) -> bool:
        lowest = self._progress.first_queue(block)
        return lowest is not None and lowest not in NOTES  # which are above all queues

    def _hold_notes(self, block: BlockKey, times: _Times) -> None:
        """Move the group's notes to its progress."""
        for key in (OffsetKey(*block, note) for note in NOTES):
            ms = times.get(key)
            if ms is not None and (raw := self._take(key, ms)) is not None:
                self._progress.put(key, raw)

    def _release_notes(self, block: BlockKey, times: _Times) -> None:
        """Move the notes of a group without progress to the other tombstones."""
        for key in (OffsetKey(*block, note) for note in NOTES):
            if (raw := self._progress.take(key)) is not None:
                self._hours.setdefault(times[key] // HOUR_MS, PackedOffsets()).put(key, raw)


def _count(hours: Mapping[int, PackedOffsets]) -> int:
    return sum(packed.count for packed in hours.values())
