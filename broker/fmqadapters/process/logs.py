"""The log of a server process: one line per event, on standard error, for collectors.

Not the messages of the command line (`fmqcli.common`). Leaves nothing on disk.
"""

import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")
"""From the least to the most severe; `critical` is always logged."""


class _Threshold:
    """Drops events below the level that is set now, also from existing loggers."""

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
    """Log one line per event, `key=value`, to standard error. Call once, at process start."""
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
    """Logger factory for structlog, and each logger itself."""

    def __call__(self, *_: object) -> "_Lines":
        return self

    def msg(self, line: str) -> None:
        """Write the line, or lose it.

        A full disk or a collector that has gone must not end the work that the line is about.
        """
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = msg
