"""The log of a server process: one line per event, on standard error, for collectors.

Not the messages of the command line (`fmqcli.common`). Leaves nothing on disk.
"""

import atexit
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from fmqadapters.process.stderr_lines import StderrLines

LEVELS: Final = ("debug", "info", "warning", "error")
"""From the least to the most severe; `critical` is always logged."""
LAST_LINES_S: Final = 0.5
"""Maximum time that a process waits at the end for a reader of the last lines."""


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


_RENDERING: Final = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    structlog.processors.LogfmtRenderer(
        key_order=["timestamp", "level", "event"], bool_as_flag=False
    ),
)


def log_to_stderr() -> None:
    """Log one line per event, `key=value`, to standard error. Call once, at process start."""
    atexit.register(STDERR.flush, LAST_LINES_S)
    structlog.configure(processors=[_threshold, *_RENDERING], logger_factory=_Lines())


def _describe_dropped(count: int) -> str:
    log = structlog.wrap_logger(structlog.ReturnLogger(), processors=_RENDERING)
    return str(log.warning("log_lines_dropped", count=count, reason="standard error is not read"))


STDERR: Final = StderrLines(_describe_dropped)
"""Standard error of this process, for its log."""


class _Lines:
    """Logger factory for structlog, and each logger itself."""

    def __call__(self, *_: object) -> "_Lines":
        return self

    def msg(self, line: str) -> None:
        """Write the line without waiting for a reader (see `StderrLines`)."""
        STDERR.write(line)

    debug = info = warning = error = critical = msg
