"""A table of consumer progress, indexed by topic, consumer group and queue. Pure.

A question about one topic or one group needs no walk through all entries: a broker may hold several
hundred thousand of them, and its event loop must not stall.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import TopicId
from fmqcore.turns import Turns, emptying, single


class ProgressTable(dict[OffsetKey, OffsetEntry]):
    """Entries by key, including tombstones. Write with `[]`, `del`, `drop` and `clear` only."""

    __slots__ = ("_groups",)

    def __init__(self, entries: Mapping[OffsetKey, OffsetEntry] | None = None) -> None:
        super().__init__()
        # topic -> group -> queues
        self._groups: dict[TopicId, dict[str, dict[int, None]]] = {}
        for key, entry in (entries or {}).items():
            self[key] = entry

    def __setitem__(self, key: OffsetKey, entry: OffsetEntry) -> None:
        if key not in self:
            groups = self._groups.setdefault(key.topic_id, {})
            groups.setdefault(key.group, {})[key.queue_id] = None
        super().__setitem__(key, entry)

    def __delitem__(self, key: OffsetKey) -> None:
        super().__delitem__(key)
        groups = self._groups[key.topic_id]
        del groups[key.group][key.queue_id]
        if not groups[key.group]:
            del groups[key.group]
        if not groups:
            del self._groups[key.topic_id]

    def drop(self, group: str, topic: TopicId, queues: Collection[int]) -> None:
        """Remove the group's entries in these queues, if it has them: fast for thousands."""
        groups = self._groups.get(topic, {})
        kept = [queue for queue in groups.get(group, ()) if queue not in queues]
        drop_keys(self, group, topic, queues)
        if kept:
            groups[group] = dict.fromkeys(kept)
        else:
            groups.pop(group, None)
        if not groups:
            self._groups.pop(topic, None)

    def clear(self) -> None:
        """Remove every entry."""
        super().clear()
        self._groups.clear()

    def freeing(self) -> Turns[None]:
        """Remove every entry in pieces; the table is not used again."""
        yield from emptying(super().popitem, single)
        for groups in self._groups.values():
            yield from emptying(groups.popitem, len)

    def topics(self) -> list[TopicId]:
        """The topics with an entry, in no order."""
        return list(self._groups)

    def groups_in(self, topic: TopicId) -> Iterable[str]:
        """The consumer groups with an entry in that topic, in no order."""
        return self._groups.get(topic, {}).keys()

    def queues_of(self, group: str, topic: TopicId) -> Collection[int]:
        """The queues of that topic in which that group has an entry, in no order."""
        return self._groups.get(topic, {}).get(group, {}).keys()

    def by_topic(self) -> Iterator[OffsetKey]:
        """Yield the keys by topic, group and queue; no step sorts more than one topic or group.

        The table may change between two keys: one that was removed may still come, and one that was
        added may be left out.
        """
        for topic in sorted(self._groups):
            for group in sorted(self.groups_in(topic)):
                for queue in sorted(self.queues_of(group, topic)):
                    yield OffsetKey(group, topic, queue)

    # ---- the other writing methods of a dict would bypass the index
    def _refused(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a ProgressTable is written with [], del, drop and clear only")

    pop = popitem = setdefault = update = __ior__ = _refused

    def __reduce__(self) -> tuple[type["ProgressTable"], tuple[dict[OffsetKey, OffsetEntry]]]:
        return ProgressTable, (dict(self),)


def drop_keys(
    table: dict[OffsetKey, Any], group: str, topic: TopicId, queues: Iterable[int]
) -> None:
    """Remove the keys of these queues, if they are there, without a loop in Python."""
    remove = partial(dict.pop, table)  # a plain tuple equals the key
    deque(map(remove, zip(repeat(group), repeat(topic), queues), repeat(None)), maxlen=0)


def keys_of(table: Mapping[OffsetKey, OffsetEntry]) -> Iterable[OffsetKey]:
    """Return the keys in a fixed order, without one long sort if the table has an index."""
    return table.by_topic() if isinstance(table, ProgressTable) else sorted(table)
