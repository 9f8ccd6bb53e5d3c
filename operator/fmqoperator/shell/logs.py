"""What the operator logs to standard error: its own events and its libraries' warnings."""

import logging
from datetime import UTC, datetime
from typing import Final

from fmqadapters.process.logs import STDERR, log_to_stderr

_FORM: Final = "timestamp=%(asctime)s level=%(levelname)s event=%(name)s message=%(message)r"
_WARMING_UP: Final = ("will retry", "TooManyRequests")
"""In kopf's error when the API server has no room yet for a list (of new definitions)."""


class _Form(logging.Formatter):
    """The form of the operator's own lines: RFC 3339, in UTC, and levels in small letters."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging`."""
        return super().format(logging.makeLogRecord(vars(record) | {"levelname": _level(record)}))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """See `logging`."""
        del datefmt
        at = datetime.fromtimestamp(record.created, UTC)
        return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Stderr(logging.Handler):
    """Writes without waiting for a reader, as the operator's own lines are written."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging`."""
        STDERR.write(self.format(record))


def _level(record: logging.LogRecord) -> str:
    return record.levelname.lower()


def matters(record: logging.LogRecord) -> bool:
    """Whether to log it: not if it is tried again within seconds and is no failure."""
    text = record.getMessage()
    return not all(words in text for words in _WARMING_UP)


def log_everything() -> None:
    """Start logging."""
    handler = _Stderr()
    handler.setFormatter(_Form(_FORM))
    handler.addFilter(matters)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log_to_stderr()
