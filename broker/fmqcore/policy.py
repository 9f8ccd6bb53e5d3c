"""What an acknowledgement needs: flush × a slave counts when × how many (DESIGN §4).

Pure. Computes the commit end from the ends of master and slaves, whether a policy can be met at
all, and how many slaves a master must hear after an unclean restart. Says nothing of time.
"""

from dataclasses import dataclass
from enum import Enum


class Flush(Enum):
    """When the master itself counts a batch."""

    OS_CACHE = "os-cache"  # written to the page cache
    INTERVAL = "interval"  # as os-cache; fsynced every `flush_interval_ms` in the background
    FSYNC = "fsync"  # fsynced


class SlaveCounts(Enum):
    """When a slave counts towards the policy."""

    SENT = "sent"  # handed to its stream
    RECEIVED = "received"  # acknowledged as received
    DURABLE = "durable"  # acknowledged as fsynced


class HowMany(Enum):
    """How many slaves must count."""

    NONE = "none"
    ONE = "one"
    MAJORITY = "majority"  # of all members, the master included
    ALL = "all"  # every slave of the in-sync set; see `AckPolicy.strict`
    ZONES = "zones"  # one slave in the master's zone and one in another


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """A group's policy. `strict`: ALL means every configured slave, in sync or not."""

    flush: Flush = Flush.FSYNC
    flush_interval_ms: int = 1000
    counts: SlaveCounts = SlaveCounts.DURABLE
    how_many: HowMany = HowMany.ONE
    strict: bool = False
