"""Events at clients: what they did, and which answers they got. See `events.py`."""

from typing import NamedTuple


class Place(NamedTuple):
    """A queue of a topic in a broker group."""

    topic: str
    group: str
    queue: int

    def __str__(self) -> str:
        return f"{self.topic} {self.group}/{self.queue}"


class Sent(NamedTuple):
    """A record was handed to the producer; written down before.

    `order` names the records whose order is kept.
    """

    at_ms: float
    who: str
    record: int
    topic: str
    level: str  # `acks=` of the producer
    key: str = ""
    order: str = ""  # "" = none is promised; else records of one `who`, `order` and place keep it


class Stored(NamedTuple):
    """The producer reported OK. `offset` -1: a level without an answer."""

    at_ms: float
    who: str
    record: int
    place: Place
    offset: int


class Failed(NamedTuple):
    """The producer reported that the record was certainly not stored."""

    at_ms: float
    who: str
    record: int
    reason: str


class Unsure(NamedTuple):
    """The producer reported an unknown outcome (`DeliveryUnknown`), or was cut off."""

    at_ms: float
    who: str
    record: int
    reason: str


class Joined(NamedTuple):
    """A member of a consumer group has joined. `start` as in `consumer(start=)`."""

    at_ms: float
    who: str
    readers: str
    topic: str
    start: str = "earliest"


class Left(NamedTuple):
    """A member has left, in good order or not."""

    at_ms: float
    who: str
    readers: str
    orderly: bool


class Delivered(NamedTuple):
    """The program got a message; `record` -1: a value that no producer sent. `attempt` from 1.

    `epoch`: the term in which a broker delivered it to the client; 0: not known.
    """

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int
    record: int
    attempt: int = 1
    key: str = ""
    epoch: int = 0


class Acked(NamedTuple):
    """The program reported that it is done with a message."""

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int


class Nacked(NamedTuple):
    """The program gave a message back."""

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int
    delay_ms: int = 0


class Skipped(NamedTuple):
    """The member learned that `messages` more were deleted before its readers acked them."""

    at_ms: float
    who: str
    readers: str
    place: Place
    messages: int


class Committing(NamedTuple):
    """The member asks that all its acks so far be stored."""

    at_ms: float
    who: str
    readers: str


class Committed(NamedTuple):
    """The answer to its newest `Committing`. `reason` "" = stored; `stale`: some never will be."""

    at_ms: float
    who: str
    readers: str
    reason: str = ""
    stale: bool = False


class Seeking(NamedTuple):
    """A client moves a whole consumer group in one queue; until `Sought` it may have moved."""

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int


class Sought(NamedTuple):
    """The answer to a `Seeking`."""

    at_ms: float
    who: str
    readers: str
    place: Place
    reason: str = ""  # "" = done
    offset: int = -1  # the sought offset; or the reader's first or last one


# ---- ordered topics: other places than those of events above, since a record may be stored twice


class OrderedOpened(NamedTuple):
    """A sender became the active one. `last`: by queue the last record before its first.

    -1: there is none; -2: it is there, and cannot be read. `accepts`: it need not know the ends of
    all segments before its own.
    """

    at_ms: float
    who: str
    topic: str
    last: tuple[int, ...]
    accepts: bool = False


class OrderedHandedOn(NamedTuple):
    """The chain got a segment for another sender, while the ends of these were not known."""

    at_ms: float
    topic: str
    segment: int
    unended: tuple[int, ...]


class OrderedLowered(NamedTuple):
    """The known end of a segment was lowered to `end`: no member of the group held more.

    `accepted`: a person accepted that records are lost by it.
    """

    at_ms: float
    topic: str
    segment: int
    end: tuple[int, ...]
    accepted: bool = False


class OrderedSent(NamedTuple):
    """A record was handed to the ordered producer; written down before. One key, one queue."""

    at_ms: float
    who: str
    topic: str
    record: int
    key: str


class OrderedStored(NamedTuple):
    """The ordered producer reported OK."""

    at_ms: float
    who: str
    topic: str
    record: int
    queue: int
    segment: int
    sequence: int
    group: str
    offset: int


class OrderedSought(NamedTuple):
    """A consumer group was moved to a time: what it gets from then on is written down.

    `to_ms`: milliseconds since 1970.
    """

    asked_ms: float
    at_ms: float
    readers: str
    topic: str
    to_ms: int


class OrderedUnsure(NamedTuple):
    """The ordered producer reported an error, was fenced, or died: stored or not."""

    at_ms: float
    who: str
    topic: str
    record: int
    reason: str


class OrderedDelivered(NamedTuple):
    """The program got a message of an ordered topic; `record` -1: no producer sent that value."""

    at_ms: float
    who: str
    readers: str
    topic: str
    queue: int
    segment: int
    group: str
    offset: int
    record: int
