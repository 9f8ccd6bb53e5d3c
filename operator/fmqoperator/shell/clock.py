"""The time of day, as the API server writes it."""

import time
from datetime import UTC, datetime


def utc_text() -> str:
    """Return the present time, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def wall_ms() -> int:
    """Return milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
