"""Simulator adapter of the lifecycle port: start to end of a simulated process."""

import asyncio
from typing import NoReturn

from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Crashed, Process


class SimLifecycle:
    """The simulated `Lifecycle`."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self.stopping = asyncio.Event()
        self._loop = loop
        self._process = process

    def ask_to_stop(self) -> None:
        """Ask the process to stop, as SIGTERM from outside does."""
        self._loop.on_node(self._process, self.stopping.set)

    def fatal(self, reason: str) -> NoReturn:
        """See `Lifecycle`: dead from this line on; code that catches the error has no effect."""
        if self._process.alive:
            self._process.node.crash(f"fatal: {reason}")
        raise Crashed(reason)
