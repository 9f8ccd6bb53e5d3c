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

    acks: str = _setting("replicated", f"When a send is answered: {', '.join(LEVELS)}.")
    linger_ms: float = _setting(0.0, "Records are gathered so long; 0: as soon as the loop turns.")
    max_outstanding_bytes: int = _setting(32 * MIB, "Without an outcome; over it, `send` waits.")
    max_outstanding_records: int = _setting(100_000, "Without an outcome; over it, `send` waits.")
    max_batch_bytes: int = _setting(MAX_PAYLOAD, "Of one queue's records in one message.")
    max_batch_records: int = _setting(MAX_RECORDS, "Of one queue's records in one message.")
    pipeline: int = _setting(4, "Unanswered messages per broker group.")
    delivery_timeout_s: float = _setting(120.0, "A record without an outcome is then given up.")
    close_timeout_s: float = _setting(30.0, "The last flush takes so long at most.")
    born_time: bool = _setting(False, "Store when each record was handed in: 8 bytes a record.")
    client_name: str = _setting("", "For people, in a broker's lists: `connect(name=)`.")

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
    ack: str = _setting("manual", "Or auto: acknowledged when the next message is asked for.")
    buffer_bytes: int = _setting(4 * MIB, "Delivered and not yet taken, per broker group.")
    prefetch: int = _setting(10_000, "Messages delivered and not yet taken, per broker group.")
    ack_timeout_s: float = _setting(0.0, "Not acknowledged by then: again; 0: the broker's time.")
    close_timeout_s: float = _setting(5.0, "The last acknowledgements take so long at most.")
    temporary: bool = _setting(False, "A new group goes some minutes after its last member.")
    client_name: str = _setting("", "For people, in a broker's lists: `connect(name=)`.")

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
                raise InvalidArgument(f"{start} is no time that a message can have") from None
        case int() if 0 <= start < 2**63 and not isinstance(start, bool):
            return client_pb2.START_TIME, start
        case _:
            raise InvalidArgument(
                f"{start!r} is no place to start: 'earliest', 'latest', a datetime, or "
                "milliseconds since 1970 UTC (a whole number below 2**63)"
            )
