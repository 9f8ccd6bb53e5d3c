"""What readers may see of a journal and of one queue, as values. Pure.

Consumers, data jobs and lookups of positions get these values in place of the commit end. A rule
that hides more (messages of an open transaction, say) is one more limit where they are made:
`fmqbroker/consume/visible.py` for a broker, `fmqbroker/consume/chain_reads.py` for a chain.
"""

from typing import NamedTuple

from fmqcore.ids import Offset, Position


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
