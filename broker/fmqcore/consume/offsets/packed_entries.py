"""Consumer progress in SNAP's encoding, kept as the bytes that arrived. Pure.

A SNAP must be made in one piece, between two appends, so its cost is a pause. OFFSETS and SNAP
encode an entry the same way, so its bytes are kept from the OFFSETS batch that brought it. They are
kept in blocks, one for each consumer group and topic, and a block unchanged since the last SNAP is
one piece of bytes: the pause grows with what changed, not with the number of entries. `joining`
makes these pieces beforehand. The bytes are derived: if they are lost, the entries are encoded
again.
"""

from collections.abc import Collection, Set
from typing import Final

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.ids import TopicId
from fmqcore.turns import Turns, emptying

_JOINED: Final = 4000
"""Entries joined between two pauses: some 2 ms."""
_BLOCK_COST: Final = 5
"""What a block costs beside its entries, in entries."""

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

    def join(self) -> bytes:
        """Return all entries, ascending by queue."""
        if self.last is None:
            self.entries = dict(sorted(self.entries.items()))
            self.last = max(self.entries)
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

    def queues_of(self, at: BlockKey) -> Collection[int]:
        """Return the queues of a group's entries in a topic."""
        block = self._blocks.get(at)
        return () if block is None else block.entries.keys()

    def put(self, key: OffsetKey, packed: bytes) -> bool:
        """Set the bytes of an entry; return whether it is a new one.

        Those of a deleted one include the time of deletion.
        """
        at = key.group, key.topic_id
        block = self._blocks.get(at)
        if block is None:
            block = self._blocks[at] = _Block()
            self._order = None
        old = block.entries.get(key.queue_id)
        self.count += old is None
        self.size += len(packed) - len(old or b"")
        block.put(key.queue_id, packed)
        return old is None

    def take(self, key: OffsetKey) -> bytes | None:
        """Remove an entry and return its bytes; None if there is none."""
        at = key.group, key.topic_id
        block = self._blocks.get(at)
        raw = None if block is None else block.entries.pop(key.queue_id, None)
        if block is None or raw is None:
            return None
        block.joined = None
        self.count -= 1
        self.size -= len(raw)
        if not block.entries:
            del self._blocks[at]
            self._order = None
        return raw

    def drop(self, at: BlockKey) -> None:
        """Remove all entries of a block, if there is one: fast for thousands."""
        block = self._blocks.pop(at, None)
        if block is not None:
            self._forget(block)

    def pop_block(self) -> tuple[BlockKey, Set[int]]:
        """Remove any block; return its key and its queues."""
        at, block = self._blocks.popitem()
        self._forget(block)
        return at, block.entries.keys()

    def freeing(self) -> Turns[None]:
        """Remove all blocks in pieces; this is not used again."""
        yield from emptying(self._blocks.popitem, len)

    def joining(self) -> Turns[None]:
        """Join the changed blocks in pieces, so that `parts` finds them joined.

        Entries may change meanwhile: `parts` joins their blocks again.
        """
        left = _JOINED
        for block in list(self._blocks.values()):
            left -= _BLOCK_COST
            if block.joined is None and block.entries:
                left -= len(block)
                block.join()
            if left <= 0:
                left = _JOINED
                yield
        if self._order is None:
            yield
            self._order = sorted(self._blocks)

    def parts(self) -> list[bytes]:
        """Return all entries, ascending, as parts to join."""
        if self._order is None:
            self._order = sorted(self._blocks)
        blocks = self._blocks
        return [blocks[at].joined or blocks[at].join() for at in self._order]

    def _forget(self, block: _Block) -> None:
        self._order = None
        self.count -= len(block)
        self.size -= sum(map(len, block.entries.values()))
