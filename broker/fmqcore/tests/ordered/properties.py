"""What must hold in every small world: an acknowledged record stays, and can be read."""

from fmqcore.ordered.delivery import first_offset
from fmqcore.tests.ordered.world import (
    CHAINS,
    CONSUMER,
    GROUPS,
    NEVER,
    Record,
    Size,
    World,
    record_at,
)
from fmqcore.zk.chain import Chain, Segment


def broken(w: World, size: Size) -> str:
    """Return the property that this world breaks; "" = none.

    Each acknowledged record that is not consumed lies on both disks of a group that the chain has
    for it, and the segment in which consumers will read it has a copy, which they have not passed.
    """
    if w.fault:
        return w.fault
    chain = CHAINS[w.chain]
    for c in w.clients:
        for queue, unacked in enumerate(c.unacked):
            epoch, consumed = w.consumed[queue]
            if epoch > c.epoch:
                continue
            done = consumed if epoch == c.epoch else _first_of(chain, c.epoch, queue) - 1
            for sequence in range(max(1, done + 1), unacked):
                what = _misses(w, chain, (queue, c.epoch, sequence), size)
                if what:
                    return f"acked {sequence} of epoch {c.epoch} {what}"
    return ""


def _first_of(chain: Chain, epoch: int, queue: int) -> int:
    """The first sequence of a sender epoch."""
    firsts = [s.first_sequence[queue] for s in chain.segments if s.sender_epoch == epoch]
    return min(firsts, default=NEVER)


def _misses(w: World, chain: Chain, record: Record, size: Size) -> str:
    """What an acknowledged record lacks; "" = nothing."""
    queue = record[0]
    places = []
    for s in chain.segments:
        if (offset := _place(s, record)) is not None:
            g = w.groups[GROUPS.index(s.group)]
            disks = (g.master[: g.durable], g.slave)
            copies = sum(record_at(d, queue, offset, size.queues) == record for d in disks)
            copies += g.wiped  # what was there is replicated again
            places.append((s.number, copies, s.end_unknown or g.lost))
    most = max((copies for _, copies, _ in places), default=0)
    if most < 2:
        return f"is on {most} disks"
    number, copies, moves = places[0]
    if not copies and not moves:
        return f"is lost in segment {number}, where it is read"
    return _skips(w, chain, record)


def _skips(w: World, chain: Chain, record: Record) -> str:
    """What passes a record that is not consumed, so that it is never delivered; "" = nothing.

    It is delivered in the first segment that has its place, so neither the head nor that group's
    progress may be above this. A delivery finds a skipped record only if another one follows.
    """
    queue = record[0]
    segment, offset = next((s, at) for s in chain.segments if (at := _place(s, record)) is not None)
    head = (chain.heads_of(CONSUMER) or (0,) * chain.queues)[queue]
    if segment.number < head:
        return f"is skipped: it lies in segment {segment.number}, and the head is at {head}"
    i = GROUPS.index(segment.group)
    counts = w.counts[i] == chain.start_numbers_of(CONSUMER)[queue]
    progress = w.progress[i][queue] if counts else 0
    first = first_offset(chain, segment, CONSUMER, queue) or 0
    if offset < max(first, progress):
        return f"is skipped: {segment.group} goes on at {max(first, progress)}, above {offset}"
    return ""


def _place(segment: Segment, record: Record) -> int | None:
    """The offset that a record has in a segment; None if it cannot be there."""
    queue, epoch, sequence = record
    offset = segment.start[queue] + sequence - segment.first_sequence[queue]
    below = segment.end is None or offset < segment.end[queue]
    own = segment.sender_epoch == epoch and segment.start[queue] <= offset
    return offset if own and below else None
