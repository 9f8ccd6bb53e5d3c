"""Settings of producers and consumers: every limit, with its default and unit."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.errors import InvalidArgument
from fmqcore.names import require_name
from fmqproto.v1 import client_pb2

LEVELS: Final = {
    "replicated": client_pb2.REPLICATED,
    "one_way": client_pb2.ONE_WAY,
    "received": client_pb2.RECEIVED,
    "persisted": client_pb2.PERSISTED,
    "all": client_pb2.ALL,
}
"""What `acks=` may say."""

T = TypeVar("T")
MIB: Final = 1024 * 1024
_LONGEST: Final = 1_000_000
"""Seconds (or, to linger, milliseconds) that anything may take."""
_MOST: Final = 2**40
"""Bytes or records that anything may hold."""


def _setting(default: T, meaning: str) -> T:
    """A field with its meaning as metadata; `docs/reference/settings.md` is generated from it."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """One producer."""

    acks: str = _setting("replicated", f"Level at which a send is answered: {', '.join(LEVELS)}.")
    linger_ms: float = _setting(
        0.0, "Time for which records are gathered; 0: until the event loop's next turn."
    )
    max_outstanding_bytes: int = _setting(
        32 * MIB, "Maximum bytes of records without an outcome; above it, `send` waits."
    )
    max_outstanding_records: int = _setting(
        100_000, "Maximum records without an outcome; above it, `send` waits."
    )
    max_batch_bytes: int = _setting(MAX_PAYLOAD, "Maximum bytes of a batch of one queue.")
    max_batch_records: int = _setting(MAX_RECORDS, "Maximum records of a batch of one queue.")
    pipeline: int = _setting(4, "Maximum unanswered requests per broker group.")
    delivery_timeout_s: float = _setting(
        120.0, "Time after which a record without an outcome fails."
    )
    close_timeout_s: float = _setting(30.0, "Maximum time of the flush when the producer closes.")
    born_time: bool = _setting(
        False, "Store the time at which each record was sent: 8 bytes per record."
    )
    client_name: str = _setting("", "Name shown in a broker's lists, from `connect(name=)`.")

    def __post_init__(self) -> None:
        if self.acks not in LEVELS:
            raise InvalidArgument(f"acks={self.acks!r} is none of {', '.join(LEVELS)}")
        _whole(self, 1, "max_outstanding_bytes", "max_outstanding_records", "pipeline")
        _whole(self, 1, "max_batch_records", "max_batch_bytes")
        _at_least(self, 0, "linger_ms")
        _at_least(self, 0.001, "delivery_timeout_s", "close_timeout_s")

    @property
    def level(self) -> client_pb2.AckLevel:
        """`acks` on the wire."""
        return LEVELS[self.acks]


def _at_least(settings: object, least: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int | float) or not least <= value <= _LONGEST:
            raise InvalidArgument(
                f"{name}={value!r} must be a number, at least {least}, at most {_LONGEST:,}"
            )


def _whole(settings: object, least: int, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or not least <= value < _MOST:
            raise InvalidArgument(
                f"{name}={value!r} must be a whole number, at least {least}, below {_MOST:,}"
            )


Start = str | int | datetime
"""Where to begin: "earliest", "latest", a moment (`datetime`, or milliseconds since 1970 UTC)."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """One consumer."""

    topic: str = field(metadata={"meaning": "The topic."})
    group: str = field(metadata={"meaning": "The consumer group."})
    start: Start = _setting(
        "earliest", "Where the group begins: earliest, latest, a datetime, ms since 1970 UTC."
    )
    ack: str = _setting(
        "manual", "manual: the program acks; auto: a message is acked when the next is taken."
    )
    buffer_bytes: int = _setting(
        4 * MIB, "Maximum bytes delivered and not yet taken, per broker group."
    )
    prefetch: int = _setting(
        10_000, "Maximum messages delivered and not yet taken, per broker group."
    )
    ack_timeout_s: float = _setting(
        0.0, "Time after which an unacknowledged message is redelivered; 0: the broker's setting."
    )
    close_timeout_s: float = _setting(
        5.0, "Maximum time of the last acknowledgements when the consumer closes."
    )
    temporary: bool = _setting(
        False, "Delete the group, if it is new, some minutes after its last member has left."
    )
    client_name: str = _setting("", "Name shown in a broker's lists, from `connect(name=)`.")

    def __post_init__(self) -> None:
        for what, name in (("topic", self.topic), ("consumer group", self.group)):
            require_name(what, name)
        if self.ack not in ("manual", "auto"):
            raise InvalidArgument(f"ack={self.ack!r} is neither 'manual' nor 'auto'")
        _whole(self, 1024, "buffer_bytes")
        _whole(self, 1, "prefetch")
        _at_least(self, 0, "ack_timeout_s", "close_timeout_s")
        start_at(self.start)

    def start_at(self) -> tuple[client_pb2.StartAt, int]:
        """`start` on the wire."""
        return start_at(self.start)


def start_at(start: Start) -> tuple[client_pb2.StartAt, int]:
    """A moment on the wire; raise `InvalidArgument`."""
    match start:
        case "earliest":
            return client_pb2.START_EARLIEST, 0
        case "latest":
            return client_pb2.START_LATEST, 0
        case datetime():
            try:
                return client_pb2.START_TIME, max(0, int(start.timestamp() * 1000))
            except (ValueError, OverflowError):  # local time, at an end of the calendar
                raise InvalidArgument(
                    f"start {start} is a time that no message can have: use a time after 1970"
                ) from None
        case int() if 0 <= start < 2**63 and not isinstance(start, bool):
            return client_pb2.START_TIME, start
        case _:
            raise InvalidArgument(
                f"start {start!r} must be 'earliest', 'latest', a datetime, or "
                "milliseconds since 1970 UTC (a whole number below 2**63)"
            )
