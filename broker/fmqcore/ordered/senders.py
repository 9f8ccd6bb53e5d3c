"""How a sender stands in the line, and which records come before its first one. Pure."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from fmqcore.ids import GroupName, Offset
from fmqcore.zk.chain import Chain, Segment


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


class RecordPlace(NamedTuple):
    """Where a record lies."""

    sequence: int
    segment: int
    group: GroupName
    offset: Offset


def records_before(chain: Chain, sender_epoch: int) -> dict[int, RecordPlace]:
    """Return by queue the last record before the first one of that sender epoch.

    Left out: a queue without such a record, or whose record lies in a dropped segment. With an
    unknown end in between it is the last one that the chain is known to hold.
    """
    own = next((s for s in chain.segments if s.sender_epoch == sender_epoch), None)
    if own is None:
        return {}
    earlier = [s for s in chain.segments if s.number < own.number and s.end is not None]
    places = {}
    for queue in range(chain.queues):
        sequence = own.first_sequence[queue] - 1
        for segment in reversed(earlier):
            if (offset := _offset_of(segment, queue, sequence)) is not None:
                places[queue] = RecordPlace(sequence, segment.number, segment.group, offset)
                break
    return places


def _offset_of(segment: Segment, queue: int, sequence: int) -> Offset | None:
    """Return the offset of the record with that sequence (K3); None if the segment lacks it."""
    assert segment.end is not None
    offset = segment.start[queue] + sequence - segment.first_sequence[queue]
    return Offset(offset) if segment.start[queue] <= offset < segment.end[queue] else None
