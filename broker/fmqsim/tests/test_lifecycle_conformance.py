"""The lifecycle port's conformance suite, run with the simulated adapter."""

import asyncio

import pytest

from fmqport.tests.lifecycle_kit import PROGRAMS, Life
from fmqport.tests.test_lifecycle_conformance import *  # noqa: F403
from fmqsim.adapters.lifecycle import SimLifecycle
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node, Process


class SimLife:
    """A simulated process; output of a dead one is dropped, as it would be outside."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self._loop = loop
        self._node = Node(loop, "machine")
        self._lines: list[str] = []
        self._lifecycle: SimLifecycle | None = None

    async def begin(self, program: str) -> None:
        async def main(process: Process) -> None:
            self._lifecycle = SimLifecycle(self._loop, process)
            say = lambda text: self._lines.append(text) if process.alive else None  # noqa: E731
            await PROGRAMS[program](self._lifecycle, say)

        self._process = self._node.start(main)
        while "ready" not in self._lines:
            await asyncio.sleep(0.01)

    async def ask_to_stop(self) -> None:
        assert self._lifecycle is not None
        self._lifecycle.ask_to_stop()

    async def end(self) -> tuple[list[str], str]:
        while self._process.alive:
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)
        return self._lines, "" if self._process.ended == "done" else self._process.ended

    async def close(self) -> None:
        self._node.crash("the test is over")


@pytest.fixture  # type: ignore[no-redef]
async def life() -> Life:
    return SimLife()
