"""The rule for names of clusters, groups, brokers, topics and consumer groups, and its check."""

import re
from typing import Final

from fmqcore.errors import InvalidArgument

NAME_PATTERN: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?"
"""For clusters, groups, brokers, topics and consumer groups. Never used raw as a path."""

NAME_RULE: Final = (
    "1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit, "
    "not ending in '.' or '-'"
)
"""`NAME_PATTERN` for people."""

MAX_NAME: Final = 128
"""Most characters in a name; see `NAME_PATTERN`."""

_NAME: Final = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Whether `text` may name a cluster, group, broker, topic or consumer group."""
    return _NAME.fullmatch(text) is not None


def require_name(what: str, name: object) -> None:
    """Raise `InvalidArgument` unless `name` may name a `what`."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidArgument(no_name(what, name))


_SHOWN: Final = 160


def no_name(what: str, given: object) -> str:
    """Return the message for an invalid name; `what` is a topic, a broker, ..."""
    shown = repr(given)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}... ({len(shown):,} characters)"
    return f"{shown} is no name for a {what}: {NAME_RULE}"
