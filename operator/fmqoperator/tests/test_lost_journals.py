"""A group that waits for a person because its journals are lost, and begins again."""

from dataclasses import replace

import pytest

from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import BEGIN_AGAIN
from fmqoperator.core.actions import BeginAgain, EmitEvent, RemoveAnnotation
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.world import World, running

MASTER = BrokerId("g1-0")


def emptied(made: World) -> Observation:
    """Both volumes are lost: the master is live, serves nothing and reports why."""
    seen = made.seen()
    answer = replace(
        seen.answers[MASTER],
        permission=Permission.NONE,
        cause="the data directory of g1-0 was lost",
        remedy=Remedy.BEGIN_AGAIN,
    )
    return replace(seen, answers={**seen.answers, MASTER: answer})


def test_a_group_that_waits_for_a_person_names_the_command() -> None:
    made = running(False)
    seen = emptied(made)
    command = f"kubectl annotate -n shop brokergroup g1 {BEGIN_AGAIN}={made.state.epoch}"
    (event,) = [a for a in plan(seen) if isinstance(a, EmitEvent) and a.reason == "JournalsLost"]
    assert event.type == "Warning"
    assert command in event.message
    found = status(seen)
    assert command in found["message"]
    stopped = [c for c in found["conditions"] if c["reason"] == "JournalsLost"]
    assert {c["type"] for c in stopped} >= {"WriteAvailable", "ReadAvailable"}
    assert all(command in c["message"] for c in stopped)


def test_a_group_begins_again_by_annotation_once() -> None:
    made = running(False)
    made.opens = False
    epoch = made.state.epoch
    made.annotate(BEGIN_AGAIN, str(epoch))
    actions = plan(emptied(made))
    assert [a.epoch for a in actions if isinstance(a, BeginAgain)] == [epoch]
    for action in actions:
        made.do(action)
    assert (made.state.mode, made.state.epoch) == (Mode.NEW, epoch)
    assert BEGIN_AGAIN not in made.body["metadata"]["annotations"]
    assert not [a for a in plan(made.seen()) if isinstance(a, BeginAgain)]


def test_a_group_that_begins_again_shows_what_it_waits_for() -> None:
    made = running(False)
    made.opens = False
    epoch = made.state.epoch
    made.annotate(BEGIN_AGAIN, str(epoch))
    for action in plan(emptied(made)):
        made.do(action)
    waits = "g1-0 waits to hear every configured slave"
    seen = made.seen()
    answer = replace(seen.answers[MASTER], permission=Permission.NONE, cause=waits)
    seen = replace(seen, answers={**seen.answers, MASTER: answer})
    found = status(seen)
    assert waits in found["message"]
    (write,) = [c for c in found["conditions"] if c["type"] == "WriteAvailable"]
    assert waits in write["message"]


@pytest.mark.parametrize("asked", ["", "0", "99", "yes"])
def test_begin_again_in_another_epoch_is_refused(asked: str) -> None:
    made = running(False)
    made.annotate(BEGIN_AGAIN, asked)
    actions = plan(emptied(made))
    assert not [a for a in actions if isinstance(a, BeginAgain)]
    assert RemoveAnnotation(BEGIN_AGAIN, asked) in actions
    assert "BeginAgainRefused" in [a.reason for a in actions if isinstance(a, EmitEvent)]


def test_a_group_that_serves_does_not_begin_again() -> None:
    made = running(False)
    made.annotate(BEGIN_AGAIN, str(made.state.epoch))
    actions = plan(made.seen())
    assert not [a for a in actions if isinstance(a, BeginAgain)]
    assert [a.reason for a in actions if isinstance(a, EmitEvent)] == ["BeginAgainRefused"]
