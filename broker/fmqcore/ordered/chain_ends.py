"""Up to which sequences a chain holds records, per queue. Pure."""

from fmqcore.zk.chain import Chain, PerQueue


def chain_end(chain: Chain) -> PerQueue | None:
    """Return the sequences of the chain's last records; None while an end before is not known."""
    if any(segment.end is None for segment in chain.segments):
        return None
    return known_end(chain)


def known_end(chain: Chain) -> PerQueue:
    """Return the highest sequences that the chain is known to hold, 0 where it has no record.

    A segment without a known end counts with its first sequences: all before were acknowledged.
    """
    values = [(0,) * chain.queues]
    if chain.floor.last_sequence:
        values.append(chain.floor.last_sequence)
    values.extend(s.last_sequence or tuple(n - 1 for n in s.first_sequence) for s in chain.segments)
    return tuple(max(column) for column in zip(*values, strict=True))
