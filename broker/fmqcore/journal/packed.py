"""The bytes that SNAP holds of consumer progress, kept as they came. Pure.

A SNAP must be made in one piece, between two appends, so what it costs is a pause. An entry is
encoded the same way in OFFSETS and in SNAP: its bytes are kept from the OFFSETS batch that brought
it, and a SNAP of many thousand entries is a join. Derived: lost, it is encoded again.
"""

from collections.abc import Iterable, Mapping

from fmqcore.journal.offsets import OffsetEntry, OffsetKey, encode_entry


class PackedOffsets:
    """Bytes by key, for the entry that they were made of."""

    __slots__ = ("_order", "_packed", "size")

    def __init__(self) -> None:
        self._packed: dict[OffsetKey, tuple[OffsetEntry, bytes]] = {}
        self._order: dict[OffsetKey, None] = {}  # ascending
        self.size = 0  # bytes of all entries

    def put(self, key: OffsetKey, entry: OffsetEntry, packed: bytes) -> None:
        """These are the bytes of that entry."""
        self._remove(key)
        self._packed[key] = (entry, packed)
        self.size += len(packed)

    def remove(self, keys: Iterable[OffsetKey]) -> None:
        """These entries are gone."""
        for key in keys:
            self._remove(key)

    def items(self, table: Mapping[OffsetKey, OffsetEntry]) -> list[tuple[OffsetKey, bytes]]:
        """All of `table`, ascending, encoded."""
        if self._order.keys() != table.keys():
            # Nearly sorted already: what is new stands at the end.
            known = [key for key in self._order if key in table]
            new = [key for key in table if key not in self._order]
            self._order = dict.fromkeys(sorted(known + sorted(new)))
            self.remove([key for key in self._packed if key not in table])
        found = []
        for key in self._order:
            entry, held = table[key], self._packed.get(key)
            if held is None or held[0] is not entry:
                held = (entry, encode_entry(key, entry))
                self.put(key, *held)
            found.append((key, held[1]))
        return found

    def _remove(self, key: OffsetKey) -> None:
        if (held := self._packed.pop(key, None)) is not None:
            self.size -= len(held[1])
