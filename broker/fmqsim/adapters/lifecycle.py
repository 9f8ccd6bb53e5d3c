"""Adapter of the lifecycle port: the life of a simulated process."""

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
        """SIGTERM, from outside the process."""
        self._loop.on_node(self._process, self.stopping.set)

    def fatal(self, reason: str) -> NoReturn:
        """See `Lifecycle`: dead from this line on; what catches the exception has no effect."""
        if self._process.alive:
            self._process.node.crash(f"fatal: {reason}")
        raise Crashed(reason)
