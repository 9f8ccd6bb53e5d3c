"""Consumer progress in SNAP's encoding, kept as the bytes that arrived. Pure.

A SNAP must be made in one piece, between two appends, so its cost is a pause. OFFSETS and SNAP
encode an entry the same way, so its bytes are kept from the OFFSETS batch that brought it. They are
kept in blocks, one for each consumer group and topic, and a block unchanged since the last SNAP is
one piece of bytes: the pause grows with what changed, not with the number of entries. The bytes are
derived: if they are lost, the entries are encoded again.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.ids import TopicId
from fmqcore.turns import Turns, emptying

BlockKey = tuple[str, TopicId]
"""(consumer group, topic): the start of an `OffsetKey`, so blocks sort as entries do."""


class _Block:
    """Entries of one consumer group in one topic."""

    __slots__ = ("entries", "joined", "last")

    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}  # by queue
        self.joined: bytes | None = None  # None: changed since it was joined
        self.last: int | None = -1  # the last queue of `entries`, which rise; None: in any order

    def put(self, queue: int, packed: bytes) -> None:
        """Set the bytes of a queue's entry."""
        if queue not in self.entries:
            self.last = queue if self.last is not None and queue > self.last else None
        self.entries[queue] = packed
        self.joined = None

    def __len__(self) -> int:
        return len(self.entries)

    def join(self, without: Set[int] = frozenset()) -> bytes:
        """Return all entries but those of queues `without`, ascending by queue."""
        if self.entries.keys() <= without:
            return b""
        if self.last is None:
            self.entries = dict(sorted(self.entries.items()))
            self.last = max(self.entries)
        if without:
            return b"".join([raw for queue, raw in self.entries.items() if queue not in without])
        if self.joined is None:
            self.joined = b"".join(self.entries.values())
        return self.joined


class PackedOffsets:
    """Encoded entries by key."""

    __slots__ = ("_blocks", "_order", "count", "size")

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, _Block] = {}
        self._order: list[BlockKey] | None = []  # ascending; None: to be sorted again
        self.count = 0  # entries
        self.size = 0  # bytes of all entries

    def __contains__(self, key: OffsetKey) -> bool:
        block = self._blocks.get((key.group, key.topic_id))
        return block is not None and key.queue_id in block.entries

    def __iter__(self) -> Iterator[OffsetKey]:
        for (group, topic_id), block in self._blocks.items():
            for queue in block.entries:
                yield OffsetKey(group, topic_id, queue)

    def put(self, key: OffsetKey, packed: bytes) -> None:
        """Set the bytes of an entry; those of a deleted one include the time of deletion."""
        at = key.group, key.topic_id
        block = self._blocks.get(at)
        if block is None:
            block = self._blocks[at] = _Block()
            self._order = None
        old = block.entries.get(key.queue_id)
        self.count += old is None
        self.size += len(packed) - len(old or b"")
        block.put(key.queue_id, packed)

    def drop(self, at: BlockKey, queues: Set[int]) -> None:
        """Remove the entries of these queues from a block, if it has them: fast for thousands."""
        block = self._blocks.get(at)
        if block is None:
            return
        if block.entries.keys() <= queues:
            gone = list(block.entries.values())
            del self._blocks[at]
            self._order = None
        else:
            gone = [block.entries.pop(queue) for queue in block.entries.keys() & queues]
            block.joined = None
        self.count -= len(gone)
        self.size -= sum(map(len, gone))

    def freeing(self) -> Turns[None]:
        """Remove all blocks in pieces; this is not used again."""
        yield from emptying(self._blocks.popitem, len)

    def remove(self, keys: Iterable[OffsetKey]) -> None:
        """Remove these entries."""
        for key in keys:
            at = key.group, key.topic_id
            block = self._blocks.get(at)
            old = None if block is None else block.entries.pop(key.queue_id, None)
            if block is None or old is None:
                continue
            block.joined = None
            self.count -= 1
            self.size -= len(old)
            if not block.entries:
                del self._blocks[at]
                self._order = None

    def parts(self, without: Mapping[BlockKey, Set[int]] | None = None) -> list[bytes]:
        """Return all entries but those `without`, ascending, as parts to join."""
        if self._order is None:
            self._order = sorted(self._blocks)
        blocks = self._blocks
        if not without:
            return [blocks[at].join() for at in self._order]
        none = frozenset[int]()
        return [blocks[at].join(without.get(at, none)) for at in self._order]
