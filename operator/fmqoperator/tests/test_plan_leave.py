"""Fewer replicas: which copy may go."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId, Position
from fmqcore.zk.group_state import Mode
from fmqoperator.core.observation import Node, PodPhase
from fmqoperator.core.outlook import outlook
from fmqoperator.core.outlook import replicas as to_run
from fmqoperator.tests.plan_kit import lose_master, members, replicas
from fmqoperator.tests.world import World, running

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


def test_briefly_out_of_sync_slave_is_not_scaled_down(moves: bool) -> None:
    """The other slave has long been broken: acknowledged data is only here and at the master."""
    made = running(moves, replicas=3)
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], waiting="CrashLoopBackOff", ready=False)
    made.run(lambda w: w.state.isr == {"g1-2"})
    made.spec(replicas=2)
    made.state = replace(made.state, isr=frozenset())
    made.round()
    assert replicas(made) == 3
    assert "g1-1 is not in sync either" in made.condition("Progressing")["message"]
    made.broken.clear()
    made.run()
    assert replicas(made) == 2


@pytest.mark.parametrize(("end", "left"), [(900, 3), (1000, 2), (1100, 2)])
def test_two_slaves_out_of_sync_then_the_longer_journal_stays(
    moves: bool, end: int, left: int
) -> None:
    made = running(moves, replicas=3)
    made.spec(replicas=2)
    made.state = replace(made.state, isr=frozenset())
    seen = made.seen()
    answers = dict(seen.answers)
    answers[BrokerId("g1-1")] = replace(answers[BrokerId("g1-1")], end=Position(end))
    found = outlook(replace(seen, answers=answers))
    assert (3 if found.step is None else 2) == left


def test_out_of_sync_slave_may_leave_while_another_is_in_sync(moves: bool) -> None:
    """Two slaves without a node are removed one at a time, also if only the first is asked."""
    made = running(moves, replicas=4)
    for broker in ("g1-2", "g1-3"):
        made.broken.add(broker)
        lost = replace(made.pods[broker], phase=PodPhase.PENDING, ready=False, node="")
        made.pods[broker] = replace(lost, waiting="Unschedulable")
    made.run(lambda w: w.state.isr == {"g1-1"})
    made.spec(replicas=3)
    made.run(lambda w: replicas(w) == 3)


@pytest.mark.parametrize("by_hand", ["deleted", "scaled"])
def test_a_master_that_cannot_leave_yet_is_not_left_stopped(moves: bool, by_hand: str) -> None:
    """Its scale-down is refused, and a person deletes the StatefulSet, or scales that instead."""
    made = running(moves, replicas=3, switchover={"to": "g1-2"})
    del made.body["spec"]["switchover"]
    made.broken |= {"g1-0", "g1-1"}
    for slave in ("g1-0", "g1-1"):
        made.pods[slave] = replace(made.pods[slave], waiting="CrashLoopBackOff", ready=False)
    made.run(lambda w: not w.state.isr)
    made.spec(replicas=2)
    made.round()
    assert replicas(made) == 3
    if by_hand == "deleted":
        del made.children["StatefulSet", "g1"]
        made.pods.clear()
    else:
        made.children["StatefulSet", "g1"]["spec"]["replicas"] = 2
        made.turn()
        made.turn()
        assert "g1-2" not in made.pods
    made.broken.clear()
    made.run(lambda w: w.state.mode is Mode.MASTER and len(w.state.isr) == 2, most=30)
    if moves:
        made.run()
        assert (replicas(made), members(made)) == (2, ["g1-0", "g1-1"])
        assert made.state.master in ("g1-0", "g1-1")


def test_stopped_slave_returns_if_the_master_dies_too_early(
    moves: bool,
) -> None:
    """The next master must hear all that were in sync: it would wait for ever."""
    made = running(moves, replicas=3, promotion={"policy": "after", "afterSeconds": 30})
    made.spec(replicas=2)
    made.round()
    assert replicas(made) == 2
    lose_master(made)
    made.run(lambda w: w.state.isr == {"g1-1", "g1-2"} and "g1-2" not in w.pods, most=5)
    made.run(lambda w: _serves_writes(w) if moves else "g1-2" in w.live, most=60)
    made.broken.clear()
    made.nodes["n0"] = Node("n0", zone="z0")
    made.run()
    assert (replicas(made), members(made)) == (2, ["g1-0", "g1-1"])


def _serves_writes(made: World) -> bool:
    return (
        made.state.mode is Mode.MASTER
        and made.state.master == "g1-1"
        and not made.state.required_epoch
    )


@pytest.mark.parametrize("unknown", ["pods", "answers", "zookeeper"])
def test_stopped_broker_stays_down_while_serving_is_unknown(moves: bool, unknown: str) -> None:
    made = running(moves, replicas=3)
    made.spec(replicas=2)
    made.round()
    in_sync = made.state
    made.turn()
    made.turn()
    made.state = in_sync
    seen = made.seen()
    assert "g1-2" not in made.pods
    less: dict[str, Any] = {"answers": {}} if unknown == "answers" else {unknown: None}
    assert to_run(replace(seen, **less), None) == 2
