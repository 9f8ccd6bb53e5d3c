"""The failover protocol written a second time, for `failover/test_machine.py`.

Plain conditions, one function per mode, and the facts that can be true or false (`Facts`).
"""

from collections.abc import Callable

from fmqcore.failover.evidence import Action, Decision, Evidence, Link, Params, Record
from fmqcore.failover.machine import decide
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, Position
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.live_broker import LiveBroker

M, S, T, U = BrokerId("g-0"), BrokerId("g-1"), BrokerId("g-2"), BrokerId("g-3")
NOW = 100_000
PARAMS = Params(claim_checks=2, claim_interval_ms=250, takeover_wait_ms=10_000)
EPOCH = Epoch(7)

Facts = dict[str, bool]
"""The facts that are true; an absent name is false."""


def live(broker: BrokerId, *, epoch: int = EPOCH, end: int = 0) -> LiveBroker:
    return LiveBroker(broker, "i", "", Epoch(epoch), Position(end))


def config(f: Facts) -> GroupConfig:
    masked = Permission.FULL if f.get("reads", True) else Permission.WRITE
    asked = HowMany.NONE if f.get("none") else HowMany.ONE
    cached = AckPolicy(flush=Flush.OS_CACHE, how_many=asked)
    permission = Permission.READ if f.get("masked") else Permission.FULL
    permission = Permission.WRITE if f.get("unread") else permission
    return GroupConfig(
        GroupName("g"),
        M,
        (
            Member(M, "m:1", permission=masked),
            Member(S, "s:1", permission=permission),
            Member(T, "t:1"),
            Member(U, "u:1"),
        ),
        policy=cached,
        strict_takeover=not f.get("lenient", True),
        declared_lost=M if f.get("lost") else BrokerId(""),
    )


def state(mode: Mode, f: Facts, me: BrokerId = S) -> GroupState:
    if mode is Mode.NEW:
        return GroupState(epoch=EPOCH if f.get("again") else Epoch(0))
    isr = frozenset({S, T, U} if f.get("in_isr", True) else {S, T, U} - {me})
    isr -= {S} if f.get("s_out") else set()
    reader = M if mode is Mode.MASTER else S
    sealed = f.get("sealed", False)
    claimed = Position(0 if f.get("unclaimed") else 1)  # the journal ends at 1
    max_delivered_position = Position(2) if f.get("lacks") else claimed
    successor = "i" if f.get("successor") else ""
    base = Epoch(EPOCH + 1 if f.get("gathering") else 0)
    opened = EPOCH if mode is Mode.MASTER else Epoch(EPOCH - 1)
    shape = (
        mode,
        EPOCH,
        M,
        reader,
        isr,
        "cmVj",
        sealed,
        False,
        "w",
        "",
        max_delivered_position,
        successor,
        base,
    )
    return GroupState(*shape, last_opened_epoch=opened)


def _journal_epoch(f: Facts) -> int:
    if f.get("hollow"):
        return EPOCH - 2
    return EPOCH + 2 * (not f.get("fits", True)) - (not f.get("whole", True))


def evidence(mode: Mode, f: Facts) -> Evidence:
    term = {Mode.SLAVE_CONSUME: EPOCH, Mode.HANDOVER: Epoch(EPOCH - 1)}.get(mode, Epoch(0))
    others = not f.get("alone")
    there = {M: not f.get("master_gone"), S: not f.get("reader_gone"), T: others, U: others}
    stored = EPOCH if mode is not Mode.NEW or f.get("records") else 0
    life = "other" if f.get("other_life") else "i"
    heard = Link(connected=True, caught_up=True, heard=True, incarnation=life, whole=True)
    heard = heard._replace(emptied=f.get("both", False))
    unheard = Link(connected=True, emptied=f.get("both", False))
    reader = Link() if f.get("away") else heard if f.get("reader_heard") else unheard
    return Evidence(
        session_live=f.get("session", False),
        fresh=f.get("fresh", False),
        lease_out=f.get("lease_out", False),
        live={
            b: live(
                b,
                epoch=stored + int(b == T and f.get("newer", False)),
                end=99 if b == U and f.get("rival") else 0,
            )
            for b in there
            if there[b]
        },
        wanted=S if f.get("wish") else M,
        incarnation="j" if f.get("reborn") else "i",
        held=state(mode, f).epoch if f.get("held") and mode is not Mode.NEW else Epoch(0),
        journal_epoch=Epoch(0 if mode is Mode.NEW or f.get("emptied") else _journal_epoch(f)),
        journal_end=Position(1),
        kept_end=Position(1),
        has_records=f.get("records", False),
        stopping=f.get("stopping", False),
        may_lack=f.get("unclean", False) or f.get("both", False),
        unproven=f.get("unproven", False) or f.get("both", False),
        upstream_connected=f.get("stream", False),
        upstream_caught_up=f.get("stream", False),
        promised_until_ms=NOW if f.get("promised") else NOW - 1,
        checks=PARAMS.patience_checks if f.get("patient") else int(f.get("checked", False)),
        next_check_ms=NOW + 1 if f.get("not_due") else NOW,
        frozen=term if f.get("frozen") else Epoch(0),
        frozen_offsets=None if f.get("large") else "cmVj",
        behind=f.get("behind", False),
        next_move_ms=NOW + 1 if f.get("slow") else NOW,
        links={
            S: reader,
            T: heard if f.get("t") else unheard,
            U: Link(heard=True, whole=True),
        },
        record=Record(S, term) if f.get("record") else Record(S, Epoch(3)),
        reader_gone_since_ms=NOW - 10_000 - int(bool(f.get("long"))) + 1,
    )


def check(me: BrokerId, mode: Mode, f: Facts) -> Decision:
    """Return the decision of the machine."""
    return decide(me, config(f), state(mode, f, me), evidence(mode, f), NOW, PARAMS)


# ---- the protocol, written a second time


def state_current(f: Facts) -> bool:
    """No journal that is there has an epoch that the state lacks."""
    own = f.get("fits", True) or f.get("emptied") or f.get("hollow") or not f.get("whole", True)
    return bool(own and not (f.get("newer") and not f.get("alone")))


def _claims(f: Facts, may: bool, best: bool) -> Action:
    if not may or f.get("not_due") or not state_current(f):
        return Action.WAIT
    last = f.get("checked") or f.get("patient")
    return Action.CLAIM if last and best else Action.CHECK


def _best(f: Facts) -> bool:
    return not f.get("rival") or bool(f.get("patient") or f.get("alone"))


def _may_show(f: Facts) -> bool:
    refilled = f.get("both") or (f.get("unproven") and f.get("unclean"))  # in part, perhaps
    return bool(f.get("in_isr", True) and not f.get("emptied") and not refilled)


def _has_what_it_showed(f: Facts) -> bool:
    may_lack = f.get("unproven") and f.get("lacks")
    return not f.get("emptied") and bool(f.get("stream") or not may_lack)


def new_master(f: Facts) -> Action:
    all_heard = f.get("reader_heard") and f.get("t")
    waits = (f.get("records") or f.get("again")) and not all_heard
    return Action.OPEN if f.get("session") and not waits else Action.WAIT


def master_master(f: Facts) -> Action:
    # ONE in-sync slave makes an acknowledgement: all must be heard
    heard = not f.get("unclean") or (f.get("reader_heard") and f.get("t"))
    whole = f.get("whole", True) or not f.get("fits", True) or f.get("gathering")
    given_back = f.get("reader_heard") and f.get("t")
    s_able = f.get("reader_heard") and not f.get("reader_gone") and not f.get("s_out")
    able = s_able or f.get("t")
    if f.get("held") and f.get("stopping") and f.get("session") and able and f.get("reads", True):
        return Action.YIELD
    successor = s_able and not f.get("masked") and not f.get("other_life")
    current = state_current(f)
    if f.get("held") and f.get("session") and f.get("wish") and successor and not f.get("slow"):
        return Action.MOVE if current else Action.WAIT
    fits = bool(current and (not f.get("gathering") or given_back))
    good = not f.get("held") and f.get("session") and fits and heard and (whole or given_back)
    good = good and not f.get("emptied") and not f.get("both")  # no slave had all to give back
    return Action.OPEN if good else Action.WAIT


def master_slave(f: Facts) -> Action:
    may = (
        f.get("session") and f.get("master_gone") and not f.get("stream")
        and not f.get("promised") and _may_show(f) and f.get("reads", True)
    )  # fmt: skip
    return _claims(f, bool(may), _best(f))


def _gathered(f: Facts) -> bool:
    all_heard = f.get("reader_heard") and not f.get("away") and f.get("t")
    return not f.get("gathering") or bool(all_heard)


def _returns(f: Facts, mode: Mode) -> Action:
    if not f.get("session") or not state_current(f) or not _gathered(f) or f.get("emptied"):
        return Action.WAIT
    if f.get("both"):  # S and T lost their disks, too, and one slave makes an acknowledgement
        return Action.WAIT
    unclean = f.get("unclean")
    reader_heard = f.get("reader_heard") and not f.get("away")
    heard = reader_heard and (not unclean or f.get("t"))
    linked_heard = (reader_heard or f.get("away")) and f.get("t")
    enough = not unclean or (reader_heard and f.get("t"))
    gone, lacks = f.get("reader_gone"), f.get("lacks")
    heard = heard and (not lacks or f.get("t"))  # one not heard yet may have what this broker lacks
    if heard and f.get("record"):
        return Action.OPEN
    if mode is Mode.HANDOVER and heard and gone and f.get("sealed"):
        return Action.OPEN
    unused = mode is Mode.SLAVE_CONSUME and f.get("unclaimed") and not lacks
    whole = not f.get("hollow") or (reader_heard and f.get("t")) or f.get("gathering")
    if unused and gone and linked_heard and enough and whole:
        return Action.OPEN
    left = mode is Mode.HANDOVER and f.get("sealed") and not lacks
    if left and gone and linked_heard and enough and whole:
        return Action.OPEN
    long = f.get("long") and not lacks  # then not long enough
    if gone and long and f.get("lenient", True) and linked_heard and enough and whole:
        return Action.OPEN
    return Action.WAIT


def consume_master(f: Facts) -> Action:
    return _returns(f, Mode.SLAVE_CONSUME)


def consume_reader(f: Facts) -> Action:
    session, stream, frozen = f.get("session"), f.get("stream"), f.get("frozen")
    back = stream and not f.get("master_gone")
    cut_off = not session and f.get("lease_out")
    serving, current = f.get("held") and not frozen, state_current(f)
    promotable = (
        f.get("lost") and f.get("master_gone") and not stream and f.get("in_isr", True)
        and not f.get("behind") and not f.get("none") and not f.get("gathering")
        and not f.get("alone")
    )  # fmt: skip
    if session and not current:
        return Action.WAIT
    if session and f.get("wish") and f.get("successor") and not f.get("reborn"):
        return Action.TAKE_OVER
    if session and f.get("wish") and frozen and promotable:
        return Action.TAKE_OVER
    leaving = session and f.get("stopping") and f.get("master_gone")
    if leaving and frozen and not f.get("large"):
        return Action.HAND_OVER
    if leaving and serving:
        return Action.FREEZE
    if session and back and frozen:
        return Action.HAND_OVER
    if cut_off and stream and frozen:
        return Action.SEND_RECORD
    if serving and session and f.get("wish") and promotable:
        return Action.FREEZE
    if serving and ((session and back) or (cut_off and stream)):
        return Action.FREEZE
    may = session and _has_what_it_showed(f)
    return Action.CLAIM if may and not serving else Action.WAIT


def consume_slave(f: Facts) -> Action:
    may = f.get("session") and f.get("reader_gone") and f.get("reads", True)
    return _claims(f, bool(may and _may_show(f)), _best(f))


def hand_over_master(f: Facts) -> Action:
    return _returns(f, Mode.HANDOVER)


def hand_over_reader(f: Facts) -> Action:
    if f.get("session") and not state_current(f):
        return Action.WAIT
    if f.get("stream"):
        return Action.SEND_RECORD if f.get("frozen") else Action.FREEZE
    may = f.get("session") and f.get("master_gone") and not f.get("unread")
    if not may or f.get("not_due") or not _has_what_it_showed(f):
        return Action.WAIT
    return Action.CLAIM if f.get("checked") or f.get("patient") else Action.CHECK


def hand_over_slave(f: Facts) -> Action:
    gone = f.get("reader_gone") and f.get("master_gone")
    may = f.get("session") and gone and f.get("reads", True) and _may_show(f)
    return _claims(f, bool(may), _best(f))


CLAIMING = ("session", "fresh", "reads", "not_due", "checked", "patient")
OTHER_SLAVE = ("reader_gone", "master_gone", "in_isr", "emptied", "alone", "rival")
RETURNING = ("session", "fresh", "fits", "record", "reader_heard", "t", "unclean", "reader_gone",
             "long", "lenient", "sealed", "away", "lacks")  # fmt: skip
GIVEN = ("session", "fresh", "fits", "record", "reader_heard", "t", "unclean", "reader_gone",
         "long", "unclaimed", "hollow", "gathering", "away")  # fmt: skip
EMPTIED = ("session", "fresh", "record", "reader_heard", "t", "emptied", "reader_gone", "long",
           "sealed", "unclaimed", "both")  # fmt: skip
REFILLED = ("session", "fresh", "checked", "emptied", "unproven", "unclean", "both")
TABLE: list[tuple[Mode, BrokerId, Callable[[Facts], Action], tuple[str, ...]]] = [
    (Mode.NEW, M, new_master, ("session", "fresh", "records", "again", "reader_heard", "t")),
    (Mode.NEW, S, lambda f: Action.WAIT, CLAIMING),
    (Mode.MASTER, M, master_master,
     ("held", "session", "fresh", "fits", "whole", "unclean", "reader_heard", "t", "reads",
      "stopping", "reader_gone")),
    (Mode.MASTER, S, master_slave,
     (*CLAIMING, "master_gone", "stream", "promised", "in_isr", "emptied", "alone", "rival")),
    (Mode.MASTER, M, master_master,
     ("held", "session", "fresh", "wish", "slow", "reader_heard", "t", "reader_gone", "masked",
      "other_life", "s_out", "stopping", "fits")),
    (Mode.MASTER, M, master_master,
     ("held", "session", "fresh", "gathering", "whole", "reader_heard", "t")),
    (Mode.MASTER, M, master_master,
     ("held", "session", "fresh", "emptied", "both", "whole", "reader_heard", "t")),
    (Mode.SLAVE_CONSUME, M, consume_master, EMPTIED),
    (Mode.HANDOVER, M, hand_over_master, EMPTIED),
    (Mode.SLAVE_CONSUME, M, consume_master, RETURNING),
    (Mode.SLAVE_CONSUME, M, consume_master, GIVEN),
    (Mode.HANDOVER, M, hand_over_master,
     (*RETURNING[:7], "reader_gone", "sealed", "gathering", "long", "away", "hollow")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "stream", "master_gone", "lease_out", "reads")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "stream", "master_gone", "wish", "successor",
      "reborn")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "stream", "master_gone", "wish", "behind", "none",
      "gathering", "alone", "in_isr", "lost")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "stream", "master_gone", "emptied", "unproven",
      "lacks")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "stream", "master_gone", "stopping", "large",
      "lease_out")),
    (Mode.SLAVE_CONSUME, T, consume_slave, (*CLAIMING, *OTHER_SLAVE)),
    (Mode.HANDOVER, M, hand_over_master, RETURNING),
    (Mode.HANDOVER, S, hand_over_reader,
     (*CLAIMING, "unread", "frozen", "stream", "master_gone", "lease_out")),
    (Mode.HANDOVER, S, hand_over_reader,
     (*CLAIMING[:5], "stream", "master_gone", "emptied", "unproven", "lacks")),
    (Mode.HANDOVER, T, hand_over_slave, (*CLAIMING, *OTHER_SLAVE)),
    # An in-sync slave whose disk was lost, and which a master may not have filled to the end.
    (Mode.MASTER, S, master_slave, (*REFILLED, "master_gone")),
    (Mode.SLAVE_CONSUME, T, consume_slave, (*REFILLED, "reader_gone")),
    (Mode.HANDOVER, T, hand_over_slave, (*REFILLED, "reader_gone", "master_gone")),
    # A state that is older than a journal, of this broker or of another member.
    (Mode.MASTER, M, master_master, ("held", "session", "fresh", "newer")),
    (Mode.SLAVE_CONSUME, M, consume_master,
     ("session", "fresh", "newer", "record", "reader_heard", "t", "reader_gone", "long",
      "unclaimed")),
    (Mode.HANDOVER, M, hand_over_master,
     ("session", "fresh", "newer", "record", "reader_heard", "t", "reader_gone", "long", "sealed")),
    (Mode.MASTER, M, master_master,
     ("held", "session", "fresh", "wish", "reader_heard", "fits", "whole", "newer", "stopping")),
    (Mode.MASTER, S, master_slave, (*CLAIMING, "master_gone", "fits", "newer")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "stream", "master_gone", "lease_out", "fits", "newer",
      "stopping")),
    (Mode.SLAVE_CONSUME, S, consume_reader,
     ("held", "frozen", "session", "fresh", "master_gone", "wish", "successor", "lost", "fits",
      "newer")),
    (Mode.SLAVE_CONSUME, T, consume_slave, (*CLAIMING, "reader_gone", "fits")),
    (Mode.HANDOVER, S, hand_over_reader,
     (*CLAIMING, "frozen", "stream", "master_gone", "fits", "newer")),
    (Mode.HANDOVER, T, hand_over_slave, (*CLAIMING, "reader_gone", "master_gone", "fits")),
]  # fmt: skip
