"""Port: lifecycle. How a part learns that it must stop, and how it says that it cannot go on."""

import asyncio
from typing import NoReturn, Protocol


class Lifecycle(Protocol):
    """The process's life."""

    @property
    def stopping(self) -> asyncio.Event:
        """Set when an orderly stop was asked for (SIGTERM, SIGINT, SIGHUP)."""
        ...

    def fatal(self, reason: str) -> NoReturn:
        """End the process at once, with nothing cleaned up: what is in memory is in doubt.

        In a simulator it raises a `BaseException` that takes the node down.
        """
        ...
