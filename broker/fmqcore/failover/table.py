"""The failover table as data: the rows of each (mode, part), in order. Pure.

`machine.py` decides by this table, and explains it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fmqcore.failover import guards as g
from fmqcore.failover import lost_journals, transitions
from fmqcore.failover import switchover_guards as m
from fmqcore.failover.context import Case, Guard
from fmqcore.failover.evidence import Action, LeaseRule, Part
from fmqcore.ids import Permission
from fmqcore.zk.group_state import GroupState, Mode


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    mode: Mode
    part: Part
    guards: tuple[Guard, ...]
    action: Action
    edit: Callable[[Case], GroupState] | None = None


Key = tuple[Mode, Part]


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol as data; a test may change a copy to plant a mistake."""

    rows: Mapping[Key, tuple[Row, ...]]
    permissions: Mapping[Key, tuple[Permission, LeaseRule]]


def _claim(mode: Mode, part: Part, *guards: Guard, last: tuple[Guard, ...] = ()) -> list[Row]:
    """Return the rows of a claim: repeated checks, then the claim itself."""
    due = (*guards, g.STATE_CURRENT, g.CHECK_DUE)
    return [
        Row(mode, part, (*due, g.CHECKS_DONE, *last), Action.CLAIM, transitions.claim),
        Row(mode, part, due, Action.CHECK),
    ]


_OPEN: Final = (g.SESSION, g.STATE_CURRENT, lost_journals.RECOVERABLE, g.GATHERED)
_PROMOTABLE: Final = (
    m.GIVEN_UP,
    g.MASTER_GONE,
    g.STREAM_DOWN,
    g.IN_ISR,
    m.NOT_BEHIND,
    m.SLAVES_ASKED,
    m.NOT_GATHERING,
    m.ALL_LIVE,
)
_WITHOUT_READER: Final = (
    g.JOURNAL_KEPT,
    g.LINKED_HEARD,
    g.ENOUGH_HEARD,
    lost_journals.NOT_EMPTY,
)
_LOST_RECORD: Final = (
    *_OPEN,
    g.READER_GONE,
    g.READER_GONE_LONG,
    g.LENIENT,
    *_WITHOUT_READER,
)
_LEAVING: Final = (g.STOPPING, g.SESSION, g.STATE_CURRENT, g.MASTER_GONE)
_SUFFIXES: Final = (g.READER_HEARD, g.ENOUGH_HEARD, g.SERVED_IN, lost_journals.NOT_EMPTY)

_ROWS: Final[tuple[Row, ...]] = (
    Row(
        Mode.NEW,
        Part.MASTER,
        (g.SESSION, g.ALL_HEARD_AGAIN, g.ALL_HEARD_IF_RECORDS),
        Action.OPEN,
        transitions.open_first,
    ),
    Row(
        Mode.MASTER,
        Part.MASTER,
        (g.NOT_HELD, *_OPEN, g.JOURNAL_WHOLE, g.ENOUGH_HEARD, lost_journals.NOT_EMPTY),
        Action.OPEN,
        transitions.open_again,
    ),
    Row(
        Mode.MASTER,
        Part.MASTER,
        (g.STOPPING, g.HELD, g.SESSION, g.SUCCESSOR),
        Action.YIELD,
        transitions.give_reads,
    ),
    Row(
        Mode.MASTER,
        Part.MASTER,
        (g.HELD, g.SESSION, g.STATE_CURRENT, m.ANOTHER_WANTED, m.SUCCESSOR_READY, m.MOVE_DUE),
        Action.MOVE,
        transitions.move,
    ),
    *_claim(
        Mode.MASTER,
        Part.SLAVE,
        g.MASTER_GONE,
        g.READS_CONFIGURED,
        g.IN_ISR,
        g.HAS_JOURNAL,
        g.STREAM_DOWN,
        g.PROMISE_OVER,
        g.SESSION,
        last=(g.BEST,),
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.MASTER,
        (*_OPEN, g.RECORD_IN, *_SUFFIXES),
        Action.OPEN,
        transitions.open_handed_over,
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.MASTER,
        (
            *_OPEN,
            m.UNUSED,
            g.READER_GONE,
            g.JOURNAL_WHOLE,
            g.LINKED_HEARD,
            g.ENOUGH_HEARD,
            lost_journals.NOT_EMPTY,
        ),
        Action.OPEN,
        transitions.open_again,
    ),
    Row(Mode.SLAVE_CONSUME, Part.MASTER, _LOST_RECORD, Action.OPEN, transitions.open_degraded),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.SESSION, g.STATE_CURRENT, m.WANTED, m.SUCCESSOR),
        Action.TAKE_OVER,
        transitions.take_over,
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.FROZEN, g.SESSION, g.STATE_CURRENT, m.WANTED, *_PROMOTABLE),
        Action.TAKE_OVER,
        transitions.take_over,
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.FROZEN, g.SESSION, g.STATE_CURRENT, g.MASTER_BACK),
        Action.HAND_OVER,
        transitions.hand_over,
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.FROZEN, g.CUT_OFF, g.LINKED),
        Action.SEND_RECORD,
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (*_LEAVING, g.FROZEN, g.RECORD_FITS),
        Action.HAND_OVER,
        transitions.leave_record,
    ),
    Row(Mode.SLAVE_CONSUME, Part.READER, (*_LEAVING, g.HELD), Action.FREEZE),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.HELD, g.SESSION, g.STATE_CURRENT, g.MASTER_BACK),
        Action.FREEZE,
    ),
    Row(Mode.SLAVE_CONSUME, Part.READER, (g.HELD, g.CUT_OFF, g.LINKED), Action.FREEZE),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.HELD, g.SESSION, g.STATE_CURRENT, m.WANTED, *_PROMOTABLE),
        Action.FREEZE,
    ),
    Row(
        Mode.SLAVE_CONSUME,
        Part.READER,
        (g.NOT_SERVING, g.SHOWS_ALL, g.SESSION, g.STATE_CURRENT),
        Action.CLAIM,
        transitions.claim,
    ),
    *_claim(
        Mode.SLAVE_CONSUME,
        Part.SLAVE,
        g.READER_GONE,
        g.READS_CONFIGURED,
        g.IN_ISR,
        g.HAS_JOURNAL,
        g.SESSION,
        last=(g.BEST,),
    ),
    Row(
        Mode.HANDOVER,
        Part.MASTER,
        (*_OPEN, g.RECORD_IN, *_SUFFIXES),
        Action.OPEN,
        transitions.open_handed_over,
    ),
    Row(
        Mode.HANDOVER,
        Part.MASTER,
        (*_OPEN, g.READER_GONE, g.RECORD_SEALED, *_SUFFIXES),
        Action.OPEN,
        transitions.open_handed_over,
    ),
    Row(
        Mode.HANDOVER,
        Part.MASTER,
        (*_OPEN, g.READER_GONE, g.RECORD_SEALED, g.SERVED_HERE, *_WITHOUT_READER),
        Action.OPEN,
        transitions.open_handed_over,
    ),
    Row(Mode.HANDOVER, Part.MASTER, _LOST_RECORD, Action.OPEN, transitions.open_degraded),
    Row(Mode.HANDOVER, Part.READER, (g.STATE_CURRENT, g.FROZEN, g.LINKED), Action.SEND_RECORD),
    # not frozen: it restarted since
    Row(Mode.HANDOVER, Part.READER, (g.STATE_CURRENT, g.LINKED), Action.FREEZE),
    # As in SLAVE_CONSUME, this is no takeover: the master's reads are not asked for.
    *_claim(Mode.HANDOVER, Part.READER, g.MASTER_GONE, g.SHOWS_ALL, g.SESSION, g.READS_HERE),
    *_claim(
        Mode.HANDOVER,
        Part.SLAVE,
        g.READER_GONE,
        g.MASTER_GONE,
        g.READS_CONFIGURED,
        g.IN_ISR,
        g.HAS_JOURNAL,
        g.SESSION,
        last=(g.BEST,),
    ),
)


def make_rules(
    rows: tuple[Row, ...], permissions: Mapping[Key, tuple[Permission, LeaseRule]]
) -> Rules:
    """Index the rows by (mode, part); their order stays."""
    keys = [(mode, part) for mode in Mode for part in Part]
    return Rules(
        {key: tuple(r for r in rows if (r.mode, r.part) == key) for key in keys},
        permissions,
    )


RULES: Final = make_rules(
    _ROWS,
    {
        (Mode.MASTER, Part.MASTER): (Permission.FULL, LeaseRule.ZOOKEEPER_OR_GRANTS),
        (Mode.SLAVE_CONSUME, Part.READER): (Permission.READ, LeaseRule.ZOOKEEPER),
    },
)
