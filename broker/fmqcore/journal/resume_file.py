"""The resume file: what the newest segment added up to at some position, so that a start need not
add it up again (ADR 0015). Pure.

Derived, and a function of the segment's bytes below that position alone: it counts only if their
checksum is the one that it names. Another history, a cut, damage: it is passed over, and the
segment is scanned in full. Lost, nothing is lost.
"""

from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer, crc32c
from fmqcore.batch.fields import Fields
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position
from fmqcore.journal.scan import Readable, crc_of

RESUME: Final = "resume"
"""Its file name."""

_MAGIC: Final = 0x52514D46  # "FMQR"
_VERSION: Final = 1
_HEAD: Final = Struct("<IHHI")
_FIXED: Final = Struct("<QQQQIIIII")


class Resume(NamedTuple):
    """As of `position`, where a batch ends."""

    base: Position  # of the segment
    end: Position  # of the segment
    position: Position
    last_ms: int  # when the last batch was stored
    raw_crc: int  # of the file's bytes below `position`
    last_header_crc: int
    epoch: Epoch
    snap: bytes  # a SNAP payload that leaves nothing out
    entries: Buffer  # an index file


def encode_resume(resume: Resume) -> bytes:
    """The bytes of the file."""
    *fixed, snap, entries = resume
    body = _FIXED.pack(*fixed, len(snap), len(entries)) + snap + entries
    return _HEAD.pack(_MAGIC, _VERSION, 0, crc32c(body)) + body


def decode_resume(data: Buffer) -> Resume:
    """The other way; raise `Malformed`."""
    resume, at = open_resume(data)
    return resume._replace(entries=memoryview(data)[at:])


def open_resume(data: Readable) -> tuple[Resume, int]:
    """Look at all of it, piece by piece; raise `Malformed`.

    Its entries are not in it but in the file from that byte on: of small batches they are a third
    of what the segment is.
    """
    fields = Fields(data[: _HEAD.size + _FIXED.size], "resume file")
    magic, version, zero, crc = fields.take(_HEAD)
    if (magic, version, zero) != (_MAGIC, _VERSION, 0):
        raise fields.malformed(f"magic {magic:#x} version {version} is not ours")
    if crc != crc_of(data, _HEAD.size, len(data)):
        raise fields.malformed("its CRC does not match")
    *fixed, snap_len, entries_len = fields.take(_FIXED)
    at = fields.at + snap_len
    if len(data) != at + entries_len:
        raise fields.malformed(f"it has {len(data)} bytes, not what its lengths say")
    resume = Resume._make((*fixed, bytes(data[fields.at : at]), b""))
    if not resume.base < resume.position <= resume.end:
        raise Malformed("resume file does not decode: its position is not in its segment")
    return resume, at
