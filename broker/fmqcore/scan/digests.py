"""Digests of a journal's blocks, so that equal replicas cost little to compare (DESIGN §11). Pure.

A block is the batches of one segment that begin in one stretch of `BLOCK` bytes. Its digest is
made of their headers: a header holds the payload's CRC, so what two equal digests do not prove is
that each replica's payload is what its header says; that is the replica's own check (J002).
"""

from array import array
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from operator import add
from typing import Final, NamedTuple

from fmqcore.batch import HEADER_LEN, BatchHeader, BatchType
from fmqcore.scan.headers import HeaderBlock
from fmqcore.words import Epoch, Position

BLOCK: Final = 1024 * 1024
"""Bytes of journal that one digest is about."""
_DIGEST_LEN: Final = 16


class Digest(NamedTuple):
    """One block of one replica."""

    first: Position  # where its first batch begins
    end: Position  # where its last one ends
    digest: str


class Batch(NamedTuple):
    """What of a header a comparison needs."""

    position: Position
    end: Position
    epoch: Epoch  # of an EOF or SNAP that was written for a term, that
    digest: str


def digests(headers: HeaderBlock, block: int = BLOCK) -> list[Digest]:
    """The blocks of headers in ascending order; what is missing between two ends a block, too."""
    positions = headers.column("position")
    ends = array("Q", map(add, positions, headers.column("total_len")))
    breaks = []
    if ends[:-1] != positions[1:]:
        breaks = [i + 1 for i in range(len(ends) - 1) if ends[i] != positions[i + 1]]
    found = []
    at = 0
    while at < len(positions):
        limit = (positions[at] // block + 1) * block
        until = bisect_left(positions, limit, at)
        broken = bisect_right(breaks, at)
        if broken < len(breaks):
            until = min(until, breaks[broken])
        raw = headers.raw[at * HEADER_LEN : until * HEADER_LEN]
        found.append(Digest(Position(positions[at]), Position(ends[until - 1]), _digest(raw)))
        at = until
    return found


def batches(headers: HeaderBlock) -> list[Batch]:
    """Header by header, for drilling down."""
    return [
        Batch(header.position, header.end, _epoch(header), _digest(headers.header_bytes(i)))
        for i, header in enumerate(headers.headers())
    ]


def _epoch(header: BatchHeader) -> Epoch:
    """An epoch whose EPOCH batch found no room begins with the frames written for it."""
    frame = header.type in (BatchType.EOF, BatchType.SNAP)
    return (frame and header.framed_for) or header.epoch


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=_DIGEST_LEN).hexdigest()
