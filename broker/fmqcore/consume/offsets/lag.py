"""How far a consumer group is behind in one queue: the only definition of lag. Pure.

Lag is the number of messages that the group can still be given: they are stored here, committed,
and not acknowledged. Messages that retention deleted do not count, nor do messages acknowledged
out of order, above the first one that is not.
"""

from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.ids import Offset


def acked_above(entry: OffsetEntry, begin: Offset, end: Offset) -> int:
    """Return how many messages in [begin, end) are acknowledged out of order, above the floor."""
    low = max(entry.floor, begin)
    return sum(max(min(to, end) - max(at, low), 0) for at, to in entry.ranges)


def lag(committed: int, begin: int, end: int, acked: int = 0) -> int:
    """Return the messages left in [begin, end): not below `committed`, and less `acked` above."""
    return max(end - max(committed, begin) - acked, 0)
