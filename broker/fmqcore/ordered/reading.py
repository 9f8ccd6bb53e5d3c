"""The stretches of a chain that its readers get, in their order, without a subscription. Pure.

Spark's source and the archive read them: each record of the ordered topic once, in order per queue.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fmqcore.ids import GroupName
from fmqcore.ordered.delivery import first_offset, visible_end
from fmqcore.ordered.evidence import Serving
from fmqcore.zk.chain import Chain, Segment

NO_SUBSCRIPTION = ""
"""The name of no subscription: nothing was passed before a release."""


class Stretch(NamedTuple):
    """Records of one queue in one segment: offsets [first, end) of the group's queue."""

    segment: int
    group: GroupName
    queue: int
    first: int
    end: int
    sequence: int  # of the record at `first`

    @property
    def shift(self) -> int:
        """What a record's offset plus this gives: its sequence."""
        return self.sequence - self.first


class Reading(NamedTuple):
    """What may be read, and for each queue that ends early the reason."""

    stretches: list[Stretch]
    notices: list[str]


def read_order(chain: Chain, held: Mapping[GroupName, Sequence[int]]) -> Reading:
    """Return the stretches, by queue and then in the order of the chain.

    `held`: per group and queue the next offset up to which each member is known to hold all; used
    for the open segment only. Without it nothing of that segment is read.
    """
    found = Reading([], [])
    for queue in range(chain.queues):
        for segment in chain.segments:
            first = first_offset(chain, segment, NO_SUBSCRIPTION, queue)
            assert first is not None, "the loop ends at an end that is not known"
            end = _end(chain, segment, queue, held)
            if end > first:
                found.stretches.append(_stretch(segment, queue, first, end))
            if segment.end is None and (segment is not chain.last or chain.closing is not None):
                found.notices.append(_not_known(segment, queue))
                break
    return found


def _not_known(segment: Segment, queue: int) -> str:
    reason = "unknown: a member has to come back" if segment.end_unknown else "not given yet"
    return (
        f"queue {queue}: nothing is read from segment {segment.number} of {segment.group} on, "
        f"because the end of that segment is {reason}"
    )


def _end(
    chain: Chain, segment: Segment, queue: int, held: Mapping[GroupName, Sequence[int]]
) -> int:
    if segment.end is not None:
        return segment.end[queue]
    ends = held.get(segment.group)
    return visible_end(chain, segment, queue, Serving.MASTER, None if ends is None else ends[queue])


def _stretch(segment: Segment, queue: int, first: int, end: int) -> Stretch:
    sequence = segment.first_sequence[queue] + first - segment.start[queue]
    return Stretch(segment.number, segment.group, queue, first, end, sequence)
