"""Distinguishable records: a value names its record, and all its bytes follow from that.

So a truncated, mixed-up or invented value is noticed without a table of sent records.
"""

from typing import Final

_SPAN: Final = 251
_FILLER: Final = bytes(33 + at * 7 % 89 for at in range(4096 + _SPAN))
UNSENT_RECORD: Final = -1
"""The number of a value that no producer can have sent."""


def value_of(record: int, size: int) -> bytes:
    """Return the value of a record, `size` bytes (more if its number needs more)."""
    head = b"%d %d " % (record, size)
    return head + _filler(record, size - len(head))


def record_of(value: bytes) -> int:
    """Return the record that has this value; `UNSENT_RECORD` if none has."""
    parts = value.split(b" ", 2)
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return UNSENT_RECORD
    record, size = int(parts[0]), int(parts[1])
    return record if value_of(record, size) == value else UNSENT_RECORD


def _filler(record: int, length: int) -> bytes:
    begin = record % _SPAN
    if length <= len(_FILLER) - _SPAN:
        return _FILLER[begin : begin + max(0, length)]
    return (_FILLER * (length // len(_FILLER) + 2))[begin : begin + length]
