"""What must hold in every small world: an acknowledged record stays, and can be read."""

from fmqcore.tests.ordered.world import CHAINS, GROUPS, NEVER, Size, World, record_at
from fmqcore.zk.chain import Chain


def broken(w: World, size: Size) -> str:
    """Return the property that this world breaks; "" = none.

    Each acknowledged record that is not consumed lies on both disks of a group that the chain has
    for it, and the segment in which consumers will read it has a copy.
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


def _misses(w: World, chain: Chain, record: tuple[int, int, int], size: Size) -> str:
    """What an acknowledged record lacks; "" = nothing."""
    queue, epoch, sequence = record
    places = []
    for s in chain.segments:
        offset = s.start[queue] + sequence - s.first_sequence[queue]
        below = s.end is None or offset < s.end[queue]
        if s.sender_epoch == epoch and s.start[queue] <= offset and below:
            g = w.groups[GROUPS.index(s.group)]
            disks = (g.master[: g.durable], g.slave)
            copies = sum(record_at(d, queue, offset, size.queues) == record for d in disks)
            copies += g.wiped  # what was there is replicated again
            places.append((s.number, copies, s.end_unknown or g.lost))
    most = max((copies for _, copies, _ in places), default=0)
    if most < 2:
        return f"is on {most} disks"
    number, copies, moves = places[0]
    return f"is lost in segment {number}, where it is read" if not copies and not moves else ""
