"""Every way of moving the mastership, with the operator killed after each action.

The next operator knows only what the cluster, ZooKeeper and the status hold. It must end where the
first would have, with no broker moved or restarted twice.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core import facts
from fmqoperator.core import switchovers as moves
from fmqoperator.core.actions import PutGroupConfig, Requeue, RestartPod
from fmqoperator.core.observation import Defaults, Observation
from fmqoperator.core.plan import plan
from fmqoperator.core.plan_types import Hold
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import lose_master, members, restarts
from fmqoperator.tests.test_plan_safety import check
from fmqoperator.tests.world import World, running


@dataclass(frozen=True, slots=True)
class Story:
    """A request, and its required result."""

    ask: Callable[[World], None]
    terms: tuple[str, ...]  # the brokers that opened a term, in order
    restarted: tuple[str, ...] = ()
    spec: tuple[tuple[str, Any], ...] = ()
    lost: str = ""


def _drain(made: World) -> None:
    node = made.pods["g1-0"].node
    made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")


def _scale(made: World) -> None:
    del made.body["spec"]["switchover"]
    made.spec(replicas=2)


_AFTER: Final = (("promotion", {"policy": "after", "afterSeconds": 30}),)
_LAST: Final = (("switchover", {"to": "g1-2"}),)

STORIES: Final[dict[str, Story]] = {
    "annotation": Story(lambda w: w.annotate(SWITCHOVER, "g1-2"), ("g1-2",)),
    "annotation any": Story(lambda w: w.annotate(SWITCHOVER, "any"), ("g1-1",)),
    "annotation left empty": Story(lambda w: w.annotate(SWITCHOVER, ""), ("g1-1",)),
    "spec.switchover": Story(lambda w: w.spec(switchover={"to": "g1-2"}), ("g1-2",)),
    "drain": Story(_drain, ("g1-1",)),
    "rolling upgrade": Story(
        lambda w: w.spec(image="new:2"), ("g1-1",), restarted=("g1-2", "g1-1", "g1-0")
    ),
    "rolling upgrade of a declared master": Story(
        lambda w: w.spec(image="new:2"),
        ("g1-0", "g1-2"),
        restarted=("g1-1", "g1-0", "g1-2"),
        spec=_LAST,
    ),
    "fewer brokers than the master's number": Story(_scale, ("g1-0",), spec=_LAST),
    "the master is lost for good": Story(lose_master, ("g1-1",), spec=_AFTER, lost="g1-0"),
}


def started(story: Story) -> World:
    made = running(True, replicas=3, **dict(story.spec))
    made.terms.clear()
    story.ask(made)
    return made


def finish(made: World, story: Story) -> None:
    """Run until calm, and check the required result."""
    for _ in range(150):
        check(made.seen())
        if made.round() == [Requeue(30_000)] and ended(made, story):
            break
        made.turn()
    assert ended(made, story), (made.terms, made.sentence())
    assert tuple(made.terms) == story.terms, "no mastership moved twice"
    assert tuple(restarts(made)) == story.restarted, "no broker restarted twice"
    assert SWITCHOVER not in made.body["metadata"].get("annotations", {})
    assert made.config is not None
    assert made.config.value.master == made.state.master == story.terms[-1]
    assert made.config.value.declared_lost == story.lost
    assert len(members(made)) == made.body["spec"]["replicas"]


def ended(made: World, story: Story) -> bool:
    settled = made.state.mode is Mode.MASTER and not made.state.required_epoch
    return settled and len(made.terms) >= len(story.terms)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_operator_killed_after_any_action_then_plan_completes(name: str) -> None:
    story = STORIES[name]
    made, killed = started(story), 0
    while not ended(made, story):
        actions = plan(made.seen())
        for left in range(len(actions) if len(actions) > 1 else 0):
            other, killed = deepcopy(made), killed + 1
            other.round(killed_after=left)
            for _ in range(killed % 3):  # brokers continue while no operator looks
                other.turn()
            finish(other, story)
        made.round()
        made.turn()
    assert killed > 2
    finish(made, story)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_new_operator_at_every_round(name: str) -> None:
    """No operator lives long enough to write a status, except what it must keep about a lost
    master.
    """
    story = STORIES[name]
    made = started(story)
    for _ in range(150):
        made.round(killed_after=100)
        made.body["status"]["memory"] = status(made.seen())["memory"]
        made.body["status"]["master"] = made.state.master
        made.turn()
        if ended(made, story):
            break
    finish(made, story)


# ---- what goes wrong on the way


def step_of(made: World) -> list[str]:
    return [type(a).__name__ for a in plan(made.seen()) if isinstance(a, PutGroupConfig)]


def test_master_dies_during_switchover_then_successor_continues() -> None:
    made = running(True, replicas=3)
    made.annotate(SWITCHOVER, "g1-1")
    made.run(lambda w: w.state.successor_incarnation != "")
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="CrashLoopBackOff", ready=False)
    made.run(lambda w: w.state.master == "g1-1" and not w.state.required_epoch)
    made.broken.clear()
    made.run()
    assert made.state.master == "g1-1"
    assert sorted(made.state.isr) == ["g1-0", "g1-2"]


def test_successor_dies_with_the_reads_then_master_stays() -> None:
    made = running(True, replicas=3)
    made.terms.clear()
    made.annotate(SWITCHOVER, "g1-1")
    made.run(lambda w: w.state.successor_incarnation != "")
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], waiting="CrashLoopBackOff", ready=False)
    made.run(lambda w: w.config is not None and w.config.value.master == "g1-0")
    assert made.terms == ["g1-0"], "it opened again"
    for _ in range(5):
        made.turn()
        made.round()
    assert "g1-1 is not in sync" in made.condition("Progressing")["message"]
    made.broken.clear()
    made.run()
    assert made.terms == ["g1-0", "g1-1"]


def test_no_action_starts_before_the_new_master_opens_its_term() -> None:
    """It has claimed the mastership: from then on configuration and state agree."""
    made = running(True, replicas=3)
    made.opens = False
    made.spec(image="new:2")
    made.run(lambda w: w.state.required_epoch != 0)
    before = list(restarts(made))
    for _ in range(5):
        assert not [a for a in plan(made.seen()) if isinstance(a, RestartPod | PutGroupConfig)]
        made.round()
        made.turn()
    assert made.body["status"]["phase"] == "Switching"
    made.opens = True
    made.run()
    assert restarts(made) == [*before, "g1-0"]


def test_switchover_to_a_lagging_slave_can_be_replaced() -> None:
    """A switchover to g1-2, which still copies, and then the master's node is drained."""
    made = running(True, replicas=3)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-2")))
    made.state = replace(made.state, isr=frozenset({BrokerId("g1-1")}))
    assert step_of(made) == [], "it is waited for"
    _drain(made)
    (put,) = [a for a in plan(made.seen()) if isinstance(a, PutGroupConfig)]
    assert put.config.master == "g1-1"


def test_switchover_to_a_read_only_broker_is_withdrawn() -> None:
    made = running(True, permissions=[{"broker": "g1-1", "permission": "READ"}])
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-1")))
    made.round()
    assert made.config.value.master == "g1-0"
    assert [e.reason for e in made.events] == ["SwitchoverWithdrawn"]


def test_older_broker_version_then_no_switchover_is_requested() -> None:
    made = running(True, replicas=3)
    seen = made.seen()
    assert seen.zookeeper is not None
    old = replace(seen.zookeeper.live[BrokerId("g1-2")], supports_switchover=False)
    live = {**seen.zookeeper.live, BrokerId("g1-2"): old}
    made.annotate(SWITCHOVER, "g1-1")
    mixed = replace(made.seen(), zookeeper=replace(seen.zookeeper, live=live))
    assert not [a for a in plan(mixed) if isinstance(a, PutGroupConfig)]
    progressing = next(c for c in status(mixed)["conditions"] if c["type"] == "Progressing")
    assert "g1-2 runs a version without planned moves" in progressing["message"]


def test_master_without_successor_is_restarted_in_order() -> None:
    """By permission the others only read: a rolling restart still comes to its end."""
    only = [{"broker": b, "permission": "READ"} for b in ("g1-1", "g1-2")]
    made = running(True, replicas=3, permissions=only)
    made.spec(image="new:2")
    made.run()
    assert restarts(made) == ["g1-2", "g1-1", "g1-0"]
    assert made.state.master == "g1-0"


def test_master_already_being_evicted_is_not_reported() -> None:
    made = running(True)
    _drain(made)
    made.pods["g1-0"] = replace(made.pods["g1-0"], deleting=True, ready=False)
    assert plan(made.seen())[:-1] == []


def test_hibernation_ignores_a_dead_masters_switchover() -> None:
    made = running(True, replicas=3)
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-2")))
    made.spec(hibernated=True)
    made.run(lambda w: not w.pods)


def test_operator_requests_moves_unless_switched_off() -> None:
    assert Defaults("image").planned_moves


def test_a_master_that_has_not_opened_its_term_does_not_serve() -> None:
    made = running(True)
    assert facts.master_serves(made.seen())
    made.state = replace(made.state, required_epoch=made.state.epoch)
    answers = {b: replace(a, permission=Permission.FULL) for b, a in made.answers().items()}
    assert not facts.master_serves(replace(made.seen(), answers=answers))


def test_staying_and_up_to_date_slave_is_the_best_successor() -> None:
    made = running(True, replicas=4)
    assert moves.successors(made.seen()) == ("g1-1", "g1-2", "g1-3")
    made.pods["g1-1"] = replace(made.pods["g1-1"], revision="older")
    assert moves.successors(made.seen()) == ("g1-2", "g1-3", "g1-1")
    made.spec(replicas=2)
    assert moves.successors(made.seen()) == ("g1-1", "g1-2", "g1-3")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda s: replace(s, answers={}), "the master does not serve, or does not answer"),
        (lambda s: with_pod(s, "g1-2", deleting=True), "a broker is being stopped"),
        (lambda s: with_pod(s, "g1-0", ready=False), "the master is not ready"),
        (lambda s: with_pod(s, "g1-1", ready=False), "g1-1 is not live, not ready, or not linked"),
    ],
)
def test_no_move_starts_while_another_step_is_running(change: Any, cause: str) -> None:
    made = running(True, replicas=3)
    made.annotate(SWITCHOVER, "g1-1")
    seen = change(made.seen())
    found = moves.asked_for(seen)
    assert isinstance(found, Hold)
    assert cause in found.message
    assert not [a for a in plan(seen) if isinstance(a, PutGroupConfig)]


def with_pod(seen: Observation, broker: str, **change: Any) -> Observation:
    assert seen.pods is not None
    return replace(seen, pods={**seen.pods, broker: replace(seen.pods[broker], **change)})


def test_ended_master_is_not_given_the_stopped_rolls_image() -> None:
    """Kubelet starts it again in a moment, with the image that works; a slave has the other one."""
    made = running(True)
    made.bad_images.add("bad")
    made.spec(image="bad")
    made.run(lambda w: restarts(w) == ["g1-1"] and "g1-1" in w.pods)
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="CrashLoopBackOff", ready=False)
    for _ in range(20):
        made.round()
        made.turn()
    assert restarts(made) == ["g1-1"]
    made.broken.clear()
    made.run(lambda w: w.pods["g1-0"].ready)
    made.spec(image="fmq-broker:test")
    made.run()
    assert restarts(made) == ["g1-1", "g1-1"]


def test_idle_pod_is_replaced_while_a_switchover_waits_for_it() -> None:
    """The idle pod is the master's own: no broker would come back to complete the switchover."""
    made = running(True, replicas=3)
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-2")))
    made.spec(image="new:2")
    assert restarts(made) == []
    made.run(lambda w: "g1-0" in restarts(w))
