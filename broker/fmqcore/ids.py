"""Identifiers and small enumerations as types.

Not here: names and their rule (`names.py`), errors (`errors.py`), the batch header (`batch`).
"""

from enum import Enum, IntFlag
from typing import Final, NewType

Position = NewType("Position", int)
"""A byte position in a broker's journal."""

Offset = NewType("Offset", int)
"""A record's number in one queue. Never a `Position`."""

Epoch = NewType("Epoch", int)
"""One term of a group's reader or writer; increases by one at every change. 0 = none yet."""

BrokerId = NewType("BrokerId", str)
"""A broker's name, unique in the cluster, e.g. `g1-0`."""

GroupName = NewType("GroupName", str)
"""A broker group's name, e.g. `g1`."""

TopicId = NewType("TopicId", int)
"""A topic's number, assigned by ZooKeeper and never reused. 0 = no topic (control batches)."""

MAX_QUEUES: Final = 1024
"""Most queues of one topic in one group (the header holds a u16)."""


class Permission(IntFlag):
    """What a broker may serve, as two bits."""

    NONE = 0
    READ = 1
    WRITE = 2
    FULL = 3


class Role(Enum):
    """What a broker is in its group."""

    MASTER = "master"
    SLAVE = "slave"
