"""How a sender stands in the line, and which records come before its first one. Pure."""

from collections.abc import Iterable, Sequence
from enum import Enum

from fmqcore.zk.chain import Chain, RecordPlace


def sender_of(place: str) -> str:
    """Return the sender that a node of the line stands for.

    A node is `<name>-<instance>-<token>-<number>`. A client that lost its node asks for another one
    with the same name and instance, and is the same sender.
    """
    return place.rsplit("-", 2)[0]


def line_of(places: Iterable[str], active: str) -> tuple[str, ...]:
    """Return the senders in line, each once, first in line first.

    `active`: the chain's sender. It keeps the role as long as it has a node, wherever that stands.
    """
    senders = dict.fromkeys(map(sender_of, places))
    return tuple(sorted(senders, key=lambda sender: sender != active))


class Standing(Enum):
    """What a sender may do."""

    ACTIVE = "active"  # it sends
    NEXT = "next"  # first in line: the chain is about to give it the role
    WAITING = "waiting"  # others are before it
    FENCED = "fenced"  # it was active, and a later sender is: final
    LOST = "lost"  # it has no node in the line, because a session with ZooKeeper ended


def standing_of(chain: Chain, line: Sequence[str], sender: str, epoch: int) -> Standing:
    """Return how a sender stands.

    `line`: the senders, first in line first (`line_of`). `epoch`: the sender epoch that the chain
    gave to it; 0 = none yet.
    """
    if epoch and chain.sender.epoch > epoch:
        return Standing.FENCED
    if sender not in line:
        return Standing.LOST
    if chain.sender.id == sender:
        return Standing.ACTIVE
    return Standing.NEXT if line[0] == sender else Standing.WAITING


def records_before(chain: Chain, sender_epoch: int) -> dict[int, RecordPlace]:
    """Return by queue the last record that consumers get before that sender epoch's first one.

    Left out: a queue without such a record, or whose record may lie above an end. With an unknown
    end in between it is the last one that the chain is known to hold.

    It is the highest sequence of the newest sender before that has a record. That one's sequences
    may be below those of an even earlier sender, whose end was not known then (`known_end`).
    """
    own = next((s for s in chain.segments if s.sender_epoch == sender_epoch), None)
    if own is None:
        return {}
    earlier = [s for s in chain.segments if s.number < own.number]
    places = {}
    for queue in range(chain.queues):
        dropped = chain.floor.last_records[queue : queue + 1]
        every = (*dropped, *(segment.last_record(queue) for segment in earlier))
        found = [place for place in every if place is not None]
        if any(place.sequence == own.first_sequence[queue] - 1 for place in found):
            places[queue] = max(found)
    return places
