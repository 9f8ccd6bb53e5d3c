"""Adapter of the lifecycle port: signals of this process."""

import asyncio
import os
import signal
from typing import NoReturn

from fmqadapters.process.logs import LAST_LINES_S, STDERR
from fmqadapters.process.signals import ending_signals

FATAL_EXIT = 70
"""Exit status after `fatal` (sysexits' EX_SOFTWARE)."""


class ProcessLifecycle:
    """The real `Lifecycle`. Create it inside the running loop."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (*ending_signals(), signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)

    def fatal(self, reason: str) -> NoReturn:
        """See `Lifecycle`: one line on standard error, then exit without cleanup."""
        try:
            STDERR.write(f"fmq: fatal: {reason}")
            STDERR.flush(LAST_LINES_S)
        finally:  # the end does not depend on whether it can be logged
            os._exit(FATAL_EXIT)
