"""The note on a damaged segment (ADR 0030): which segment the next start reads in full. Pure.

On disk: the small file `suspect`, the segment's base in decimal.
"""

from typing import Final

from fmqcore.errors import Malformed
from fmqcore.ids import Position

SUSPECT: Final = "suspect"
"""The file's name."""


def encode_suspect(base: Position) -> bytes:
    """Return the file's bytes."""
    return b"%d\n" % base


def decode_suspect(data: bytes) -> Position:
    """Decode the file; raise `Malformed`."""
    try:
        return Position(int(data))
    except ValueError:
        raise Malformed("the note on a damaged segment does not decode: it is no number") from None
