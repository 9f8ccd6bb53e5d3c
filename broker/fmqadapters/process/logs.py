"""What a server process says of itself: one line an event, on standard error, for collectors.

Not the command line's talk (`fmqcli.common`). Leaves nothing on disk.
"""

import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")
"""From the least to the most severe; `critical` is always logged."""


class _Threshold:
    """Drops what is less severe than the level that is set now, also of loggers that exist."""

    def __init__(self) -> None:
        self.dropped: frozenset[str] = frozenset()

    def __call__(
        self, _logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """See structlog's processors."""
        if method in self.dropped:
            raise structlog.DropEvent
        return event


_threshold = _Threshold()


def set_log_level(level: str) -> None:
    """Log only events of that level, one of `LEVELS`, and of more severe ones."""
    _threshold.dropped = frozenset(LEVELS[: LEVELS.index(level)])


def log_to_stderr() -> None:
    """One line an event, `key=value`, on standard error. Once, when the process starts."""
    structlog.configure(
        processors=[
            _threshold,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        logger_factory=_Lines(),
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
