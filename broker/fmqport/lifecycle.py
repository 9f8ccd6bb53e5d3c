"""Port: lifecycle. How a process learns that it must stop, and ends if it cannot go on."""

import asyncio
from typing import NoReturn, Protocol


class Lifecycle(Protocol):
    """Ends the process."""

    @property
    def stopping(self) -> asyncio.Event:
        """Set when an orderly stop was asked for (SIGTERM, SIGINT, SIGHUP)."""
        ...

    def fatal(self, reason: str) -> NoReturn:
        """End the process at once, without cleanup: its memory can no longer be trusted.

        In a simulator it raises a `BaseException` that takes the node down.
        """
        ...
