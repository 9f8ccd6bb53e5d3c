"""A command whose output has lost its reader ends, although it has nothing to write."""

import asyncio
import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from fmqcli import common
from fmqcli.stdio.reader_watch import ReaderWatch


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def test_waiting_command_ends_when_its_reader_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.close, reading)
        await for_ever()

    with open(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(common.ReaderGone):
            common.run(work, while_read=True)


async def test_readable_socket_is_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Incoming data is not the command's to read, and no sign that the peer has gone."""
    monkeypatch.setattr("fmqcli.stdio.reader_watch._POLL_S", 0.01)
    gone = asyncio.Event()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            watch = ReaderWatch(ours.fileno(), gone.set)
            theirs.send(b"hello")
            while watch._later is None:
                await asyncio.sleep(0)
            assert not gone.is_set()
        async with asyncio.timeout(30):
            await gone.wait()


async def test_files_are_not_watched_and_a_stopped_watch_is_silent(tmp_path: Path) -> None:
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        ReaderWatch(file.fileno(), pytest.fail).stop()
    reading, writing = os.pipe()
    watch = ReaderWatch(writing, pytest.fail)
    watch.stop()
    os.close(reading)
    await asyncio.sleep(0)
    os.close(writing)
