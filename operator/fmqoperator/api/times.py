"""Moments as Kubernetes writes them. Pure: the moment is given."""

from datetime import UTC, datetime


def as_text(unix_ms: int) -> str:
    """E.g. 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_text(text: str) -> int:
    """The same back, in unix ms."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def is_moment(text: str) -> bool:
    """Whether `of_text` can read it: for a status' schema it is any text."""
    try:
        of_text(text)
    except (ValueError, OverflowError):
        return False
    return True
