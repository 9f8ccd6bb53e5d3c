"""Fewer replicas: whose copy may go."""

from dataclasses import replace

import pytest

from fmqcore.words import BrokerId, Position
from fmqoperator.outlook import outlook
from fmqoperator.seen import PodPhase
from fmqoperator.tests.plan_kit import replicas
from fmqoperator.tests.world import running

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


def test_a_slave_that_is_out_of_sync_for_a_moment_is_not_scaled_away(moves: bool) -> None:
    """The other one has long been broken: what was acknowledged is here and at the master alone."""
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
def test_of_two_that_are_out_of_sync_who_has_more_stays(moves: bool, end: int, left: int) -> None:
    made = running(moves, replicas=3)
    made.spec(replicas=2)
    made.state = replace(made.state, isr=frozenset())
    seen = made.seen()
    answers = dict(seen.answers)
    answers[BrokerId("g1-1")] = replace(answers[BrokerId("g1-1")], end=Position(end))
    found = outlook(replace(seen, answers=answers))
    assert (3 if found.step is None else 2) == left


def test_one_that_is_not_in_sync_may_go_while_another_slave_is(moves: bool) -> None:
    """Two that find no node are taken out one at a time, also if the first is all that is asked."""
    made = running(moves, replicas=4)
    for broker in ("g1-2", "g1-3"):
        made.broken.add(broker)
        lost = replace(made.pods[broker], phase=PodPhase.PENDING, ready=False, node="")
        made.pods[broker] = replace(lost, waiting="Unschedulable")
    made.run(lambda w: w.state.isr == {"g1-1"})
    made.spec(replicas=3)
    made.run(lambda w: replicas(w) == 3)
