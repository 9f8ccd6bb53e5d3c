"""Typed errors for bad input from peers, disks and users; `assert` is for FMQ's own bugs only.

Every message says what failed, where, and what to do. `code` is the number on the wire
(`fmqproto.v1.client.ErrorCode`; a test keeps the two equal).
"""

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """Why a request was refused; the numbers are those on the wire."""

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
    SENDER_FENCED = 20
    SEGMENT_CLOSED = 21


class FmqError(Exception):
    """Base of every error that FMQ raises deliberately."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL


class NoPermission(FmqError):
    """This broker does not serve that now: ask for the routes again."""

    code = ErrorCode.NO_PERMISSION


class UnknownTopic(FmqError):
    """There is no topic with that name or number."""

    code = ErrorCode.UNKNOWN_TOPIC


class UnknownQueue(FmqError):
    """The topic has no queue of that number here."""

    code = ErrorCode.UNKNOWN_QUEUE


class TooLarge(FmqError):
    """A size is over a stated limit; nothing was appended."""

    code = ErrorCode.TOO_LARGE


class BadCrc(FmqError):
    """The payload does not match its checksum; nothing was appended."""

    code = ErrorCode.BAD_CRC


class Malformed(FmqError):
    """Bytes or fields are invalid; nothing was appended."""

    code = ErrorCode.MALFORMED


class NotEnoughReplicas(FmqError):
    """The group's acknowledgement policy cannot be met now; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class Overloaded(FmqError):
    """Too many requests are waiting; nothing was appended; try again later."""

    code = ErrorCode.OVERLOADED


class DeliveryUnknown(FmqError):
    """The policy was not satisfied in time: the batch may or may not be stored."""

    code = ErrorCode.DELIVERY_UNKNOWN


class OutOfSequence(FmqError):
    """A producer's sequence numbers have a gap."""

    code = ErrorCode.OUT_OF_SEQUENCE


class ProducerFenced(FmqError):
    """A newer session of this producer id is active."""

    code = ErrorCode.PRODUCER_FENCED


class StorageFull(FmqError):
    """No space for more records; reads continue."""

    code = ErrorCode.STORAGE_FULL


class Unsupported(FmqError):
    """The request needs a feature or version that this side does not know."""

    code = ErrorCode.UNSUPPORTED


class AlreadyExists(FmqError):
    """Something with that name exists already."""

    code = ErrorCode.ALREADY_EXISTS


class InvalidArgument(FmqError):
    """A value is out of range; the message names the value."""

    code = ErrorCode.INVALID_ARGUMENT


class NotFound(FmqError):
    """The named object does not exist."""

    code = ErrorCode.NOT_FOUND


class StaleAssignment(FmqError):
    """The queue is no longer assigned to this session."""

    code = ErrorCode.STALE_ASSIGNMENT


class Unavailable(FmqError):
    """A required component does not answer."""

    code = ErrorCode.UNAVAILABLE


class SenderFenced(FmqError):
    """A later sender of the ordered topic is active; nothing of this one is stored any more."""

    code = ErrorCode.SENDER_FENCED


class SegmentClosed(FmqError):
    """The segment of the chain takes no more records: sends go on in the next one."""

    code = ErrorCode.SEGMENT_CLOSED


class CorruptJournal(FmqError):
    """Damage below the durable end: names file, position and remedy. Never truncated."""


class NewerJournal(CorruptJournal):
    """A batch that only a newer FMQ can read: names kind, file and position. Nothing is damaged."""


class DirectoryLocked(FmqError):
    """Another process uses this data directory."""


class NameTaken(FmqError):
    """Another live process has announced itself under this broker's id."""


_BY_CODE: dict[int, type[FmqError]] = {
    int(kind.code): kind
    for kind in FmqError.__subclasses__()
    if kind.code is not ErrorCode.INTERNAL
}


def error_of(code: int, message: str) -> FmqError:
    """Return the error that a wire code stands for; a plain `FmqError` for an unknown code."""
    return _BY_CODE.get(code, FmqError)(message)
