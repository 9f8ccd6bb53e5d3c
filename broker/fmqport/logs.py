"""What a server process says of itself: one line an event, on standard error, for collectors.

Not the command line's talk (`fmqclient.cli.common`). Leaves nothing on disk.
"""

import sys
from contextlib import suppress

import structlog


def log_to_stderr() -> None:
    """One line an event, `key=value`, on standard error. Once, when the process starts."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        logger_factory=_Lines(),
        cache_logger_on_first_use=True,
    )


class _Lines:
    """Makes loggers for structlog, and is each of them."""

    def __call__(self, *_: object) -> "_Lines":
        return self

    def msg(self, line: str) -> None:
        """Write it, or lose it: a full disk below the log, or a collector that has gone, must not
        end what the line is about.
        """
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = msg
