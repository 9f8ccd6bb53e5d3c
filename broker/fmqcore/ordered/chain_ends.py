"""Up to which sequences a chain holds records, per queue. Pure.

Each function reads the chain once: it may have thousands of segments.
"""

from collections.abc import Iterator
from itertools import accumulate

from fmqcore.zk.chain import Chain, PerQueue, Segment


def chain_end(chain: Chain) -> PerQueue | None:
    """Return the sequences of the chain's last records; None while an end before is not known."""
    if any(segment.end is None for segment in chain.segments):
        return None
    return known_end(chain)


def known_end(chain: Chain) -> PerQueue:
    """Return the highest sequences that the chain is known to hold, 0 where it has no record.

    A segment without a known end counts with its first sequences: all before were acknowledged.
    """
    return tuple(max(column) for column in zip(*_known(chain), strict=True))


def known_ends(chain: Chain) -> Iterator[PerQueue]:
    """Yield for each segment the highest sequences that the chain is known to hold up to it."""
    ends = accumulate(_known(chain), highest)
    next(ends)  # before the first segment
    return ends


def _known(chain: Chain) -> Iterator[PerQueue]:
    yield chain.floor.last_sequence or (0,) * chain.queues
    for segment in chain.segments:
        yield segment.last_sequence or tuple(n - 1 for n in segment.first_sequence)


def reached_before(chain: Chain) -> Iterator[tuple[Segment, PerQueue | None]]:
    """Yield each segment with the highest sequences of the same sender epoch before it.

    None if there is none, an earlier end is not known, or a person accepted a loss.
    """
    reached: dict[int, PerQueue | None] = {}
    if chain.floor.last_sequence:
        reached[chain.floor.sender_epoch] = chain.floor.last_sequence
    for segment in chain.segments:
        epoch, last = segment.sender_epoch, segment.last_sequence
        yield segment, reached.get(epoch)
        before = reached.get(epoch, last)
        if last is None or before is None or segment.loss:
            reached[epoch] = None
        else:
            reached[epoch] = highest(last, before)


def highest(one: PerQueue, other: PerQueue) -> PerQueue:
    """Return the greater number of each queue."""
    return tuple(max(pair) for pair in zip(one, other, strict=True))
