"""Typed errors: what peers, disks and users get. `assert` is for our own bugs only.

Every message says what, where and what to do. `code` is the number that travels on the wire
(`fmqproto.v1.client.ErrorCode`; a test keeps the two equal).
"""

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """Why a request was refused; the same numbers as on the wire."""

    OK = 0
    NO_PERMISSION = 1
    UNKNOWN_TOPIC = 2
    UNKNOWN_QUEUE = 3
    TOO_LARGE = 4
    BAD_CRC = 5
    MALFORMED = 6
    NOT_ENOUGH_REPLICAS = 7
    OVERLOADED = 8
    DELIVERY_UNKNOWN = 9
    OUT_OF_SEQUENCE = 10
    PRODUCER_FENCED = 11
    STORAGE_FULL = 12
    UNSUPPORTED = 13
    INTERNAL = 14
    ALREADY_EXISTS = 15
    INVALID_ARGUMENT = 16
    NOT_FOUND = 17
    STALE_ASSIGNMENT = 18
    UNAVAILABLE = 19


class FmqError(Exception):
    """Base of all that FMQ raises on purpose."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL


class NoPermission(FmqError):
    """This broker does not serve that now: look at the routes."""

    code = ErrorCode.NO_PERMISSION


class UnknownTopic(FmqError):
    """No topic of that name or number."""

    code = ErrorCode.UNKNOWN_TOPIC


class UnknownQueue(FmqError):
    """The topic has no queue of that number here."""

    code = ErrorCode.UNKNOWN_QUEUE


class TooLarge(FmqError):
    """Over a stated limit; nothing was appended."""

    code = ErrorCode.TOO_LARGE


class BadCrc(FmqError):
    """The payload does not match its checksum; nothing was appended."""

    code = ErrorCode.BAD_CRC


class Malformed(FmqError):
    """Bytes or fields that do not make sense; nothing was appended."""

    code = ErrorCode.MALFORMED


class NotEnoughReplicas(FmqError):
    """The group's policy cannot be met now; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class Overloaded(FmqError):
    """Too much is waiting; nothing was appended; try again later."""

    code = ErrorCode.OVERLOADED


class DeliveryUnknown(FmqError):
    """The policy did not hold in time: may or may not be stored."""

    code = ErrorCode.DELIVERY_UNKNOWN


class OutOfSequence(FmqError):
    """A producer's sequence has a gap."""

    code = ErrorCode.OUT_OF_SEQUENCE


class ProducerFenced(FmqError):
    """A newer session of this producer id is at work."""

    code = ErrorCode.PRODUCER_FENCED


class StorageFull(FmqError):
    """No space for more; reads go on."""

    code = ErrorCode.STORAGE_FULL


class Unsupported(FmqError):
    """A feature or version this side does not know."""

    code = ErrorCode.UNSUPPORTED


class AlreadyExists(FmqError):
    """There is one of that name already."""

    code = ErrorCode.ALREADY_EXISTS


class InvalidArgument(FmqError):
    """A value out of its range; the message names it."""

    code = ErrorCode.INVALID_ARGUMENT


class NotFound(FmqError):
    """No such thing."""

    code = ErrorCode.NOT_FOUND


class StaleAssignment(FmqError):
    """The queue is no longer this session's."""

    code = ErrorCode.STALE_ASSIGNMENT


class Unavailable(FmqError):
    """A part that is needed does not answer."""

    code = ErrorCode.UNAVAILABLE


class CorruptJournal(FmqError):
    """Damage below the durable end: names file, position and remedy. Never repaired by cutting."""


class DirectoryLocked(FmqError):
    """Another process works on this data directory."""


class NameTaken(FmqError):
    """Another live process has announced itself under this broker's id."""


_BY_CODE: dict[int, type[FmqError]] = {
    int(kind.code): kind
    for kind in FmqError.__subclasses__()
    if kind.code is not ErrorCode.INTERNAL
}


def error_of(code: int, message: str) -> FmqError:
    """Make the error that a wire code stands for; an unknown code becomes a plain `FmqError`."""
    return _BY_CODE.get(code, FmqError)(message)
