"""What a server process says of itself: one line an event, on standard error, for collectors.

Not the command line's talk (`fmqclient.cli.common`). Leaves nothing on disk.
"""

import sys

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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
