"""Read a file or standard input piece by piece, without ever blocking the loop.

A daemon thread reads: one that waits at a terminal cannot be told to stop, and must not keep the
process alive.
"""

import asyncio
import os
import select
import threading
from collections.abc import AsyncIterator
from typing import Final

from fmqclient.cli.streams import wait_for

_PIECE: Final = 256 * 1024
_AHEAD: Final = 8  # pieces read ahead


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
                return  # the loop is closed: nobody wants it any more

    def _some(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, _PIECE)
            except BlockingIOError:
                wait_for(self._fd, select.POLLIN)


async def lines(fd: int) -> AsyncIterator[list[bytes]]:
    """Lines without their newline, all that came at once in one list; the last may lack one."""
    rest = b""
    async for piece in Pieces(fd):
        *whole, rest = (rest + piece).split(b"\n")
        if whole:
            yield whole
    if rest:
        yield [rest]


async def everything(fd: int) -> bytes:
    """The whole file."""
    return b"".join([piece async for piece in Pieces(fd)])
