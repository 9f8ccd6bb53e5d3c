"""The failover table, every state × input: `decide` against an independent second version.

The second version (`failover/expected_table.py`) is plain conditions, one function per mode; both
must agree for every combination of facts.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import pytest

from fmqcore.failover import transitions
from fmqcore.failover.evidence import Action, Decision, LeaseRule, Part
from fmqcore.failover.machine import RULES, decide
from fmqcore.failover.switchover_guards import ANOTHER_WANTED
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.tests.failover.expected_table import (
    EPOCH,
    NOW,
    PARAMS,
    TABLE,
    Facts,
    M,
    S,
    T,
    U,
    check,
    config,
    evidence,
    live,
    state,
    state_current,
)
from fmqcore.zk.group_state import GroupState, Mode

WITHOUT_LOOK = {Action.WAIT, Action.FREEZE, Action.SEND_RECORD}


def combinations(names: tuple[str, ...]) -> Iterator[Facts]:
    for values in product((False, True), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


@pytest.mark.parametrize(("mode", "me", "expected", "names"), TABLE)
def test_every_combination(
    mode: Mode, me: BrokerId, expected: Callable[[Facts], Action], names: tuple[str, ...]
) -> None:
    seen = set()
    for f in combinations(names):
        action = expected(f)
        older = mode is not Mode.NEW and f.get("session") and not state_current(f)
        if not f.get("fresh") and (action not in WITHOUT_LOOK or (older and action is Action.WAIT)):
            action = Action.LOOK
        decision = check(me, mode, f)
        seen.add(decision.action)
        assert decision.action is action, f"{f}: {decision}"
        assert bool(decision.reason) == (decision.action is not Action.LOOK)
        assert "{" not in decision.reason
        assert (decision.edit is not None) == (
            action
            not in (Action.WAIT, Action.LOOK, Action.CHECK, Action.FREEZE, Action.SEND_RECORD)
        )
        if decision.edit is not None:
            assert decision.edit.epoch == state(mode, f).epoch + 1 or mode is Mode.NEW
            assert decision.edit.reason
            assert decision.edit.master == (me if action is Action.TAKE_OVER else M)
            # F17: a claim, or two, and it is remembered still
            before = state(mode, f).last_opened_epoch
            opened = decision.edit.epoch if action is Action.OPEN else before
            assert decision.edit.last_opened_epoch == opened
        held = f.get("held") and not f.get("frozen")
        if mode is Mode.MASTER and me == M and held:
            full = Permission.FULL if f.get("reads", True) else Permission.WRITE
            assert (decision.permission, decision.lease) == (full, LeaseRule.ZOOKEEPER_OR_GRANTS)
        elif mode is Mode.SLAVE_CONSUME and me == S and held:
            assert (decision.permission, decision.lease) == (Permission.READ, LeaseRule.ZOOKEEPER)
        else:
            assert (decision.permission, decision.lease) == (Permission.NONE, LeaseRule.NONE)
        assert decision.may_grant == (mode is Mode.MASTER and me != M)
    assert len(seen) > 1 or mode is Mode.NEW


def test_every_table_row_is_reached() -> None:
    wanted = {(r.mode, r.part, r.action) for rows in RULES.rows.values() for r in rows}
    seen = set()
    for mode, me, _, names in TABLE:
        for f in combinations(names):
            d = check(me, mode, f)
            seen.add((mode, d.part, d.action))
    assert wanted <= seen


def test_every_guard_is_needed() -> None:
    """Each guard of each row decides something that the second version has, too."""
    idle = set()
    for mode, me in dict.fromkeys((mode, me) for mode, me, _, _ in TABLE):
        part = check(me, mode, {}).part
        rows = RULES.rows[mode, part]
        cases = [
            (expected(f), (me, config(f), state(mode, f, me), evidence(mode, f), NOW, PARAMS))
            for that_mode, who, expected, names in TABLE
            if (that_mode, who) == (mode, me)
            for f in combinations(tuple(n for n in names if n not in ("fresh", "patient")))
            if f.update(fresh=True) is None
        ]
        for n, row in enumerate(rows):
            for guard in row.guards:
                others = tuple(g for g in row.guards if g is not guard)
                fewer = replace(row, guards=others, edit=row.edit and transitions.hand_over)
                planted = {(mode, part): (*rows[:n], fewer, *rows[n + 1 :])}
                rules = replace(RULES, rows={**RULES.rows, **planted})
                if all(decide(*case, rules).action is action for action, case in cases):
                    idle.add((mode.value, part.value, row.action.value, guard.name))
    # Redundant: without a wish no broker is a ready successor. It is for the `reason` that people
    # read.
    assert idle == {("MASTER", "master", "move", ANOTHER_WANTED.name)}


def test_states_written_by_each_decision() -> None:
    base = {"session": True, "fresh": True}
    opened = check(M, Mode.NEW, base).edit
    assert opened is not None
    assert (opened.mode, opened.epoch, opened.master, opened.reader) == (Mode.MASTER, 1, M, M)
    assert opened.isr == frozenset()

    gone = base | {"master_gone": True, "checked": True}
    claimed = check(S, Mode.MASTER, gone).edit
    assert claimed is not None
    assert (claimed.mode, claimed.epoch, claimed.reader) == (Mode.SLAVE_CONSUME, 8, S)
    assert claimed.isr == {S, T, U}
    assert "g-0 is gone" in claimed.reason
    assert claimed.offsets == "cmVj"  # the record so far: the reader starts from it

    stopping = base | {"held": True, "stopping": True, "reader_heard": True}
    given = check(M, Mode.MASTER, stopping).edit
    assert given is not None
    assert (given.mode, given.epoch, given.reader) == (Mode.SLAVE_CONSUME, 8, S)

    handed = check(S, Mode.SLAVE_CONSUME, base | {"frozen": True, "stream": True}).edit
    assert handed is not None
    assert (handed.mode, handed.epoch, handed.reader, handed.offsets_final) == (
        Mode.HANDOVER, 8, S, True,
    )  # fmt: skip

    back = check(M, Mode.HANDOVER, base | {"record": True, "reader_heard": True}).edit
    assert back is not None
    assert (back.mode, back.epoch, back.reader, back.degraded) == (Mode.MASTER, 8, M, False)
    # until the slaves have its content
    assert (back.offsets, back.offsets_final) == ("cmVj", False)
    assert back.isr == {S}  # T is linked but not caught up: it must catch up first

    lost = base | {"reader_gone": True, "long": True, "reader_heard": True, "t": True}
    degraded = check(M, Mode.SLAVE_CONSUME, lost).edit
    assert degraded is not None
    assert degraded.degraded
    assert "delivered again" in degraded.reason
    lacking = check(M, Mode.SLAVE_CONSUME, lost | {"unclean": True, "away": True})
    assert lacking.action is Action.WAIT, "what it acknowledged may be with the reader alone"
    strict = check(M, Mode.SLAVE_CONSUME, lost | {"lenient": False})
    assert strict.action is Action.WAIT
    assert "strict_takeover" in strict.reason
    assert S in strict.reason


def test_new_group_starts_above_the_journal_it_finds() -> None:
    f = {"session": True, "fresh": True, "records": True, "reader_heard": True, "t": True}
    ahead = replace(evidence(Mode.NEW, f), journal_epoch=Epoch(41))
    edit = decide(M, config(f), GroupState(), ahead, NOW, PARAMS).edit
    assert edit is not None
    assert edit.epoch == 42


@pytest.mark.parametrize("me", [M, S, BrokerId("x-9")])
def test_unlisted_broker_and_second_process_do_nothing(me: BrokerId) -> None:
    """F3: a grant of either would not bind the broker of that name."""
    f = {"session": True, "fresh": True, "held": True, "master_gone": True, "checked": True}
    for mode in Mode:
        known = replace(evidence(mode, f), superseded=me in (M, S))
        decision = decide(me, config(f), state(mode, f), known, NOW, PARAMS)
        nothing = Decision(
            Action.WAIT, decision.part, Permission.NONE, LeaseRule.NONE, decision.reason, False,
            None, False, None,
        )  # fmt: skip
        assert decision == nothing
        assert (decision.part is Part.STRANGER) == (me not in (M, S))
        expected = "another process" if me in (M, S) else "is not a member"
        assert expected in decision.reason


@pytest.mark.parametrize(
    ("mode", "me", "full"),
    [
        (Mode.MASTER, M, Permission.FULL),
        (Mode.MASTER, S, Permission.NONE),
        (Mode.SLAVE_CONSUME, S, Permission.READ),
        (Mode.SLAVE_CONSUME, M, Permission.NONE),
        (Mode.HANDOVER, S, Permission.NONE),
        (Mode.HANDOVER, M, Permission.NONE),
    ],
)
def test_only_the_term_that_it_opened_gives_a_permission(
    mode: Mode, me: BrokerId, full: Permission
) -> None:
    """F6: neither a state that was read nor a term before it."""
    f = {"session": True, "fresh": True}
    for held, frozen in product((0, EPOCH - 1, EPOCH, EPOCH + 1), (0, EPOCH - 1, EPOCH)):
        known = replace(evidence(mode, f), held=Epoch(held), frozen=Epoch(frozen))
        decision = decide(me, config(f), state(mode, f), known, NOW, PARAMS)
        stopped = mode is Mode.SLAVE_CONSUME and frozen == EPOCH  # its record is made
        expected = full if held == EPOCH and not stopped else Permission.NONE
        assert decision.permission is expected, (held, frozen)
        assert (decision.lease is LeaseRule.NONE) == (expected is Permission.NONE)


def test_the_most_advanced_in_sync_slave_claims_first() -> None:
    f = {"session": True, "fresh": True, "master_gone": True, "checked": True}
    base = evidence(Mode.MASTER, f)
    for s_end, t_end, winner in ((5, 5, S), (5, 6, T), (6, 5, S)):
        there = {S: live(S, end=s_end), T: live(T, end=t_end), U: live(U)}
        for me, end in ((S, s_end), (T, t_end)):
            e = replace(base, live=there, journal_end=Position(end))
            action = decide(me, config(f), state(Mode.MASTER, f), e, NOW, PARAMS).action
            assert (action is Action.CLAIM) == (me == winner), (me, there)


def test_timers_return_the_next_decision_time() -> None:
    f = {"session": True, "fresh": True, "master_gone": True, "checked": True}
    promised = replace(evidence(Mode.MASTER, f), promised_until_ms=NOW + 77)
    decision = decide(S, config(f), state(Mode.MASTER, f), promised, NOW, PARAMS)
    assert decision.wake_ms == NOW + 78
    between = check(S, Mode.MASTER, f | {"not_due": True})
    assert between.wake_ms == NOW + 1
    assert between.checking  # the count of good checks is kept between two of them
    patient = check(S, Mode.MASTER, f | {"not_due": True, "rival": True})
    assert patient.checking, "else a less advanced slave never claims, if the best one does not"
    assert not check(S, Mode.MASTER, f | {"stream": True}).checking
    waiting = check(M, Mode.SLAVE_CONSUME, {"session": True, "reader_gone": True})
    assert waiting.wake_ms == NOW + 1
    assert check(M, Mode.MASTER, {"session": True, "held": True}).wake_ms is None
