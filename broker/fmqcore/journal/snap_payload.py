"""The layout of a SNAP payload, and readers of only a part."""

from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.control import take_properties
from fmqcore.batch.crc import Buffer, crc32c_of
from fmqcore.batch.fields import Fields
from fmqcore.batch.offset_entry import (
    QueueKey,
)
from fmqcore.ids import Offset, TopicId
from fmqcore.properties import Properties
from fmqcore.turns import PIECE, Turns, finish

_QUEUES_A_PIECE: Final = 1000
"""Next offsets between two pauses: below 1 ms."""
SNAP_VERSION: Final = 1
SNAP_COUNTS: Final = Struct("<HHIIII")
"""The head: version, flags, numbers of queues, epochs, topics and consumer offsets."""
EPOCH_START: Final = Struct("<IQ")
"""An epoch, and the position where it starts."""
TOPIC_QUEUES: Final = Struct("<IH")
"""A topic's id and its number of queues; its name follows."""
_QUEUE_OFFSET: Final = Struct("<IHQ")
"""A topic's id, a queue, and its next offset."""
MILLISECONDS: Final = Struct("<Q")
COUNT: Final = Struct("<I")
"""A count, or a topic's id."""
WITH_PROPERTIES: Final = 1
"""The flag of a SNAP that ends with the properties of topics."""


class Snapshot(NamedTuple):
    """A SNAP payload of one moment, in parts, and what it leaves out.

    The parts never change, so they may be joined in a later turn of an event loop.
    """

    parts: list[bytes]
    payload_len: int
    hours: tuple[int, ...]  # of which it leaves out the tombstones
    producers: int  # number of the longest idle producers that it leaves out
    now_ms: int

    @property
    def payload(self) -> bytes:
        """The payload in one piece: a copy of many megabytes."""
        return b"".join(self.parts)

    @property
    def payload_crc(self) -> int:
        """The CRC32C of the payload."""
        return crc32c_of(self.parts)

    def is_at(self, at: int, end: int, data: bytes) -> bool:
        """Return whether the payload is what `data` has there; compares without a copy."""
        for part in self.parts:
            if not data.startswith(part, at):
                return False
            at += len(part)
        return at == end


def snap_next_offsets(payload: Buffer) -> dict[QueueKey, Offset]:
    """Return only the next offsets of a SNAP payload; raise `Malformed`."""
    return finish(taking_next_offsets(payload))


def taking_next_offsets(payload: Buffer) -> Turns[dict[QueueKey, Offset]]:
    """Like `snap_next_offsets`, in pieces; `payload` must not change meanwhile."""
    fields = Fields(payload, "SNAP payload")
    return taking_queues(fields, take_snap_counts(fields)[1])


def snap_tables(payload: Buffer) -> tuple[dict[QueueKey, Offset], dict[TopicId, str]]:
    """Return only the next offsets and the topics' names of a SNAP payload; raise `Malformed`."""
    fields = Fields(payload, "SNAP payload")
    _, queues, epochs, topics, _ = take_snap_counts(fields)
    next_offsets = _take_queues(fields, queues)
    fields.many(EPOCH_START, epochs)
    names = {}
    for _ in range(topics):
        topic_id, _ = fields.take(TOPIC_QUEUES)
        names[TopicId(topic_id)] = fields.name()
    return next_offsets, names


def take_snap_counts(fields: Fields) -> tuple[int, int, int, int, int]:
    """Take a SNAP's head: flags, then numbers of queues, epochs, topics and consumer offsets."""
    version, flags, queues, epochs, topics, offsets = fields.take(SNAP_COUNTS)
    if version != SNAP_VERSION:
        raise fields.malformed(f"its version is {version}, this program reads {SNAP_VERSION}")
    return flags, queues, epochs, topics, offsets


def _take_queues(fields: Fields, queues: int) -> dict[QueueKey, Offset]:
    return finish(taking_queues(fields, queues))


def taking_queues(fields: Fields, queues: int) -> Turns[dict[QueueKey, Offset]]:
    """Take the next offset of each queue, in pieces."""
    next_offsets: dict[QueueKey, Offset] = {}
    for at in range(0, queues, _QUEUES_A_PIECE):
        if at:
            yield
        some = fields.many(_QUEUE_OFFSET, min(queues - at, _QUEUES_A_PIECE))
        next_offsets.update({(TopicId(t), q): Offset(o) for t, q, o in some})
    if len(next_offsets) != queues:
        raise fields.malformed("a queue occurs twice")
    return next_offsets


def taking_properties(fields: Fields) -> Turns[dict[TopicId, Properties]]:
    """Take the properties of each topic that has some, in pieces."""
    (count,) = fields.take(COUNT)
    properties = {}
    for number in range(1, count + 1):
        (topic_id,) = fields.take(COUNT)
        properties[TopicId(topic_id)] = take_properties(fields)
        if not number % PIECE:
            yield
    return properties
