"""Programs of the lifecycle conformance suite: two, and a way to run one as a real process.

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
    """Wait for the stop request, then end in order."""
    try:
        say("ready")
        await lifecycle.stopping.wait()
        say("stopping")
        await asyncio.sleep(0)
    finally:
        say("cleaned up")


async def dies(lifecycle: Lifecycle, say: Say) -> None:
    """Die by `fatal`, together with everything that runs beside it."""

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
    """A running program, seen from outside."""

    async def begin(self, program: str) -> None:
        """Start it; return once it has reported that it is ready."""
        ...

    async def ask_to_stop(self) -> None:
        """Ask it to stop, as an operator does."""
        ...

    async def end(self) -> tuple[list[str], str]:
        """Wait for its end; return its output and the reason ("" = orderly)."""
        ...

    async def close(self) -> None:
        """Clean up."""
        ...


class RealLife:
    """A process."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        """The process."""
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
            output, reason = await self.process.communicate()
        assert self.process.returncode == (FATAL_EXIT if reason else 0)
        return ["ready", *output.decode().splitlines()], reason.decode().strip()

    async def close(self) -> None:
        """See `Life`."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def _main(program: str) -> None:
    await PROGRAMS[program](ProcessLifecycle(), lambda text: print(text, flush=True))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
