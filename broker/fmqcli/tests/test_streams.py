"""Standard input, output and error in unusual states."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fmqcli import common
from fmqcli.stdio.lines import everything, lines
from fmqcli.stdio.writer import Writer
from fmqcore.errors import TooLarge

LARGE = bytes(range(256)) * 4096  # more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Neither end of the pipe blocks."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    yield ends
    for end in ends:
        with suppress(OSError):  # closed already
            os.close(end)


@pytest.mark.parametrize(
    ("command", "code"), [("bogus", common.USAGE), ("version", 0), ("broker run", common.USAGE)]
)
def test_unwritable_messages_change_nothing(command: str, code: int) -> None:
    """A finished command ends with its result, even if its message cannot be written."""
    line = f"{sys.executable} -m fmq {command} 2>/dev/full"
    ended = subprocess.run(line, shell=True, stdout=subprocess.PIPE, check=False)
    assert ended.returncode == code


BROKER = """
import asyncio, os, structlog
from fmqcli.stdio.streams import stand_in
from fmqadapters.process.logs import log_to_stderr
from fmqadapters.process.lifecycle import ProcessLifecycle

async def main():
    log_to_stderr()
    for _ in range(1000):
        structlog.get_logger().warning("the disk is full")
    os.write(1, b"still there")
    ProcessLifecycle().fatal("the disk fails")

stand_in()
asyncio.run(main())
"""


def test_full_log_disk_does_not_end_the_program() -> None:
    """The log's disk is often the journal's: a broker continues, and `fatal` still ends it."""
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", BROKER], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert (ended.returncode, ended.stdout) == (70, b"still there")


async def test_output_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    out, end = pipe
    writer = Writer(end)
    writing = asyncio.create_task(writer.write(LARGE))
    seen = b""
    while not writing.done() or len(seen) < len(LARGE):
        await asyncio.sleep(0.001)
        with suppress(BlockingIOError):
            seen += os.read(out, 65536)
        if writing.done():
            await writing
    assert seen == LARGE
    writer.close()


def test_table_waits_for_non_blocking_output(pipe: tuple[int, int]) -> None:
    out, end = pipe
    program = (
        "import sys; from fmqcli.stdio.streams import stand_in; stand_in();"
        "from fmqcli.common import write; write(bytes(1_000_000))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=end) as running:
        os.close(end)
        os.set_blocking(out, True)
        time.sleep(0.3)  # it has filled the pipe
        seen = 0
        while part := os.read(out, 65536):
            seen += len(part)
    assert (running.returncode, seen) == (0, 1_000_000)


async def test_input_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    out, end = pipe
    reading = asyncio.ensure_future(anext(lines(out)))
    await asyncio.sleep(0.05)
    assert not reading.done()
    os.write(end, b"hello\n")
    assert await reading == [b"hello"]


async def test_lines_are_whole_however_input_is_split(tmp_path: Path) -> None:
    long = b"x" * 600_000
    for text in (
        b"a\n\nb\n" + long + b"\n\n" + long + b"\nthe last",
        b"",
        long,
        long + b"\n",
        b"\n",
    ):
        (tmp_path / "text").write_bytes(text)
        with (tmp_path / "text").open("rb") as file:
            found = [line async for some in lines(file.fileno()) for line in some]
        assert found == text.splitlines()


async def test_a_line_without_an_end_is_not_gathered_for_ever() -> None:
    """It filled the memory, took quadratic time, and was refused at last."""
    endless = os.open("/dev/zero", os.O_RDONLY)
    with pytest.raises(TooLarge, match="a line is longer"):
        await anext(lines(endless))
    with pytest.raises(TooLarge, match="the input is longer"):
        await everything(endless)
