"""What each error means to whoever gets it: one row per error, read by client, command and docs.

A new error is a class in `errors.py`, a number in `client.proto`, and a row here. The client's
producer, `fmq job replay`, the exit status of `fmq` and `docs/reference/errors.md` follow the row.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fmqcore.errors import (
    AlreadyExists,
    BadCrc,
    CorruptJournal,
    DeliveryUnknown,
    DirectoryLocked,
    ErrorCode,
    FmqError,
    InvalidArgument,
    Malformed,
    NameTaken,
    NewerJournal,
    NoPermission,
    NotEnoughReplicas,
    NotFound,
    OutOfSequence,
    Overloaded,
    ProducerFenced,
    SegmentClosed,
    SenderFenced,
    StaleAssignment,
    StorageFull,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
    Unsupported,
)

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 64
"""sysexits' EX_USAGE."""
EXIT_UNAVAILABLE: Final = 69
"""sysexits' EX_UNAVAILABLE."""


class RetryAction(Enum):
    """What a producer does with a batch that was answered with the error."""

    RESEND_SAME = "sends the same bytes again: they may be stored"
    SWITCH_BROKER = "goes to the broker that takes writes"
    RETRY = "sends it again, in its order"
    REROUTE = "goes to another group of the topic, else sends it again"
    REFRESH_ROUTES = "asks for the routes; fails if the broker still does not know the topic"
    SPLIT = "sends two halves; fails if it is one record"
    AFTER_EARLIER = "sends it again after the batches before it"
    FAIL = "fails"
    FAIL_UNKNOWN = "fails as `DeliveryUnknown`: no answer can settle it any more"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One row of the table."""

    kind: type[FmqError]
    retry: RetryAction
    transient: bool  # the same request may succeed later
    exit_code: int  # of the command `fmq`
    advice: str  # the next action, for people

    @property
    def appended(self) -> bool:
        """Whether the records of a refused batch may be stored; False: certainly not."""
        return self.retry is RetryAction.RESEND_SAME


_LATER: Final = True
_NEVER: Final = False
_R: Final = RetryAction

ERRORS: Final = (
    ErrorSpec(NoPermission, _R.SWITCH_BROKER, _LATER, EXIT_FAILED,
        "None for a client: it finds the broker that serves. `fmq status` names it."),
    ErrorSpec(UnknownTopic, _R.REFRESH_ROUTES, _LATER, EXIT_FAILED,
        "Create the topic (`fmq topic create`), or correct its name."),
    ErrorSpec(UnknownQueue, _R.REFRESH_ROUTES, _LATER, EXIT_FAILED,
        "Use a queue that the topic has: `fmq topic describe`."),
    ErrorSpec(TooLarge, _R.SPLIT, _NEVER, EXIT_FAILED,
        "Send smaller records, or keep the payload elsewhere and send its address."),
    ErrorSpec(BadCrc, _R.FAIL, _NEVER, EXIT_FAILED,
        "Send it again; if it happens again, look for a faulty network card or memory."),
    ErrorSpec(Malformed, _R.FAIL, _NEVER, EXIT_FAILED,
        "Use a client of a version that the brokers support."),
    ErrorSpec(NotEnoughReplicas, _R.REROUTE, _LATER, EXIT_FAILED,
        "Bring the group's slaves back: `fmq status` names the missing ones."),
    ErrorSpec(Overloaded, _R.REROUTE, _LATER, EXIT_FAILED,
        "None for a producer: it sends again. If it lasts, add a group or queues."),
    ErrorSpec(DeliveryUnknown, _R.RESEND_SAME, _LATER, EXIT_FAILED,
        "Read what was stored, or send it again if the consumer accepts duplicates."),
    ErrorSpec(OutOfSequence, _R.AFTER_EARLIER, _NEVER, EXIT_FAILED,
        "None for FMQ's client. A client of your own has to send its batches in order."),
    ErrorSpec(ProducerFenced, _R.AFTER_EARLIER, _NEVER, EXIT_FAILED,
        "None for FMQ's client: it takes a new session."),
    ErrorSpec(StorageFull, _R.REROUTE, _LATER, EXIT_FAILED,
        "Add disk space, or shorten retention; consumers go on meanwhile."),
    ErrorSpec(Unsupported, _R.FAIL, _NEVER, EXIT_FAILED,
        "Upgrade the older side."),
    ErrorSpec(AlreadyExists, _R.RESEND_SAME, _NEVER, EXIT_FAILED,
        "Use the one that exists, or choose another name."),
    ErrorSpec(InvalidArgument, _R.FAIL, _NEVER, EXIT_USAGE,
        "Correct the value that the message names."),
    ErrorSpec(NotFound, _R.RESEND_SAME, _NEVER, EXIT_FAILED,
        "Correct the name that the message has."),
    ErrorSpec(StaleAssignment, _R.RESEND_SAME, _NEVER, EXIT_FAILED,
        "Nothing: another member of the group has the queue, and gets the messages again."),
    ErrorSpec(Unavailable, _R.RESEND_SAME, _LATER, EXIT_UNAVAILABLE,
        "See that the named component runs and is reachable, then try again."),
    ErrorSpec(SenderFenced, _R.FAIL, _NEVER, EXIT_FAILED,
        "Open the ordered producer again: it waits in line, and its `last` records show which of "
        "the records without an answer are stored."),
    ErrorSpec(SegmentClosed, _R.RESEND_SAME, _LATER, EXIT_FAILED,
        "None for FMQ's client: it sends again into the next segment. `fmq ordered status` has "
        "the reason."),
    ErrorSpec(CorruptJournal, _R.RESEND_SAME, _NEVER, EXIT_FAILED,
        "Follow the runbook \"FmqDamageFound\"; nothing was changed on the disk."),
    ErrorSpec(NewerJournal, _R.RESEND_SAME, _NEVER, EXIT_FAILED,
        "Upgrade the broker or tool to the version that wrote the batch; nothing is damaged."),
    ErrorSpec(DirectoryLocked, _R.RESEND_SAME, _LATER, EXIT_FAILED,
        "Stop the other process, or use another data directory."),
    ErrorSpec(NameTaken, _R.RESEND_SAME, _LATER, EXIT_FAILED,
        "Stop the other broker, or give this one another id."),
    ErrorSpec(FmqError, _R.RESEND_SAME, _LATER, EXIT_FAILED,
        "Read the message; a broker's log has more."),
)  # fmt: skip
"""Every error of the wire, and those that a broker or a command ends with.

The last row is for all others, and for a code of a newer broker: nothing is certain about it.
"""
_BY_KIND: Final = {spec.kind: spec for spec in ERRORS}
_BY_CODE: Final = {int(s.kind.code): s for s in ERRORS if s.kind.code is not ErrorCode.INTERNAL}


def spec_of(error: FmqError) -> ErrorSpec:
    """Return the row of the error's class, or of the nearest base class that has one."""
    return next(_BY_KIND[kind] for kind in type(error).__mro__ if kind in _BY_KIND)


def spec_of_code(code: int) -> ErrorSpec:
    """Return the row of a number on the wire; an unlisted one is nothing certain."""
    return _BY_CODE.get(code, _BY_KIND[FmqError])
