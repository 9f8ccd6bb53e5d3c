"""The next offsets of all queues in SNAP's encoding, packed at once. Pure.

Each DATA batch changes a next offset, so at a roll all may have changed. Only the queues stay:
they are kept in SNAP's order and packed, so that a SNAP needs neither a sort nor a loop.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import starmap
from struct import Struct
from typing import Final

from fmqcore.batch.offset_entry import QueueKey
from fmqcore.ids import Offset

_A_CALL: Final = 1000
"""Queues packed by one call of `struct`."""
_KEY: Final = Struct("<IH")


class PackedQueues:
    """Queues, ascending, each with its first bytes in a SNAP."""

    __slots__ = ("_heads", "_keys")

    def __init__(self, keys: Iterable[QueueKey] = ()) -> None:
        self._keys = sorted(keys)
        self._heads = list(starmap(_KEY.pack, self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: QueueKey) -> None:
        """Add a queue that is not here."""
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._heads.insert(at, _KEY.pack(*key))

    def pack(self, next_offsets: Mapping[QueueKey, Offset]) -> bytes:
        """Return all queues with their next offsets."""
        parts = []
        for at in range(0, len(self._keys), _A_CALL):
            heads, keys = self._heads[at : at + _A_CALL], self._keys[at : at + _A_CALL]
            values: list[object] = [None] * (2 * len(keys))
            values[::2] = heads
            values[1::2] = map(next_offsets.__getitem__, keys)
            parts.append(Struct("<" + "6sQ" * len(keys)).pack(*values))
        return b"".join(parts)
