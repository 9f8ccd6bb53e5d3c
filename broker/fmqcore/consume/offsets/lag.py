"""How far a consumer group is behind in one queue: the one definition behind every figure. Pure.

Lag is the number of messages that the group can still be given: they are stored here, committed,
and not acknowledged. Neither what retention has deleted nor what is acknowledged out of order,
above the first message that is not, is to come.
"""

from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.ids import Offset


def acked_above(entry: OffsetEntry, begin: Offset, end: Offset) -> int:
    """How many messages are acknowledged out of order in [begin, end), above the floor."""
    low = max(entry.floor, begin)
    return sum(max(min(to, end) - max(at, low), 0) for at, to in entry.ranges)


def lag(committed: int, begin: int, end: int, acked: int = 0) -> int:
    """Messages to come: of [begin, end), without what is done up to `committed` and above it."""
    return max(end - max(committed, begin) - acked, 0)
