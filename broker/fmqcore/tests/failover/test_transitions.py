"""All fields of the state after each step, and guards at their boundaries."""

from dataclasses import replace

import pytest

from fmqcore.failover.evidence import Action, Link
from fmqcore.failover.machine import decide
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.tests.failover.expected_table import (
    EPOCH,
    NOW,
    PARAMS,
    Facts,
    M,
    S,
    T,
    U,
    config,
    evidence,
    live,
    state,
)
from fmqcore.zk.group_state import GroupState, Mode

AT_WORK: Facts = {"session": True, "fresh": True, "held": True}
ALONE_NOW: Facts = {"session": True, "fresh": True, "master_gone": True, "reader_gone": True}
CLAIMS: Facts = ALONE_NOW | {"checked": True, "patient": True}


def edit_of(me: BrokerId, mode: Mode, f: Facts, action: Action, **changes: object) -> GroupState:
    """Return what the step makes of the table's state with these fields."""
    stands = replace(state(mode, f, me), **changes)  # type: ignore[arg-type]
    decision = decide(me, config(f), stands, evidence(mode, f), NOW, PARAMS)
    assert decision.action is action, decision.reason
    assert decision.edit is not None
    return decision.edit


def test_claim_clears_leftovers_of_the_previous_term() -> None:
    """A later step would wrongly see the record as whole, or a reader as unused."""
    claimed = edit_of(T, Mode.HANDOVER, CLAIMS | {"sealed": True}, Action.CLAIM)
    assert (claimed.reader, claimed.offsets_final, claimed.offsets) == (T, False, "cmVj")
    claimed = edit_of(T, Mode.SLAVE_CONSUME, CLAIMS, Action.CLAIM, successor_incarnation="i")
    assert (claimed.reader, claimed.successor_incarnation) == (T, "")


@pytest.mark.parametrize(("base", "kept"), [(Epoch(0), 1), (EPOCH, 99)])
def test_claim_from_an_unopened_master_continues_the_takeover(base: Epoch, kept: int) -> None:
    """Readers from before its promotion may have delivered more than the claimer now has."""
    claimed = edit_of(
        T,
        Mode.MASTER,
        CLAIMS,
        Action.CLAIM,
        required_epoch=base,
        max_delivered_position=Position(99),
    )
    assert claimed.max_delivered_position == kept
    assert claimed.required_epoch == base


def test_orderly_successor_has_delivered_nothing_yet() -> None:
    """Records that another takeover delivered were taken back: they make no broker wait."""
    shown = {"max_delivered_position": Position(99), "degraded": True}
    stopping = AT_WORK | {"stopping": True, "reader_heard": True}
    given = edit_of(M, Mode.MASTER, stopping, Action.YIELD, **shown)
    assert (given.reader, given.max_delivered_position, given.successor_incarnation) == (S, 0, "")
    moved = edit_of(
        M, Mode.MASTER, AT_WORK | {"wish": True, "reader_heard": True}, Action.MOVE, **shown
    )
    assert (moved.reader, moved.max_delivered_position, moved.successor_incarnation) == (S, 0, "i")


SUCCESSOR: Facts = {"session": True, "fresh": True, "wish": True, "successor": True}
PROMOTED: Facts = ALONE_NOW | {"wish": True, "lost": True, "frozen": True, "reader_gone": False}


def test_successor_keeps_the_record_and_counts_the_old_master() -> None:
    taken = edit_of(
        S, Mode.SLAVE_CONSUME, SUCCESSOR, Action.TAKE_OVER, offsets="b2xk", offsets_final=True
    )
    assert (taken.master, taken.reader) == (S, S)
    assert taken.isr == {M, T, U}
    assert (taken.offsets, taken.offsets_final, taken.successor_incarnation) == ("b2xk", False, "")
    assert (taken.required_epoch, taken.declared_lost) == (EPOCH, ""), (
        "it has all, and no broker is lost"
    )


def test_promoted_slave_brings_its_record_and_drops_lost_broker() -> None:
    taken = edit_of(
        S, Mode.SLAVE_CONSUME, PROMOTED, Action.TAKE_OVER, offsets="b2xk", offsets_final=True
    )
    assert (taken.master, taken.reader) == (S, S)
    assert taken.isr == {T, U}
    assert (taken.offsets, taken.offsets_final, taken.successor_incarnation) == ("cmVj", False, "")
    assert (taken.required_epoch, taken.declared_lost) == (EPOCH + 1, M), (
        "no journal has that epoch yet"
    )
    large = replace(evidence(Mode.SLAVE_CONSUME, PROMOTED), frozen_offsets=None)
    stands = replace(state(Mode.SLAVE_CONSUME, PROMOTED), offsets="b2xk")
    edit = decide(S, config(PROMOTED), stands, large, NOW, PARAMS).edit
    assert edit is not None
    assert edit.offsets == "b2xk", "too large for ZooKeeper: the last one that was not"


@pytest.mark.parametrize(
    ("record", "offsets", "whole"), [("cmVj", "cmVj", True), (None, "b2xk", False)]
)
def test_oversized_record_does_not_count_as_whole(
    record: str | None, offsets: str, whole: bool
) -> None:
    """C5: the master would open its term with an old one, and undo acks stored since."""
    f: Facts = {"session": True, "fresh": True, "frozen": True, "stream": True}
    known = replace(evidence(Mode.SLAVE_CONSUME, f), frozen_offsets=record)
    stands = replace(state(Mode.SLAVE_CONSUME, f), offsets="b2xk")
    decision = decide(S, config(f), stands, known, NOW, PARAMS)
    assert decision.action is Action.HAND_OVER
    assert decision.edit is not None
    assert (decision.edit.offsets, decision.edit.offsets_final) == (offsets, whole)


@pytest.mark.parametrize(("max_delivered_position", "degraded"), [(1, False), (2, True)])
def test_promoted_slave_reports_missing_delivered_records(
    max_delivered_position: int, degraded: bool
) -> None:
    f: Facts = {"session": True, "fresh": True, "gathering": True, "reader_heard": True, "t": True}
    opened = edit_of(
        M, Mode.MASTER, f, Action.OPEN, max_delivered_position=Position(max_delivered_position)
    )
    assert opened.degraded is degraded
    assert opened.max_delivered_position == (max_delivered_position if degraded else 0)
    assert opened.offsets == ("" if degraded else "cmVj")


@pytest.mark.parametrize("broken", [S, T])
def test_slave_level_at_its_disconnect_counts_for_nothing(broken: BrokerId) -> None:
    gone = Link(connected=False, caught_up=True, heard=True, incarnation="i", whole=True)
    f = AT_WORK | {"stopping": True, "reader_heard": True, "t": True}
    known = evidence(Mode.MASTER, f)
    known = replace(known, links={**known.links, broken: gone})
    given = decide(M, config(f), state(Mode.MASTER, f), known, NOW, PARAMS).edit
    assert given is not None
    assert given.reader == ({S, T} - {broken}).pop()
    wish = AT_WORK | {"wish": True, "reader_heard": True}
    known = evidence(Mode.MASTER, wish)
    known = replace(known, links={**known.links, S: gone})
    assert (
        decide(M, config(wish), state(Mode.MASTER, wish), known, NOW, PARAMS).action is Action.WAIT
    )
    back: Facts = {"session": True, "fresh": True, "reader_heard": True, "t": True}
    known = evidence(Mode.MASTER, back)
    known = replace(known, links={**known.links, broken: gone})
    opened = decide(M, config(back), state(Mode.MASTER, back), known, NOW, PARAMS).edit
    assert opened is not None
    assert opened.isr == {S, T} - {broken}


@pytest.mark.parametrize("emptied", [False, True])
def test_promoted_slave_opens_no_term_on_an_empty_journal(emptied: bool) -> None:
    """F16: it had a journal at its promotion, so its disk was lost since."""
    f: Facts = {"session": True, "fresh": True, "gathering": True, "reader_heard": True, "t": True}
    f["emptied"] = emptied
    decision = decide(M, config(f), state(Mode.MASTER, f), evidence(Mode.MASTER, f), NOW, PARAMS)
    assert decision.action is (Action.WAIT if emptied else Action.OPEN)


BACK: Facts = {"session": True, "fresh": True, "unclean": True}


@pytest.mark.parametrize("flush", [Flush.OS_CACHE, Flush.INTERVAL])
def test_interval_fsync_does_not_count_as_fsync(flush: Flush) -> None:
    """A master that loses power may lack what its slaves serve, even within the interval."""
    lenient = replace(config(BACK), policy=AckPolicy(flush, how_many=HowMany.NONE))
    stands, known = state(Mode.MASTER, BACK), evidence(Mode.MASTER, BACK)
    assert decide(M, lenient, stands, known, NOW, PARAMS).action is Action.WAIT
    known = replace(known, live={M: known.live[M]})
    assert decide(M, lenient, stands, known, NOW, PARAMS).action is Action.OPEN, (
        "no broker is there"
    )


def test_master_without_in_sync_slaves_waits_under_no_policy() -> None:
    lonely = replace(evidence(Mode.MASTER, BACK), other_policy=True, tail_lost=True)
    stands = replace(state(Mode.MASTER, BACK), isr=frozenset())
    assert decide(M, config(BACK), stands, lonely, NOW, PARAMS).action is Action.OPEN


@pytest.mark.parametrize(("connected", "caught_up"), [(True, False), (False, True)])
def test_reader_serves_until_level_with_its_master(connected: bool, caught_up: bool) -> None:
    """It stops once the master has everything; before, no other broker could serve that."""
    for mode, f in (
        (Mode.SLAVE_CONSUME, AT_WORK),
        (Mode.SLAVE_CONSUME, {"held": True, "fresh": True, "lease_out": True}),
        (Mode.HANDOVER, {"session": True, "fresh": True, "frozen": True}),
    ):
        known = evidence(mode, f)
        known = replace(known, upstream_connected=connected, upstream_caught_up=caught_up)
        assert decide(S, config(f), state(mode, f), known, NOW, PARAMS).action is Action.WAIT


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_best_slave_claims_at_its_last_check_others_long_after(needed: int) -> None:
    """The most advanced has claimed by then or cannot; it is not waited for for ever."""
    params = replace(PARAMS, claim_checks=needed)
    for rival, last in ((False, needed - 1), (True, 4 * needed)):
        f = ALONE_NOW | {"rival": rival}
        for checks in range(last + 2):
            known = replace(evidence(Mode.MASTER, f), checks=checks)
            action = decide(S, config(f), state(Mode.MASTER, f), known, NOW, params).action
            assert action is (Action.CLAIM if checks >= last else Action.CHECK), (rival, checks)


def test_slave_without_read_permission_gets_no_reads_and_no_wait() -> None:
    f: Facts = CLAIMS | {"patient": False}
    masked = [
        replace(m, permission=Permission.WRITE) if m.id == S else m for m in config(f).members
    ]
    only = replace(config(f), members=tuple(masked))
    known = evidence(Mode.MASTER, f)
    longer = {**known.live, S: live(S, end=99)}
    known = replace(known, live=longer)
    assert decide(S, only, state(Mode.MASTER, f), known, NOW, PARAMS).action is Action.WAIT
    assert decide(T, only, state(Mode.MASTER, f), known, NOW, PARAMS).action is Action.CLAIM
    for both, action in ((True, Action.YIELD), (False, Action.WAIT)):
        stopping: Facts = AT_WORK | {"stopping": True, "reader_heard": True, "t": both}
        there = evidence(Mode.MASTER, stopping)
        decision = decide(M, only, state(Mode.MASTER, stopping), there, NOW, PARAMS)
        assert decision.action is action
        assert decision.edit is None or decision.edit.reader == T


def test_new_term_adds_no_broker_to_the_in_sync_set() -> None:
    """R6: a nearly level learner may lack acknowledged records.

    It enters by its own compare-and-set once it has them.
    """
    f: Facts = {"session": True, "fresh": True, "reader_heard": True, "t": True}
    opened = edit_of(M, Mode.MASTER, f, Action.OPEN, isr=frozenset({T, U}))
    assert opened.isr == {T}
