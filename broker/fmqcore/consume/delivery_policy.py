"""Where a delivered piece that comes back goes: delivered again, put aside, or dropped. Pure.

| cause | the piece |
|---|---|
| UNSENT | was put into flight, and could not be sent |
| NACKED | was given back by its holder, perhaps with a delay |
| OVERDUE | was not acked in time |
| HOLDER_GONE | was in flight when its holder ended |

`QueueProgress` (`in_flight.py`) asks its policy at all four, and does what the verdict states. The
present policy delivers everything again; one that gives up after some deliveries belongs here.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from fmqcore.ids import Offset


class Cause(Enum):
    """Why a delivered piece is delivered again."""

    UNSENT = "unsent"
    NACKED = "nacked"
    OVERDUE = "overdue"
    HOLDER_GONE = "holder gone"


class Returned(NamedTuple):
    """A range of one queue that comes back."""

    first: Offset
    end: Offset
    deliveries: int
    """How often a program got it."""
    cause: Cause
    now_ms: int
    not_before_ms: int
    """When its holder wants it delivered again; not later than now: at once."""


class RedeliverAt(NamedTuple):
    """Deliver it again at that moment, at once if that is not later than now."""

    due_ms: int


class Removal(Enum):
    """How a piece ends that is not delivered again."""

    DROP = "drop"  # it is done
    DEAD_LETTER = "dead letter"  # put aside, to be stored elsewhere: done once that acks it


Verdict = RedeliverAt | Removal
DeliveryPolicy = Callable[[Returned], Verdict]


class Removed(NamedTuple):
    """A range that the policy took out of the deliveries."""

    first: Offset
    end: Offset
    deliveries: int
    removal: Removal


def redeliver(returned: Returned) -> Verdict:
    """Return the verdict to deliver the piece again, when its holder wants it."""
    return RedeliverAt(returned.not_before_ms)
