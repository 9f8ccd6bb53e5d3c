"""The protocol of a chain as data: the rows of each (duty, phase), in order. Pure.

`machine.py` decides by this table, and explains it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fmqcore.ordered import guards as g
from fmqcore.ordered import transitions as t
from fmqcore.ordered.context import Case, Condition, Guard
from fmqcore.ordered.eligibility import CONDITIONS
from fmqcore.ordered.evidence import Action, CloseReason, Duty, Phase
from fmqcore.zk.chain import Chain

_R = CloseReason


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `sentence`: describes the step to people."""

    duty: Duty
    phase: Phase
    guards: tuple[Guard, ...]
    action: Action
    sentence: str
    edit: Callable[[Case], Chain] | None = None
    reason: CloseReason = CloseReason.REQUEST  # of CLOSE


Key = tuple[Duty, Phase]


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol as data; a test may change a copy to plant a mistake."""

    rows: Mapping[Key, tuple[Row, ...]]
    conditions: tuple[Condition, ...] = CONDITIONS


def _close(reason: CloseReason, *guards: Guard, sentence: str) -> Row:
    """A reason to close the open segment; `closing` gets the sentence by `machine.decide`."""
    return Row(Duty.SEND, Phase.OPEN, guards, Action.CLOSE, sentence, reason=reason)


def _open(phase: Phase, *guards: Guard, edit: Callable[[Case], Chain]) -> Row:
    sentence = "{next_sender} sends into segment {next} in {next_group}"
    return Row(Duty.SEND, phase, guards, Action.OPEN, sentence, edit)


_LOWER: Final = Row(
    Duty.END,
    Phase.SHORT,
    (g.IS_MASTER, g.NOTHING_LOST, g.SENT_AGAIN),
    Action.LOWER_END,
    "no member of {group} reaches the end of segment {segment}: it ends where they do",
    t.lower_end,
)


def _end(phase: Phase) -> tuple[Row, ...]:
    whole = (g.REACHES_START, g.NO_GAP)
    sentence = "{group} ends segment {segment}"
    seal, give = Action.SEAL, Action.GIVE_END
    return (
        Row(
            Duty.END,
            phase,
            (g.IS_MASTER, g.NOT_SEALED, g.HELD_KNOWN),
            seal,
            "the master of {group} seals segment {segment}",
        ),
        Row(Duty.END, phase, (g.IS_MASTER, g.SEALED, *whole), give, sentence, t.give_end),
        Row(Duty.END, phase, (g.IS_READER, *whole), give, sentence, t.give_end),
    )


_ROWS: Final[tuple[Row, ...]] = (
    _open(Phase.EMPTY, g.SENDER_WAITS, g.ELIGIBLE, edit=t.open_first),
    _close(_R.SENDER, g.SENDER_CHANGED, sentence="{next_sender} takes over from {sender}"),
    _close(_R.JOURNAL, g.BELOW_START, sentence="{group} has lost records from its journal"),
    _close(
        _R.REMOVAL,
        g.GROUP_LEFT,
        g.ROOM,
        g.ANOTHER_ELIGIBLE,
        sentence="{group} was taken out of the topic",
    ),
    _close(_R.REQUEST, g.KEPT_OUT, g.ROOM, g.ANOTHER_FREE, sentence="{avoid}"),
    _close(_R.TAKEOVER, g.READ_ONLY, sentence="{group} takes no writes: a slave serves its reads"),
    _close(
        _R.TROUBLE, g.TROUBLE, g.ROOM, g.ANOTHER_ELIGIBLE, g.TROUBLE_LASTS, sentence="{trouble}"
    ),
    _close(
        _R.UNREACHED,
        g.SENDER_CUT,
        g.ROOM,
        g.ANOTHER_FREE,
        sentence="{sender} does not reach {group}",
    ),
    Row(
        Duty.SEND,
        Phase.CLOSING,
        (g.ANOTHER_ELIGIBLE, g.LEASE_OVER),
        Action.DECLARE_UNKNOWN,
        "the end of segment {segment} in {group} is unknown: consumers stop before it",
        t.declare_unknown,
    ),
    _open(
        Phase.ENDED,
        g.SAME_SENDER,
        g.REPORTED,
        g.HOLDS_ACKED,
        g.ROOM,
        g.ELIGIBLE,
        edit=t.open_same_sender,
    ),
    _open(Phase.ENDED, g.SENDER_CHANGED, g.LAST_KNOWN, g.ROOM, g.ELIGIBLE, edit=t.open_new_sender),
    _open(
        Phase.ENDED,
        g.SENDER_CHANGED,
        g.ACCEPTS_UNKNOWN,
        g.ROOM,
        g.ELIGIBLE,
        edit=t.open_without_end,
    ),
    *_end(Phase.CLOSING),
    *_end(Phase.UNKNOWN),
    _LOWER,
    *(
        Row(Duty.HEADS, phase, (g.HEADS_DUE,), Action.MOVE_HEADS, "heads move", t.move_heads)
        for phase in (Phase.OPEN, Phase.CLOSING, Phase.ENDED)
    ),
    *(
        Row(Duty.TIDY, phase, (g.DROP_DUE,), Action.DROP, "drained segments go", t.drop)
        for phase in (Phase.OPEN, Phase.CLOSING, Phase.ENDED)
    ),
)


def rules_of(rows: tuple[Row, ...], conditions: tuple[Condition, ...] = CONDITIONS) -> Rules:
    """Return rules with these rows, in their order."""
    keys = [(duty, phase) for duty in Duty for phase in Phase]
    return Rules(
        {key: tuple(row for row in rows if (row.duty, row.phase) == key) for key in keys},
        conditions,
    )


RULES: Final = rules_of(_ROWS)
