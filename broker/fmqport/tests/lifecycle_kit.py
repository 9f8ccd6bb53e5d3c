"""What the lifecycle's conformance suite runs: two programs, and how to run one as a real process.

python -m fmqport.tests.lifecycle_kit waits|dies
"""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from fmqadapters.process.lifecycle import FATAL_EXIT, ProcessLifecycle
from fmqport.lifecycle import Lifecycle

REASON: Final = "fsync of segment 0 failed"
Say = Callable[[str], object]
Program = Callable[[Lifecycle, Say], Awaitable[None]]


async def waits(lifecycle: Lifecycle, say: Say) -> None:
    """Until it is asked to stop; then it ends in order."""
    try:
        say("ready")
        await lifecycle.stopping.wait()
        say("stopping")
        await asyncio.sleep(0)
    finally:
        say("cleaned up")


async def dies(lifecycle: Lifecycle, say: Say) -> None:
    """It cannot go on, and neither can what runs beside it."""

    async def beside() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            say("cleaned up beside")

    other = asyncio.create_task(beside())
    await asyncio.sleep(0)
    say("ready")
    try:
        lifecycle.fatal(REASON)
    finally:
        other.cancel()
        await asyncio.sleep(0)
        say("cleaned up")


PROGRAMS: Final[dict[str, Program]] = {"waits": waits, "dies": dies}


class Life(Protocol):
    """A program's life, seen from outside."""

    async def begin(self, program: str) -> None:
        """Start it; returns when it has said that it is ready."""
        ...

    async def ask_to_stop(self) -> None:
        """As an operator does."""
        ...

    async def end(self) -> tuple[list[str], str]:
        """Wait for its end: what it said, and why it died ("" = in good order)."""
        ...

    async def close(self) -> None:
        """Nothing of it is left."""
        ...


class RealLife:
    """A process."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        """It."""
        assert self._process is not None
        return self._process

    async def begin(self, program: str) -> None:
        """See `Life`."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fmqport.tests.lifecycle_kit", program, stdout=PIPE, stderr=PIPE
        )
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n"

    async def ask_to_stop(self) -> None:
        """See `Life`."""
        self.process.send_signal(self._number)

    async def end(self) -> tuple[list[str], str]:
        """See `Life`."""
        async with asyncio.timeout(60):
            said, why = await self.process.communicate()
        assert self.process.returncode == (FATAL_EXIT if why else 0)
        return ["ready", *said.decode().splitlines()], why.decode().strip()

    async def close(self) -> None:
        """See `Life`."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def _main(program: str) -> None:
    await PROGRAMS[program](ProcessLifecycle(), lambda text: print(text, flush=True))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
