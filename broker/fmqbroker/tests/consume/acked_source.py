"""A source of acked progress for the offset store, which gives one entry in a turn."""

from collections.abc import Callable

from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey


class Acked:
    """Entries that were acked; `then` is called after each piece."""

    def __init__(
        self, entries: dict[OffsetKey, OffsetEntry], then: Callable[[], None] = lambda: None
    ) -> None:
        self._entries = dict(entries)
        self._then = then

    def __bool__(self) -> bool:
        return bool(self._entries)

    def take(self) -> dict[OffsetKey, OffsetEntry]:
        """Take one entry."""
        key = next(iter(self._entries))
        self._then()
        return {key: self._entries.pop(key)}
