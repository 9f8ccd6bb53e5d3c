"""The encoding of a takeover reader's side journal `takeover.journal`. Pure.

    0 u32 magic "FMQT"   4 u16 version   6 u16 zero   8 u32 epoch   12 u32 CRC32C of bytes 0-12
   16 frames: u32 payload_len, u32 CRC32C of the length and the payload, an OFFSETS payload,
      zero pad to 8

Later frames win by version, as everywhere. The first invalid frame ends the file: it is a torn
tail, never acknowledged.
"""

import struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer, crc32c, extend
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch

NAME: Final = "takeover.journal"
MAGIC: Final = 0x54514D46  # "FMQT"
VERSION: Final = 1

_HEAD: Final = struct.Struct("<IHHI")
_U32: Final = struct.Struct("<I")
_FRAME: Final = struct.Struct("<II")
HEAD_LEN: Final = _HEAD.size + _U32.size


class SideFile(NamedTuple):
    """The decoded content of one `takeover.journal`."""

    epoch: Epoch  # of the takeover that started it
    payloads: list[bytes]
    end: int  # byte after the last good frame
    torn: int  # bytes after it that are not zero padding


def encode_head(epoch: Epoch) -> bytes:
    """Encode the head of a file."""
    head = _HEAD.pack(MAGIC, VERSION, 0, epoch)
    return head + _U32.pack(crc32c(head))


def encode_frame(payload: bytes) -> bytes:
    """Encode one frame."""
    length = _U32.pack(len(payload))
    crc = extend(crc32c(length), payload)
    return _FRAME.pack(len(payload), crc) + payload + bytes(-len(payload) % 8)


def decode(data: Buffer) -> SideFile:
    """Decode a file; raise `Malformed` if its head is invalid."""
    raw = bytes(data)
    if len(raw) < HEAD_LEN:
        raise Malformed(f"{NAME} has {len(raw)} bytes: too few for its head")
    magic, version, _, epoch = _HEAD.unpack_from(raw)
    if magic != MAGIC or _U32.unpack_from(raw, _HEAD.size)[0] != crc32c(raw[: _HEAD.size]):
        raise Malformed(f"{NAME} does not begin with a valid head")
    if version != VERSION:
        raise Malformed(f"{NAME} has version {version}, this program reads {VERSION}")
    payloads: list[bytes] = []
    at = HEAD_LEN
    while (payload := _frame_at(raw, at)) is not None:
        payloads.append(payload)
        at += _FRAME.size + len(payload) + -len(payload) % 8
    at = min(at, len(raw))
    return SideFile(Epoch(epoch), payloads, at, len(raw[at:].rstrip(b"\0")))


def _frame_at(raw: bytes, at: int) -> bytes | None:
    if len(raw) - at < _FRAME.size:
        return None
    length, crc = _FRAME.unpack_from(raw, at)
    payload = raw[at + _FRAME.size : at + _FRAME.size + length]
    if length == 0 or len(payload) != length:
        return None
    return payload if extend(crc32c(raw[at : at + 4]), payload) == crc else None
