"""The newest part of the journal in memory: unwritten batches, and a cache of written ones.

Append, flusher and replication meet here: a batch is added as loose pieces, the first reader of
the bytes joins them into a block (one copy), and the same block is then written, sent and kept.
Blocks are immutable and never cross a segment's end, so the flusher can stop at the end of any
block.

A long SNAP is added in the turn of the loop that made it, which is long already. So it is a block
at once, but its parts are joined by the first reader, most often the flusher.

This is not the index (`catalog.py`) and knows no file. Leaves nothing on disk.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from fmqcore.errors import NotFound
from fmqcore.ids import Position

HEADER_CRC_AT: Final = 8
_CRC: Final = Struct("<I")
BLOCK_BYTES: Final = 512 * 1024
"""Loose pieces are joined at the latest when they reach this many bytes."""


class Block(NamedTuple):
    """Whole batches, one after the other; an EOF can only be the last and is its 96 bytes."""

    start: Position
    end: Position  # of the last batch; past the bytes if that is an EOF
    starts: "array[int]"  # position of each batch
    data: bytes
    closes_segment: bool  # the last batch is an EOF


def last_crc(block: Block) -> int:
    """Return the header CRC of the block's last batch."""
    crc: int = _CRC.unpack_from(block.data, block.starts[-1] - block.start + HEADER_CRC_AT)[0]
    return crc


class Tail:
    """Contiguous batches `[start, end)` in memory."""

    def __init__(self, at: Position, cache_bytes: int) -> None:
        self.end = at
        self._cache_bytes = cache_bytes
        self._blocks: list[Block] = []
        self._block_starts: list[int] = []
        self._bytes = 0
        self._pieces: list[bytes] = []
        self._piece_starts: list[int] = []
        self._loose = 0
        self._unjoined: dict[Position, Sequence[bytes]] = {}  # pieces of blocks without bytes

    @property
    def start(self) -> Position:
        """The oldest position in memory; `end` if there is none."""
        if self._blocks:
            return self._blocks[0].start
        return Position(self._piece_starts[0]) if self._piece_starts else self.end

    @property
    def held(self) -> int:
        """The number of bytes in memory."""
        return self._bytes + self._loose

    # ---- adding
    def add(self, pieces: Sequence[bytes], length: int, end: Position) -> None:
        """Add one batch: its pieces (`length` bytes together), and the position where it ends."""
        self._piece_starts.append(self.end)
        self._pieces += pieces
        self._loose += length
        self.end = end
        if self._loose >= BLOCK_BYTES:
            self.seal()

    def add_long(self, pieces: Sequence[bytes], length: int, end: Position) -> None:
        """Add one batch; if it is long, its pieces are joined in a later turn of the loop."""
        if length < BLOCK_BYTES:
            self.add(pieces, length, end)
            return
        self.seal()
        start, self.end = self.end, end
        self._blocks.append(Block(start, end, array("Q", [start]), b"", False))
        self._block_starts.append(start)
        self._bytes += length
        self._unjoined[start] = pieces

    def add_stored(self, data: bytes, starts: Sequence[int], end: Position) -> None:
        """Add batches that are already one piece; an EOF can only be the last."""
        self._piece_starts += starts
        self._pieces.append(data)
        self._loose += len(data)
        self.end = end
        if self._loose >= BLOCK_BYTES:
            self.seal()

    def close_segment(self) -> None:
        """Close the segment after the last batch added (an EOF, or one that fits exactly)."""
        self.seal(closes_segment=True)

    def seal(self, *, closes_segment: bool = False) -> None:
        """Join the loose pieces into a block."""
        if not self._pieces:
            if closes_segment:  # they were joined already
                self._blocks[-1] = self._blocks[-1]._replace(closes_segment=True)
            return
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        start = Position(self._piece_starts[0])
        starts = array("Q", self._piece_starts)
        self._blocks.append(Block(start, self.end, starts, data, closes_segment))
        self._block_starts.append(start)
        self._bytes += len(data)
        self._pieces, self._piece_starts, self._loose = [], [], 0

    def _join(self) -> None:
        """Join pending appends into blocks, so that a reader can use them."""
        self.seal()
        while self._unjoined:
            start, pieces = next(iter(self._unjoined.items()))
            at = bisect_left(self._block_starts, start)
            self._blocks[at] = self._blocks[at]._replace(data=b"".join(pieces))
            del self._unjoined[start]

    # ---- taking
    def blocks_from(self, position: Position, max_bytes: int) -> list[Block]:
        """Return blocks from `position` (a block's start) on, at least one, within one segment."""
        self._join()
        first = bisect_left(self._block_starts, position)
        taken: list[Block] = []
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            max_bytes -= len(block.data)
            if taken and max_bytes < 0:
                break
            taken.append(block)
            if block.closes_segment:
                break
        return taken

    def read(self, position: Position, max_bytes: int) -> bytes | None:
        """Return whole batches from `position` on, at least one, up to an EOF; None if not held."""
        if position >= self.end:
            return b"" if position == self.end else None
        if position < self.start:
            return None
        self._join()
        index = bisect_right(self._block_starts, position) - 1
        parts: list[bytes | memoryview] = []
        while index < len(self._blocks):
            block = self._blocks[index]
            part, whole = _slice(block, position, max_bytes, at_least_one=not parts)
            if len(part):
                parts.append(part)
            if not whole or block.closes_segment:
                break
            max_bytes -= len(part)
            position = block.end
            index += 1
        if len(parts) == 1 and isinstance(parts[0], bytes):
            return parts[0]
        return b"".join(parts)

    # ---- letting go
    def evict(self, written_end: Position) -> None:
        """Drop the oldest blocks over the limit, but none that is not yet written."""
        count, over = 0, self._bytes - self._cache_bytes
        for block in self._blocks:
            if over <= 0 or block.end > written_end:
                break
            over -= len(block.data)
            self._bytes -= len(block.data)
            count += 1
        del self._blocks[:count], self._block_starts[:count]

    def drop_below(self, journal_start: Position) -> None:
        """Drop blocks below `journal_start`: their segments were removed, all of them written."""
        count = bisect_left(self._block_starts, journal_start)
        self._bytes -= sum(len(block.data) for block in self._blocks[:count])
        del self._blocks[:count], self._block_starts[:count]

    def cut(self, position: Position) -> None:
        """Drop everything from `position` (a batch boundary) on."""
        self._join()
        self.end = position
        while self._blocks and self._blocks[-1].end > position:
            block = self._blocks.pop()
            self._block_starts.pop()
            self._bytes -= len(block.data)
            if block.start < position:
                count = bisect_left(block.starts, position)
                data = block.data[: position - block.start]
                kept = Block(block.start, position, block.starts[:count], data, False)
                self._blocks.append(kept)
                self._block_starts.append(kept.start)
                self._bytes += len(data)

    def restart(self, position: Position) -> None:
        """Drop everything and continue from `position`."""
        self.__init__(position, self._cache_bytes)  # type: ignore[misc]


def _slice(
    block: Block, position: Position, max_bytes: int, *, at_least_one: bool
) -> tuple[bytes | memoryview, bool]:
    """Return the part of `block` from `position` on that fits, and whether nothing is left out."""
    at = position - block.start
    if len(block.data) - at <= max_bytes:
        if at == 0:
            return block.data, True
        _require_boundary(block, position)
        return memoryview(block.data)[at:], True
    first = _require_boundary(block, position)
    # The last boundary that is still within reach of `max_bytes`.
    last = bisect_right(block.starts, position + max_bytes) - 1
    if last <= first:
        if not at_least_one:
            return b"", False
        last = first + 1
    if last == len(block.starts):
        return memoryview(block.data)[at:], True
    return memoryview(block.data)[at : block.starts[last] - block.start], False


def _require_boundary(block: Block, position: Position) -> int:
    index = bisect_left(block.starts, position)
    if index == len(block.starts) or block.starts[index] != position:
        raise NotFound(f"no batch begins at position {position}")
    return index
