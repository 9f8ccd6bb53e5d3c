"""The words of DESIGN §1 as types: one word, one thing.

Not here: errors (`errors.py`), the batch header (`batch.py`).
"""

import re
from enum import Enum, IntFlag
from typing import Final, NewType

from fmqcore.errors import InvalidArgument

Position = NewType("Position", int)
"""A byte in a broker's journal."""

Offset = NewType("Offset", int)
"""A record's number in one queue. Never a `Position`."""

Epoch = NewType("Epoch", int)
"""One term of a group's reader or writer; goes up by one at every change. 0 = none yet."""

BrokerId = NewType("BrokerId", str)
"""A broker's name, unique in the cluster, e.g. `g1-0`."""

GroupName = NewType("GroupName", str)
"""A broker group's name, e.g. `g1`."""

TopicId = NewType("TopicId", int)
"""A topic's number: given once by ZooKeeper, never given again. 0 = no topic (control batches)."""

NAME_PATTERN: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?"
"""Clusters, groups, brokers, topics, consumer groups. Never used raw as a path."""

NAME_RULE: Final = (
    "1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit, "
    "not ending in '.' or '-'"
)
"""`NAME_PATTERN` for people."""

MAX_NAME: Final = 128
"""Letters of a name; see `NAME_PATTERN`."""

_NAME: Final = re.compile(NAME_PATTERN)

MAX_QUEUES: Final = 1024
"""Queues of one topic in one group (the header holds a u16)."""


def is_name(text: str) -> bool:
    """Tell whether `text` may name a cluster, group, broker, topic or consumer group."""
    return _NAME.fullmatch(text) is not None


def require_name(what: str, name: object) -> None:
    """Raise `InvalidArgument` unless it may name a `what`."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidArgument(no_name(what, name))


_SHOWN: Final = 160


def no_name(what: str, given: object) -> str:
    """What to tell who gave a name that is none; `what` is a topic, a broker, ..."""
    shown = repr(given)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}... ({len(shown):,} characters)"
    return f"{shown} is no name for a {what}: {NAME_RULE}"


class Permission(IntFlag):
    """What a broker serves: two bits."""

    NONE = 0
    READ = 1
    WRITE = 2
    FULL = 3


class Role(Enum):
    """What a broker is in its group."""

    MASTER = "master"
    SLAVE = "slave"
