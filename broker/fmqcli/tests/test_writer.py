"""Slow or failing output while the loop goes on."""

import asyncio
import os
import select
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fmqcli.common import NotWritten, ReaderGone
from fmqcli.stdio.writer import Writer

LARGE = bytes(range(256)) * 4096  # more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):  # closed already
            os.close(end)


async def test_slow_reader_does_not_block_the_loop(pipe: tuple[int, int]) -> None:
    """Everything arrives in order, as fast as it is read."""
    out, end = pipe
    writer = Writer(end)
    writing = asyncio.create_task(writer.write(LARGE))
    while not _readable(out):
        await asyncio.sleep(0.001)
    for _ in range(10):
        await asyncio.sleep(0)  # the loop turns
    assert not writing.done(), "there is no room for it in the pipe"
    seen = b""
    while len(seen) < len(LARGE):
        seen += await asyncio.to_thread(os.read, out, 65536)
    await writing
    await writer.write(b"next")
    assert seen == LARGE
    assert os.read(out, 100) == b"next"
    writer.close()


async def test_cancelled_in_a_stopped_write(pipe: tuple[int, int]) -> None:
    """Ctrl-C at a stopped terminal ends the wait."""
    out, end = pipe
    writer = Writer(end)
    writing = asyncio.create_task(writer.write(LARGE))
    while not _readable(out):
        await asyncio.sleep(0.001)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    seen = 0
    while seen < len(LARGE):  # so that the thread ends
        seen += len(await asyncio.to_thread(os.read, out, 65536))
    writer.close()


async def test_write_without_a_reader_fails(pipe: tuple[int, int]) -> None:
    """The reader has gone, before or during the write."""
    out, end = pipe
    writer = Writer(end)
    writing = asyncio.create_task(writer.write(LARGE))
    while not _readable(out):
        await asyncio.sleep(0.001)
    os.close(out)
    for wait in (writing, writer.write(b"more")):
        with pytest.raises(ReaderGone):
            await wait
    writer.close()


async def test_a_full_disk() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writer = Writer(full)
    with pytest.raises(NotWritten, match="No space left"):
        await writer.write(b"x")
    writer.close()
    os.close(full)


def _readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])
