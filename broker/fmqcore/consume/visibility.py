"""What readers may see of a journal and of one queue, as values. Pure.

Consumers, data jobs and lookups of positions get these values in place of the commit end. A rule
that hides more (messages of an open transaction, say) is one more limit where they are made:
`fmqbroker/consume/visible.py` for a broker, `fmqbroker/consume/chain_reads.py` for a chain.

*Withheld* are the records that are stored here and may not be read yet. In a healthy group they
wait some milliseconds for acks. After a restart a master knows as committed what its last
checkpoint noted; the rest is withheld until the policy holds for it, which may need a slave that is
away. `withheld_reason` decides which of both it is:

| this broker     | the policy    | withheld records                                               |
|-----------------|---------------|----------------------------------------------------------------|
| master          | can be met    | are about to be readable: no reason                            |
| master          | cannot be met | wait for the slaves that are not in sync                       |
| takeover reader | -             | wait for the master: they were not on this disk at its claim   |
"""

from collections.abc import Collection
from typing import NamedTuple

from fmqcore.ids import BrokerId, Offset, Position


class Visibility(NamedTuple):
    """The whole batches that end at or below `end`."""

    end: Position

    def shows(self, position: Position, length: int) -> bool:
        """Return whether readers may see the bytes from `position` on."""
        return position + length <= self.end

    def limited(self, end: Position) -> "Visibility":
        """Return what is also below `end`."""
        return Visibility(min(self.end, end))


class VisibleRange(NamedTuple):
    """The records [first, end) of one queue."""

    first: Offset
    end: Offset

    def limited(self, end: Offset) -> "VisibleRange":
        """Return what is also below `end`."""
        return VisibleRange(min(self.first, end), min(self.end, end))

    def clamp(self, offset: Offset) -> Offset:
        """Return the place in the range, its end included, that is nearest to `offset`."""
        return max(self.first, min(offset, self.end))

    def stored_end(self, next_offset: Offset) -> Offset:
        """Return the end of the stored records; those from `end` on are withheld.

        `next_offset`: one past the newest offset of the queue that is stored here.
        """
        return max(self.end, next_offset)


def withheld_reason(
    me: BrokerId, master: BrokerId, unmet: str | None, out_of_sync: Collection[BrokerId]
) -> str:
    """Return why withheld records may stay so, as a clause for people; "" = for a moment only.

    `unmet`: why the policy cannot be met; None while it can. `out_of_sync`: configured slaves.
    """
    if me != master:
        return f"they wait for master {master}" if master else "they wait for a master"
    if unmet is None:
        return ""
    if not out_of_sync:
        return unmet
    noun = "slave" if len(out_of_sync) == 1 else "slaves"
    return f"they wait for {noun} {', '.join(sorted(out_of_sync))} ({unmet})"
