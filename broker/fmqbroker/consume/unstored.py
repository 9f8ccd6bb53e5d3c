"""Acked progress that is not stored yet, taken in pieces so that no turn of the loop is long.

Three sources: the dirty queues of live groups, those of groups that were dropped, and entries that
are ready (`left`: notes, and what a full disk refused). No I/O and no waiting.

A dropped group gets its entries only when they are taken. Its progress stays as it was, because it
ignores acks from then on (`ConsumerGroup.over`). What the store knows may change before that turn:
an entry of a later term, a later seek and a deletion win over the dropped group, as they would if
its entry had been made when it was dropped.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.offsets.store import OffsetStore
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, next_version, version_epoch
from fmqcore.ids import Epoch, TopicId

A_TURN: Final = 200
"""Entries in one turn of the event loop, plus the rest of the last group up to as many again."""

GroupKey = tuple[str, TopicId]
Entries = dict[OffsetKey, OffsetEntry]


class Unstored:
    """The progress of one broker's consumer groups that its store does not have yet."""

    def __init__(self, offsets: OffsetStore) -> None:
        self.entries: Entries = {}
        self._offsets = offsets
        self._dirty: dict[GroupKey, ConsumerGroup] = {}
        self._dropped: dict[GroupKey, tuple[ConsumerGroup, Epoch]] = {}

    def __bool__(self) -> bool:
        return bool(self.entries or self._dirty or self._dropped)

    def mark(self, group: ConsumerGroup) -> None:
        """Note that a live group has dirty queues."""
        self._dirty[group.name, group.topic_id] = group

    def forget(self, key: GroupKey) -> None:
        """Drop everything of a group that is being deleted, also what a full disk gave back."""
        self._dirty.pop(key, None)
        self._dropped.pop(key, None)
        if self.entries:
            self.entries = {at: e for at, e in self.entries.items() if (at[0], at[1]) != key}

    def drop(self, groups: Iterable[ConsumerGroup]) -> None:
        """Keep the progress of groups that end now, in the term that the store keeps now."""
        for group in groups:
            group.over = True
            key = (group.name, group.topic_id)
            self._dirty.pop(key, None)
            if group.dirty:
                self._dropped[key] = (group, self._offsets.epoch)

    def make_ready(self, key: GroupKey) -> None:
        """Move what was dropped of this group to `entries`: the group is about to start again."""
        if key in self._dropped:
            group, epoch = self._dropped[key]
            self.entries |= self._entries_of_dropped(key, group, epoch, len(group.dirty))

    def give_back(self, entries: Entries) -> None:
        """Put entries back that could not be stored; those that came since are newer."""
        entries |= self.entries
        self.entries = entries

    def clear_gone(self) -> None:
        """Drop everything but the dirty queues of live groups."""
        self.entries, self._dropped = {}, {}

    def take(self) -> Entries:
        """Take what one turn of the loop may take; call again while this object is true."""
        entries: Entries = {}
        room = A_TURN
        while self and room > 0:
            if self.entries:
                keys = list(islice(self.entries, room))
                entries |= {key: self.entries.pop(key) for key in keys}
                room -= len(keys)
            elif self._dropped:
                at, (group, epoch) = next(iter(self._dropped.items()))
                room -= 1 + len(group.dirty)
                entries |= self._entries_of_dropped(at, group, epoch, A_TURN)
            else:
                group = next(iter(self._dirty.values()))
                room -= 1 + len(group.dirty)
                entries |= self._entries_of(group, A_TURN)
        return entries

    def _entries_of(self, group: ConsumerGroup, most: int) -> Entries:
        entries, queues = {}, list(islice(group.dirty, most))
        for key, version in self._offsets.next_versions([group.key(q) for q in queues]).items():
            entries[key] = _entry(group, key, version)
            del group.dirty[key.queue_id]
        if not group.dirty:
            self._dirty.pop((group.name, group.topic_id), None)
        return entries

    def _entries_of_dropped(
        self, at: GroupKey, group: ConsumerGroup, epoch: Epoch, most: int
    ) -> Entries:
        entries, queues = {}, list(islice(group.dirty, most))
        known = self._offsets.get_all([group.key(q) for q in queues])
        for queue in queues:
            key, progress = group.key(queue), group.progress[queue]
            held = known.get(key)
            if held is None or not _wins(held, progress.seek_number, epoch):
                entries[key] = _entry(group, key, next_version(held, epoch))
            del group.dirty[queue]
        if not group.dirty:
            del self._dropped[at]
        return entries


def _wins(held: OffsetEntry, seek_number: int, epoch: Epoch) -> bool:
    """Return whether the stored entry is newer than a group that was dropped in `epoch`."""
    moved = held.seek_number > seek_number or (held.deleted and held.version > seek_number)
    return moved or version_epoch(held.version) > epoch


def _entry(group: ConsumerGroup, key: OffsetKey, version: int) -> OffsetEntry:
    progress = group.progress[key.queue_id]
    version = max(version, progress.seek_number)
    since = progress.seek_number, progress.start_number
    return OffsetEntry(version, progress.floor, progress.acked, *since)
