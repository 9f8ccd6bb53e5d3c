"""Digests of a journal's blocks, so that equal replicas are cheap to compare. Pure.

A block is the batches of one segment that begin in one stretch of `BLOCK` bytes. Its digest is
made from their headers, which hold the payloads' CRCs. So two equal digests do not prove that each
replica's payloads match their headers; each replica checks that by itself (J002).
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader
from fmqcore.ids import Epoch, Position
from fmqcore.journal.kinds import kind_of
from fmqcore.scan.headers import HeaderBlock, pack

BLOCK: Final = 1024 * 1024
"""Bytes of journal that one digest covers."""
_DIGEST_LEN: Final = 16


class Digest(NamedTuple):
    """The digest of one block of one replica."""

    first: Position  # where its first batch begins
    end: Position  # where its last one ends
    digest: str


class Batch(NamedTuple):
    """The part of a header that a comparison needs."""

    position: Position
    end: Position
    epoch: Epoch  # of an EOF or SNAP that was written for a term, that
    digest: str


class BlockDigests:
    """Builds a segment's digests from its headers, which must come in ascending order. Missing
    headers end a block, too. Keeps only the headers of one block, however small the batches are.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._made: list[Digest] = []
        self._raw = bytearray()
        self._first = self._end = Position(0)
        self._limit = 0

    def __call__(self, header: BatchHeader) -> None:
        """Add the next header."""
        position = header.position
        if position >= self._limit or position != self._end:
            self._close()
            self._first = position
            self._limit = (position // self._block + 1) * self._block
        self._raw += pack(*header)
        self._end = Position(position + header.total_len)

    @property
    def made(self) -> list[Digest]:
        """Close the last block and return all digests; no more headers may follow."""
        self._close()
        return self._made

    def _close(self) -> None:
        if self._raw:
            self._made.append(Digest(self._first, self._end, _digest(self._raw)))
            self._raw.clear()


def batches(headers: HeaderBlock) -> list[Batch]:
    """Return each header's part for a comparison batch by batch."""
    return [
        Batch(header.position, header.end, _epoch(header), _digest(headers.header_bytes(i)))
        for i, header in enumerate(headers.headers())
    ]


def _epoch(header: BatchHeader) -> Epoch:
    """Return the batch's epoch; for a frame that opens a term without EPOCH batch, that term."""
    return (kind_of(header.type).frame and header.framed_for) or header.epoch


def _digest(raw: Buffer) -> str:
    return blake2b(raw, digest_size=_DIGEST_LEN).hexdigest()
