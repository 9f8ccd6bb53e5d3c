"""What a producer or a consumer may be told: every limit stated, with its default and unit."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fmqcore.batch import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.errors import InvalidArgument
from fmqcore.words import require_name
from fmqproto.v1 import client_pb2

LEVELS: Final = {
    "replicated": client_pb2.REPLICATED,
    "one_way": client_pb2.ONE_WAY,
    "received": client_pb2.RECEIVED,
    "persisted": client_pb2.PERSISTED,
    "all": client_pb2.ALL,
}
"""What `acks=` may say."""

MIB: Final = 1024 * 1024
_LONGEST: Final = 1_000_000
"""Seconds (or, to linger, milliseconds) that anything may take."""
_MOST: Final = 2**40
"""Bytes or records that anything may hold."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """One producer."""

    acks: str = "replicated"
    linger_ms: float = 0.0  # 0: as soon as the loop turns
    max_outstanding_bytes: int = 32 * MIB
    max_outstanding_records: int = 100_000
    max_batch_bytes: int = MAX_PAYLOAD
    max_batch_records: int = MAX_RECORDS
    pipeline: int = 4  # unanswered messages per group
    delivery_timeout_s: float = 120.0
    close_timeout_s: float = 30.0
    born_time: bool = False  # store when each record was handed in (8 bytes a record)
    client_name: str = ""  # for people, in a broker's lists

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

    topic: str
    group: str
    start: Start = "earliest"
    ack: str = "manual"  # or "auto": acknowledged when the next message is asked for
    buffer_bytes: int = 4 * MIB  # delivered and not yet taken by the program, per broker group
    prefetch: int = 10_000  # messages, in the same way
    ack_timeout_s: float = 0.0  # delivered again if not acked in time; 0 = the broker's default
    close_timeout_s: float = 5.0
    temporary: bool = False  # a new group, and its progress, go some minutes after its members
    client_name: str = ""

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
