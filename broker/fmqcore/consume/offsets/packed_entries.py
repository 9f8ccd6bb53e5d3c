"""Consumer progress in SNAP's encoding, kept as the bytes that arrived. Pure.

A SNAP must be made in one piece, between two appends, so its cost is a pause. OFFSETS and SNAP
encode an entry the same way, so its bytes are kept from the OFFSETS batch that brought it. They are
kept ascending by key, in pages of some entries of one consumer group. A page's bytes are one piece
that never changes: a changed entry replaces it by a copy, and a SNAP has nothing to join. It takes
the pages as they are at that moment. The bytes are derived: if they are lost, the entries are
encoded again.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Set
from typing import Final

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.ids import TopicId
from fmqcore.turns import FREED, Turns

PAGE_ENTRIES: Final = 64
"""Most entries of a page."""
_PAGE_BYTES: Final = 16 * 1024
"""Most bytes of a page of several entries: a changed entry copies them in about a microsecond."""
_QUEUE_BITS: Final = 16

BlockKey = tuple[str, TopicId]
"""(consumer group, topic)"""


class _Page:
    """Adjacent entries: their numbers, ascending, the length of each, and the bytes of all."""

    __slots__ = ("data", "lengths", "numbers")

    def __init__(self, numbers: "array[int]", lengths: list[int], data: bytes) -> None:
        self.numbers = numbers  # topic and queue in one: cheap to compare
        self.lengths = lengths
        self.data = data

    def remove(self, first: int, end: int) -> bytes:
        """Remove some entries; return their bytes."""
        start = sum(self.lengths[:first])
        stop = start + sum(self.lengths[first:end])
        removed, self.data = self.data[start:stop], self.data[:start] + self.data[stop:]
        del self.numbers[first:end], self.lengths[first:end]
        return removed

    def split(self, at: int) -> "_Page":
        """Move the entries from number `at` on to a new page, and return the page."""
        start = sum(self.lengths[:at])
        other = _Page(self.numbers[at:], self.lengths[at:], self.data[start:])
        del self.numbers[at:], self.lengths[at:]
        self.data = self.data[:start]
        return other

    def takes_in(self, other: "_Page") -> bool:
        """Add the entries of the next page if both together are half a page; return whether."""
        small = len(self.numbers) + len(other.numbers) <= PAGE_ENTRIES // 2
        if not small or len(self.data) + len(other.data) > _PAGE_BYTES // 2:
            return False
        self.numbers += other.numbers
        self.lengths += other.lengths
        self.data += other.data
        return True


class _Group:
    """The entries of one consumer group, in pages."""

    __slots__ = ("firsts", "pages")

    def __init__(self) -> None:
        self.pages: list[_Page] = []  # none is empty
        # By page: no number of the page is lower, and all of the page before are.
        self.firsts = array("Q")

    def put(self, number: int, packed: bytes) -> int | None:
        """Set the bytes of an entry; return how many it had, None if it is new."""
        if not self.pages:
            self.pages.append(_Page(array("Q"), [], b""))
            self.firsts.append(number)
        which = bisect_right(self.firsts, number) - 1
        if which < 0:
            which, self.firsts[0] = 0, number
        page = self.pages[which]
        numbers, lengths, data = page.numbers, page.lengths, page.data
        at = bisect_left(numbers, number)
        start = sum(lengths[:at])
        if at < len(numbers) and numbers[at] == number:
            had, old = lengths[at], lengths[at]
            lengths[at] = len(packed)
        else:
            had, old = None, 0
            numbers.insert(at, number)
            lengths.insert(at, len(packed))
        page.data = data = data[:start] + packed + data[start + old :]
        if len(numbers) > PAGE_ENTRIES or (len(data) > _PAGE_BYTES and len(numbers) > 1):
            self._split(which, at)
        return had

    def take(self, number: int) -> bytes | None:
        """Remove an entry and return its bytes; None if there is none."""
        for which, first, end in self.spans(number, number + 1):
            return self.remove(which, first, end)
        return None

    def spans(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """Return each page with matching entries: its number, the first one, and the end."""
        lowest, spans = max(bisect_right(self.firsts, low) - 1, 0), []
        for which in range(lowest, bisect_left(self.firsts, high)):
            numbers = self.pages[which].numbers
            first, end = bisect_left(numbers, low), bisect_left(numbers, high)
            if first < end:
                spans.append((which, first, end))
        return spans

    def first_from(self, low: int) -> int | None:
        """Return the lowest number from `low` on; None if there is none."""
        lowest = max(bisect_right(self.firsts, low) - 1, 0)
        for page in self.pages[lowest : lowest + 2]:  # none is empty: the second has one, if any
            at = bisect_left(page.numbers, low)
            if at < len(page.numbers):
                return page.numbers[at]
        return None

    def remove(self, which: int, first: int, end: int) -> bytes:
        """Remove entries of a page; return their bytes."""
        page = self.pages[which]
        removed = page.remove(first, end)
        if not page.numbers:
            self._delete(which)
            return removed
        for lower in (which, which - 1):  # so that pages side by side do not stay nearly empty
            both = self.pages[max(lower, 0) : lower + 2]
            if len(both) == 2 and both[0].takes_in(both[1]):
                self._delete(lower + 1)
        return removed

    def _split(self, which: int, at: int) -> None:
        """Split a page that grew by the entry `at`; ascending entries leave full pages behind."""
        count = len(self.pages[which].numbers)
        ascends = which == len(self.pages) - 1 and at == count - 1
        other = self.pages[which].split(at if ascends else count // 2)
        self.pages.insert(which + 1, other)
        self.firsts.insert(which + 1, other.numbers[0])

    def _delete(self, which: int) -> None:
        del self.pages[which], self.firsts[which]


class PackedOffsets:
    """Encoded entries by key."""

    __slots__ = ("_groups", "_order", "count", "size")

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}  # none is empty
        self._order: list[str] = []  # ascending
        self.count = 0  # entries
        self.size = 0  # bytes of all entries

    def first_queue(self, at: BlockKey) -> int | None:
        """Return the lowest queue of a group's entries in a topic; None if it has none."""
        group, (low, high) = self._groups.get(at[0]), _numbers(at[1])
        first = None if group is None else group.first_from(low)
        return None if first is None or first >= high else first - low

    def put(self, key: OffsetKey, packed: bytes) -> bool:
        """Set the bytes of an entry; return whether it is a new one.

        Those of a deleted one include the time of deletion.
        """
        name, topic_id, queue = key
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
            insort(self._order, name)
        had = group.put(topic_id << _QUEUE_BITS | queue, packed)
        self.size += len(packed) - (had or 0)
        self.count += had is None
        return had is None

    def take(self, key: OffsetKey) -> bytes | None:
        """Remove an entry and return its bytes; None if there is none."""
        group = self._groups.get(key.group)
        if group is None:
            return None
        raw = group.take(key.topic_id << _QUEUE_BITS | key.queue_id)
        if raw is not None:
            self._count_out(key.group, group, 1, raw)
        return raw

    def drop(self, at: BlockKey) -> Set[int]:
        """Remove all entries of a group in a topic, fast for thousands; return their queues."""
        name, topic_id = at
        group, queues = self._groups.get(name), set[int]()
        if group is None:
            return queues
        low, high = _numbers(topic_id)
        for which, first, end in reversed(group.spans(low, high)):
            queues.update(number - low for number in group.pages[which].numbers[first:end])
            self._count_out(name, group, end - first, group.remove(which, first, end))
        return queues

    def pop_block(self) -> tuple[BlockKey, Set[int]]:
        """Remove all entries of any group in a topic; return the two, and the queues."""
        name = self._order[-1]
        at = name, TopicId(self._groups[name].pages[-1].numbers[-1] >> _QUEUE_BITS)
        return at, self.drop(at)

    def freeing(self) -> Turns[None]:
        """Remove all entries in pieces; this is not used again."""
        left = FREED
        while self._groups:
            _, group = self._groups.popitem()
            while group.pages:
                group.pages.pop()
                left -= PAGE_ENTRIES
                if left <= 0:
                    left = FREED
                    yield

    def parts(self) -> list[bytes]:
        """Return all entries, ascending, as parts to join."""
        groups = self._groups
        return [page.data for name in self._order for page in groups[name].pages]

    def _count_out(self, name: str, group: _Group, count: int, removed: bytes) -> None:
        self.count -= count
        self.size -= len(removed)
        if not group.pages:
            del self._groups[name], self._order[bisect_left(self._order, name)]


def _numbers(topic_id: TopicId) -> tuple[int, int]:
    """Return the number of a topic's first possible entry, and that behind its last one."""
    return topic_id << _QUEUE_BITS, (topic_id + 1) << _QUEUE_BITS
