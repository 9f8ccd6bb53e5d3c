"""Consumer progress as known now, wherever it is kept. No I/O."""

from collections.abc import Collection, Sequence

from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.ids import TopicId
from fmqcore.journal.state import PRESENCE_QUEUE, TEMPORARY_QUEUE


class KnownProgress:
    """Several progress tables read as one: of two entries the higher version counts."""

    def _tables(self) -> Sequence[ProgressTable]:
        raise NotImplementedError

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the newest known entry, stored or about to be; also a tombstone (`deleted`)."""
        return self.get_all((key,)).get(key)

    def get_all(self, keys: Collection[OffsetKey]) -> dict[OffsetKey, OffsetEntry]:
        """Return `get` for many keys; keys without an entry are left out."""
        found: dict[OffsetKey, OffsetEntry] = {}
        for table in self._tables():
            if table:
                for key in keys:
                    entry = table.get(key)
                    if entry is not None and (key not in found or entry > found[key]):
                        found[key] = entry
        return found

    def has_progress(self, group: str, topic: TopicId, queues: int) -> bool:
        """Return whether the group has undeleted progress in one of the first `queues` queues."""
        known = (q for table in self._tables() for q in table.queues_of(group, topic) if q < queues)
        entries = (self.get(OffsetKey(group, topic, queue)) for queue in known)
        return any(entry is not None and not entry.deleted for entry in entries)

    def is_temporary(self, group: str, topic: TopicId) -> bool:
        """Return whether the consumer group is an unnamed one."""
        notes = [OffsetKey(group, topic, queue) for queue in (TEMPORARY_QUEUE, PRESENCE_QUEUE)]
        known = self.get_all(notes)
        return notes[0] in known and notes[1] not in known

    def groups_in(self, topic: TopicId) -> list[str]:
        """Return the consumer groups with progress or a tombstone in that topic, sorted."""
        return sorted({name for table in self._tables() for name in table.groups_in(topic)})

    def topics(self) -> list[TopicId]:
        """Return the topics in which a group has progress or a tombstone, sorted."""
        return sorted({topic for table in self._tables() for topic in table.topics()})

    def queues_of(self, group: str, topic: TopicId) -> list[int]:
        """Return the queues of that topic in which the group has undeleted progress, sorted."""
        queues = {queue for table in self._tables() for queue in table.queues_of(group, topic)}
        found = self.get_all([OffsetKey(group, topic, queue) for queue in queues])
        return sorted(key.queue_id for key, entry in found.items() if not entry.deleted)
