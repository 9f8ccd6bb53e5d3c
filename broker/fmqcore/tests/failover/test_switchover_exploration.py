"""Switchovers (ADR 0022): the small world with wanted masters and journals; new states.

Any broker may believe at any moment that another master is wanted. Besides two readers, the
forbidden outcomes are a term opened without acknowledged records, and two histories in one epoch.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fmqcore.failover import guards as g
from fmqcore.failover import transitions
from fmqcore.failover.context import Case
from fmqcore.failover.evidence import Action
from fmqcore.failover.machine import Row, decide
from fmqcore.ids import Epoch, Permission
from fmqcore.tests.failover.expected_table import (
    NOW,
    PARAMS,
    Facts,
    M,
    S,
    T,
    U,
    check,
    config,
    evidence,
    state,
)
from fmqcore.tests.failover.ways import explore, heal, walk
from fmqcore.tests.failover.world import (
    Protocol,
    World,
    handing_over,
    moving,
    new,
    planted,
    serves,
    taken_over,
    whole,
)
from fmqcore.zk.group_state import GroupState, Mode

GOOD = Protocol()
Root = Callable[..., World]


@pytest.mark.parametrize(
    ("root", "cuts", "crashes", "at_least"),
    [(whole, 0, 0, 1_000), (taken_over, 0, 0, 30_000)],
)
def test_one_slave_all_worlds_keep_the_invariants(
    root: Root, cuts: int, crashes: int, at_least: int
) -> None:
    start = moving(root(1, cuts=cuts, crashes=crashes), moves=1, writes=1)
    worlds, way = explore(start, GOOD, 1_000, 1_000_000)
    assert not way
    assert at_least < worlds < 1_000_000  # to the end: nothing was left out


@pytest.mark.parametrize(
    ("root", "slaves"), [(whole, 1), (whole, 2), (taken_over, 2), (handing_over, 1)]
)
def test_bounded_worlds_keep_the_invariants(root: Root, slaves: int) -> None:
    start = moving(root(slaves, cuts=1, crashes=2), moves=2, writes=1)
    worlds, way = explore(start, GOOD, 100, 15_000)
    assert not way
    assert worlds > 15_000


def test_random_walks_heal_once_faults_end() -> None:
    roots = (whole, taken_over, new)
    masters = [0, 0, 0]
    for seed in range(120):
        start = moving(roots[seed % 3](1 + seed // 3 % 2, cuts=40, crashes=20), moves=30, writes=9)
        protocol = replace(GOOD, records_fit=bool(seed % 4), memo={})
        world, way = walk(start, protocol, seed, 250)
        assert not way, f"seed {seed}"
        healed = heal(world, protocol)
        assert healed.zk.mode is Mode.MASTER, f"seed {seed} stays {healed}"
        assert serves(healed, healed.zk.master, protocol) is Permission.FULL, f"seed {seed}"
        masters[healed.zk.master] += 1
    assert all(masters), f"ways on which no other broker became master prove little: {masters}"


def written(slaves: int, *, cuts: int, crashes: int) -> World:
    """The master is dead, slave 1 serves the reads; only slave 2 has the acknowledged records."""
    w = taken_over(slaves, cuts=cuts, crashes=0)
    has = ((1,), (), (1,))
    brokers = tuple(b._replace(has=h) for b, h in zip(w.brokers, has, strict=True))
    return w._replace(brokers=brokers, committed=(1,), crashes=crashes - 1)


def _without_claim(p: Protocol) -> Protocol:
    """The successor opens its term by one compare-and-set, like a returning master."""

    def opens(case: Case) -> GroupState:
        return replace(transitions.take_over(case), required_epoch=Epoch(0))

    def changed(row: Row) -> Row:
        taken = row.action is Action.TAKE_OVER
        return replace(row, action=Action.OPEN, edit=opens) if taken else row

    rows = {key: tuple(changed(r) for r in rows) for key, rows in p.rules.rows.items()}
    return replace(p, rules=replace(p.rules, rows=rows), memo={})


LACKS = "a term is opened without what was acknowledged"
MISTAKES = [
    (
        "the successor opens without the claim",
        _without_claim(GOOD),
        whole,
        1,
        "two histories in one epoch",
    ),
    ("a promotion with a slave unheard", planted(GOOD, g.GATHERED.name), written, 2, LACKS),
    (
        "the successor's end is not waited for",
        replace(GOOD, waits_for_successor=False, memo={}),
        whole,
        2,
        LACKS,
    ),
    (
        "the record is not carried",
        replace(GOOD, carries_record=False, memo={}),
        taken_over,
        1,
        "READ is given back before the offsets",
    ),
]


@pytest.mark.parametrize(
    ("protocol", "root", "slaves", "wrong"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[str(mistake[0]).replace(" ", "-") for mistake in MISTAKES],
)
def test_planted_mistakes_are_found(
    protocol: Protocol, root: Root, slaves: int, wrong: str
) -> None:
    crashes = 1 if root in (written, whole) and slaves + (root is written) != 2 else 0
    start = moving(root(slaves, cuts=0, crashes=crashes), moves=1, writes=1)
    worlds, way = explore(start, replace(protocol, memo={}), 40, 150_000)
    assert way, f"not found in {worlds} worlds"
    assert way[-1] == wrong


# ---- the new states

READY: Facts = {"held": True, "session": True, "fresh": True, "wish": True, "reader_heard": True}
READS: Facts = {
    "held": True, "session": True, "fresh": True, "wish": True, "master_gone": True, "lost": True
}  # fmt: skip


def test_a_master_gives_way_to_the_very_process_that_has_all() -> None:
    edit = check(M, Mode.MASTER, READY).edit
    assert edit is not None
    assert (edit.mode, edit.epoch, edit.master, edit.reader) == (Mode.SLAVE_CONSUME, 8, M, S)
    assert (edit.successor_incarnation, edit.max_delivered_position, edit.required_epoch) == (
        "i",
        0,
        0,
    )
    taken = decide(S, config(READY), edit, evidence(Mode.SLAVE_CONSUME, READY), NOW, PARAMS)
    assert taken.action is Action.TAKE_OVER
    assert taken.edit is not None
    assert (taken.edit.mode, taken.edit.epoch, taken.edit.master) == (Mode.MASTER, 9, S)
    assert taken.edit.isr == {M, T, U}  # the master has all that its successor has
    assert (taken.edit.required_epoch, taken.edit.successor_incarnation) == (7, "")
    assert taken.permission is Permission.NONE


def test_claim_ends_a_pending_succession() -> None:
    stands = replace(state(Mode.SLAVE_CONSUME, {}), successor_incarnation="i")
    facts: Facts = {"session": True, "fresh": True, "reborn": True, "wish": True}
    edit = decide(S, config(facts), stands, evidence(Mode.SLAVE_CONSUME, facts), NOW, PARAMS).edit
    assert edit is not None
    assert (edit.mode, edit.reader, edit.successor_incarnation) == (Mode.SLAVE_CONSUME, S, "")


def test_promoted_slave_hears_every_in_sync_slave_first() -> None:
    frozen = READS | {"held": False, "frozen": True}
    edit = check(S, Mode.SLAVE_CONSUME, frozen).edit
    assert edit is not None
    assert (edit.mode, edit.master, edit.required_epoch) == (Mode.MASTER, S, 8)
    assert edit.isr == {T, U}
    assert edit.offsets == "cmVj"
    own = replace(config({}), master=S)  # as the group store hands it out
    master = evidence(Mode.MASTER, {"session": True, "fresh": True})
    waits = decide(S, own, edit, master, NOW, PARAMS)
    assert waits.action is Action.WAIT
    assert "every other member but g-0" in waits.reason
    heard = evidence(Mode.MASTER, {"session": True, "fresh": True, "t": True})
    opened = decide(S, own, edit, heard, NOW, PARAMS)
    assert opened.action is Action.OPEN
    assert opened.edit is not None
    assert (opened.edit.master, opened.edit.epoch, opened.edit.required_epoch) == (S, 9, 0)


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ({"lost": False}, "until master g-0 is back"),
        ({"behind": True}, "stopped uncleanly"),
        ({"none": True}, "the policy asks no slave"),
        ({"gathering": True}, "had not heard all slaves"),
        ({"alone": True}, "waits for every other member"),
        ({"stream": True, "master_gone": False}, "until master g-0 is back"),
    ],
)
def test_why_a_reader_is_not_promoted(fact: Facts, reason: str) -> None:
    decision = check(S, Mode.SLAVE_CONSUME, READS | fact)
    if "stream" in fact:
        assert decision.action is Action.FREEZE  # for the hand-over: its master is back
        return
    assert decision.action is Action.WAIT
    assert reason in decision.reason


def test_removed_broker_is_not_a_successor() -> None:
    group = config(READY)
    without = replace(group, members=tuple(m for m in group.members if m.id != S))
    facts = evidence(Mode.MASTER, READY)
    decision = decide(M, without, state(Mode.MASTER, READY, M), facts, NOW, PARAMS)
    assert decision.action is Action.WAIT
    assert decision.edit is None


def test_reasons_why_a_master_keeps_its_role() -> None:
    assert "is wanted" in check(M, Mode.MASTER, READY | {"reader_heard": False}).reason
    slow = check(M, Mode.MASTER, READY | {"slow": True})
    assert "did not have all in time" in slow.reason
    assert slow.wake_ms == NOW + 1
