"""Decode bytes field by field; missing or excess bytes raise one `Malformed`. Pure."""

from struct import Struct
from typing import Any, Final

from fmqcore.batch.crc import Buffer
from fmqcore.errors import Malformed
from fmqcore.names import is_name

_LENGTH: Final = Struct("<B")


class Fields:
    """A cursor over one payload; `what` names it in errors."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: Buffer, what: str) -> None:
        self._data = bytes(data)
        self._at = 0
        self._what = what

    def take(self, layout: Struct) -> tuple[Any, ...]:
        """Return the next fields, as `layout` describes; raise `Malformed`."""
        at = self._skip(layout.size)
        return layout.unpack_from(self._data, at)

    def many(self, layout: Struct, count: int) -> list[tuple[Any, ...]]:
        """Return `count` groups of fields, each as `layout` describes; raise `Malformed`."""
        at = self._skip(layout.size * count)
        return list(layout.iter_unpack(self._data[at : self._at]))

    def raw(self, length: int) -> bytes:
        """Return the next `length` bytes; raise `Malformed`."""
        at = self._skip(length)
        return self._data[at : self._at]

    def view(self, length: int) -> memoryview:
        """Return the next `length` bytes without a copy of them; raise `Malformed`."""
        at = self._skip(length)
        return memoryview(self._data)[at : self._at]

    def name(self) -> str:
        """Return a name, stored after its u8 length; raise `Malformed` (`names.NAME_PATTERN`)."""
        (length,) = self.take(_LENGTH)
        raw = self.raw(length)
        text = raw.decode("ascii", "replace")
        if not is_name(text):
            raise self.malformed(f"{raw!r} is not a name")
        return text

    @property
    def at(self) -> int:
        """Number of bytes taken so far."""
        return self._at

    def since(self, at: int) -> bytes:
        """Return the bytes taken since position `at`."""
        return self._data[at : self._at]

    def done(self) -> None:
        """Raise `Malformed` unless all bytes have been taken."""
        if self._at != len(self._data):
            raise self.malformed(f"{len(self._data) - self._at} bytes are left over")

    def malformed(self, reason: str) -> Malformed:
        """Return an error that says what does not decode and where."""
        return Malformed(f"{self._what} does not decode: {reason} (at byte {self._at})")

    def _skip(self, length: int) -> int:
        at = self._at
        if at + length > len(self._data):
            raise self.malformed(f"{length} bytes expected, {len(self._data) - at} left")
        self._at = at + length
        return at


def encode_name(name: str) -> bytes:
    """Encode a name for `Fields.name`; raise `Malformed`."""
    if not is_name(name):
        raise Malformed(f"{name!r} is not a name")
    raw = name.encode("ascii")
    return _LENGTH.pack(len(raw)) + raw
