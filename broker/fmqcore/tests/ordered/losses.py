"""What the loss of a takeover reader's disk takes from the consumers of the small world."""

from fmqcore.ordered.delivery import begin_offset
from fmqcore.tests.ordered.world import (
    CHAINS,
    CONSUMER,
    GROUPS,
    Protocol,
    Size,
    World,
    ends_of,
)


def with_cut_progress(w: World, i: int, p: Protocol, size: Size) -> World:
    """Cut a broker group's progress to its master's journal, as a master does that opens with less
    than its takeover reader served (`merge.within`); the consumers go back to the cut.

    That is the whole of what may come twice: of the segment that a consumer reads in this group,
    what it was delivered at or above the end of the master's journal. From there on it must get
    every record again, or the record that another sender has sent in its place, in order and
    without a gap, like one that never got them. What it has finished in a segment that its head
    has left is known to the chain (`Segment.passed`), and may not come again.
    """
    if p.keeps_lost_progress:
        return w
    own, ends = w.progress[i], ends_of(w.groups[i].master, size.queues)
    consumed = tuple(_place_after_cut(w, i, queue, end) for queue, end in enumerate(ends))
    cut = tuple(min(pair) for pair in zip(own, ends, strict=True))
    progress = (cut, w.progress[1]) if i == 0 else (w.progress[0], cut)
    return w._replace(progress=progress, consumed=consumed)


def _place_after_cut(w: World, i: int, queue: int, end: int) -> tuple[int, int]:
    """The consumer's place in a queue, if its progress falls to `end`."""
    chain, place = CHAINS[w.chain], w.consumed[queue]
    segment = chain.segment((chain.heads_of(CONSUMER) or (0,) * chain.queues)[queue])
    if segment is None or segment.group != GROUPS[i]:
        return place
    if w.counts[i] != chain.start_numbers_of(CONSUMER)[queue]:
        return place  # it has delivered nothing since this start
    start = chain.start_offsets_of(CONSUMER)[queue]
    first = begin_offset(chain, segment, CONSUMER, queue, start)
    if first is None or w.progress[i][queue] <= max(first, end):
        return place
    sequence = segment.first_sequence[queue] + max(first, end) - segment.start[queue]
    return min(place, (segment.sender_epoch, sequence - 1))
