"""The resume file: state and index of the newest segment's first part (ADR 0015). Pure.

It saves a start from building them again. It is derived from the segment's bytes below its position
alone, and counts only if their checksum is the one in the file. After another history, a truncation
or damage it is ignored, and the segment is scanned in full. Losing the file loses nothing.
"""

from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer, crc32c, extend
from fmqcore.batch.fields import Fields
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position
from fmqcore.journal.scan import Readable, crc_of

RESUME: Final = "resume"
"""The file's name."""

_MAGIC: Final = 0x52514D46  # "FMQR"
_VERSION: Final = 1
_HEAD: Final = Struct("<IHHI")
_FIXED: Final = Struct("<QQQQIIIII")


class Resume(NamedTuple):
    """Content of a resume file, as of `position`, where a batch ends."""

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
    """Return the file's bytes."""
    *numbers, snap, entries = resume
    fixed = _FIXED.pack(*numbers, len(snap), len(entries))
    crc = extend(extend(crc32c(fixed), snap), entries)
    # One copy: it has many megabytes, and the event loop waits.
    return b"".join((_HEAD.pack(_MAGIC, _VERSION, 0, crc), fixed, snap, entries))


def decode_resume(data: Buffer) -> Resume:
    """Decode the file; raise `Malformed`."""
    resume, at = open_resume(data)
    return resume._replace(entries=memoryview(data)[at:])


def open_resume(data: Readable) -> tuple[Resume, int]:
    """Check the whole file, piece by piece, and decode its head; raise `Malformed`.

    The result has no entries; they are in the file from the returned byte on. With small batches
    they are a third of the segment's size.
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
        raise fields.malformed(f"its {len(data)} bytes do not match its length fields")
    resume = Resume._make((*fixed, bytes(data[fields.at : at]), b""))
    if not resume.base < resume.position <= resume.end:
        raise Malformed("resume file does not decode: its position is not in its segment")
    return resume, at
