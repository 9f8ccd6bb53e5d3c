"""Read a file or standard input piece by piece, without ever blocking the loop.

A daemon thread reads: a read that waits at a terminal cannot be stopped, and must not keep the
process alive.
"""

import asyncio
import os
import select
import threading
from collections.abc import AsyncIterator
from typing import Final

from fmqcli.stdio.streams import wait_for
from fmqcore.errors import TooLarge

_PIECE: Final = 256 * 1024
_AHEAD: Final = 8  # pieces read ahead
_LONGEST: Final = 4 * 2**20
"""Bytes of a key and a value: more than any topic takes. Less is for the producer to judge."""


class Pieces:
    """The bytes of a file descriptor as they come."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._read, daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            piece = await self._pieces.get()
            if isinstance(piece, OSError):
                raise piece
            if not piece:
                return
            self._room.release()
            yield piece

    def _read(self) -> None:
        piece: bytes | OSError = b"-"
        while piece and not isinstance(piece, OSError):
            self._room.acquire()
            try:
                piece = self._some()
            except OSError as error:
                piece = error
            try:
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
            except RuntimeError:
                return  # the loop is closed: no task waits for it

    def _some(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, _PIECE)
            except BlockingIOError:
                wait_for(self._fd, select.POLLIN)


async def lines(fd: int) -> AsyncIterator[list[bytes]]:
    """Yield lines without newline, all that came at once in one list; the last may lack one.

    A line that is too long for any message ends it, so that it does not fill the memory. Raises
    `TooLarge`.
    """
    partial: list[bytes] = []  # of a line that goes on
    size = 0
    async for piece in Pieces(fd):
        first, newline, rest = piece.partition(b"\n")
        partial.append(first)
        size += len(first)
        _require_room(size, "a line")
        if newline:
            *more, last = rest.split(b"\n")
            yield [b"".join(partial), *more]
            partial, size = [last], len(last)
    if size:
        yield [b"".join(partial)]


async def everything(fd: int) -> bytes:
    """Return the whole file. Raises `TooLarge` if no message can hold it."""
    pieces: list[bytes] = []
    size = 0
    async for piece in Pieces(fd):
        pieces.append(piece)
        size += len(piece)
        _require_room(size, "the input")
    return b"".join(pieces)


def _require_room(size: int, what: str) -> None:
    if size > _LONGEST:
        raise TooLarge(f"{what} is longer than any message may be ({_LONGEST // 2**20} MiB)")
