"""Read a segment of which the disk does not give all: lost bytes are zeros, and reported.

So a check goes on behind a bad block as it goes on behind damage. The caller asks `is_lost` to
separate what it found from what it could not read. Leaves nothing on disk.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fmqinspect.directory import require_file
from fmqspark.source.files import SegmentBytes, Throttle

_BLOCK: Final = 4096
_MOST: Final = 64  # blocks: a disk may take seconds to say of each that it is lost


class PatchyBytes(SegmentBytes):
    """Like `SegmentBytes`, but reading raises nothing.

    A lost block is not asked for again, and behind `_MOST` of them no block is.
    """

    def __init__(self, fd: int, throttle: Throttle, *, sparse: bool = False) -> None:
        super().__init__(fd, throttle, sparse=sparse)
        self.why = ""
        """Why the first lost block could not be read."""
        self._lost: set[int] = set()
        self._given_up: int | None = None  # the first block that was not asked for

    def read(self, length: int, at: int) -> bytes:
        """Return `length` bytes from `at` on, fewer at the end."""
        end = min(at + length, len(self))
        if not self.is_lost(at, end):
            try:
                return super().read(length, at)
            except OSError as failed:
                self.why = self.why or failed.strerror or str(failed)
        pieces = []
        while at < end:
            until = min((at // _BLOCK + 1) * _BLOCK, end)
            pieces.append(self._block(at, until))
            if len(pieces[-1]) < until - at:
                break  # it became shorter
            at = until
        return b"".join(pieces)

    def is_lost(self, begin: int, end: int) -> bool:
        """Return whether any byte was asked for and not given; behind the end none is."""
        if not self.why or end <= begin:
            return False
        blocks = range(begin // _BLOCK, -(-min(end, len(self)) // _BLOCK))
        return any(map(self._is_lost, blocks))

    def lost(self) -> list[tuple[int, int]]:
        """Return all that is lost, ascending."""
        last = -(-len(self) // _BLOCK)
        given_up = last if self._given_up is None else self._given_up
        ranges = [(block, block + 1) for block in sorted(self._lost) if block < given_up]
        ranges += [(given_up, last)] if given_up < last else []
        joined: list[tuple[int, int]] = []
        for begin, end in ranges:
            first = joined.pop()[0] if joined and joined[-1][1] == begin else begin
            joined.append((first, end))
        return [(begin * _BLOCK, min(end * _BLOCK, len(self))) for begin, end in joined]

    def _is_lost(self, block: int) -> bool:
        return block in self._lost or (self._given_up is not None and block >= self._given_up)

    def _block(self, begin: int, end: int) -> bytes:
        block = begin // _BLOCK
        if not self._is_lost(block):
            try:
                return super().read(end - begin, begin)
            except OSError:
                if len(self._lost) == _MOST:
                    self._given_up = block
                else:
                    self._lost.add(block)
        return bytes(end - begin)


@contextmanager
def open_patchy(
    path: str, name: str, throttle: Throttle, *, sparse: bool = False
) -> Iterator[PatchyBytes]:
    """Open a segment or index file, which gives as many bytes as the disk does.

    Raises `OSError` if it does not open, or is no file: opening a pipe does not wait for its
    writer.
    """
    fd = os.open(Path(path, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        require_file(fd, name)
        yield PatchyBytes(fd, throttle, sparse=sparse)
    finally:
        os.close(fd)
