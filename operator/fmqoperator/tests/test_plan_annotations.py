"""What people request for a group: fencing, a pause, hibernation, larger volumes."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId, Permission
from fmqoperator.api.group import FENCE, SWITCHOVER
from fmqoperator.core.actions import GrowClaim, Requeue
from fmqoperator.core.outlook import outlook
from fmqoperator.core.plan import plan
from fmqoperator.core.plan_types import Move, Run
from fmqoperator.core.status import conditions as judge
from fmqoperator.tests.plan_kit import (
    event_reasons,
    kinds,
    replicas,
    restarts,
)
from fmqoperator.tests.world import World, running

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


def when_scaled(made: World) -> str:
    spec = made.children["StatefulSet", "g1"]["spec"]
    found: str = spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"]
    return found


# ---- fencing, pausing, hibernating


@pytest.mark.parametrize(("value", "closed"), [("g1-0", 1), ("g1-0, g1-1", 2), ("all", 2)])
def test_fencing_is_a_permission(moves: bool, value: str, closed: int) -> None:
    made = running(moves)
    made.annotate(FENCE, value)
    made.run()
    assert made.config is not None
    found = [m for m in made.config.value.members if m.permission is Permission.NONE]
    assert len(found) == closed
    assert made.condition("Fenced")["status"] == "True"
    assert restarts(made) == []
    del made.body["metadata"]["annotations"][FENCE]
    made.run()
    assert {m.permission for m in made.config.value.members} == {Permission.FULL}
    assert [e for e in event_reasons(made) if e.startswith("Fence")] == ["Fenced", "FenceLifted"]


@pytest.mark.parametrize(("value", "closed"), [("g1-9", []), ("g1-0,g2-0", ["g1-0"])])
def test_fence_of_an_unknown_broker_is_reported(moves: bool, value: str, closed: list[str]) -> None:
    made = running(moves)
    made.annotate(FENCE, value)
    made.run()
    assert made.config is not None
    found = [str(m.id) for m in made.config.value.members if m.permission is Permission.NONE]
    assert found == closed
    condition, wrong = made.condition("Fenced"), value.rpartition(",")[2]
    assert condition["status"] == ("True" if closed else "False")
    assert f"names {wrong}, not a broker of this group: name g1-0, g1-1" in condition["message"]
    assert event_reasons(made).count("FenceRefused") == 1


def test_broker_still_serving_is_not_reported_as_fenced(moves: bool) -> None:
    """A person who fences in an emergency must not believe too early that it is done."""
    made = running(moves)
    made.annotate(FENCE, "g1-0")
    made.spec(paused=True)
    made.round()
    condition = made.condition("Fenced")
    assert (condition["status"], condition["reason"]) == ("False", "NotYet")
    assert condition["message"] == (
        "g1-0 may still serve despite annotation fmq.io/fence: spec.paused is set"
    )
    assert "Fenced" not in event_reasons(made)
    made.spec(paused=False)
    made.zookeeper_away = True
    made.round()
    assert made.condition("Fenced")["status"] == "False"
    assert "see ZooKeeperConnected" in made.condition("Fenced")["message"]
    made.zookeeper_away = False
    made.run()
    assert made.condition("Fenced")["status"] == "True"
    assert event_reasons(made).count("Fenced") == 1
    cut = made.seen()
    serves = replace(cut.answers[BrokerId("g1-0")], permission=Permission.FULL)
    cut = replace(cut, answers={**cut.answers, BrokerId("g1-0"): serves})
    found = judge.fenced(cut)
    assert (found.status, found.reason) == ("False", "NotYet"), "it has not applied the fence"


def test_slaves_that_shall_not_read(moves: bool) -> None:
    made = running(moves, slaveReads=False)
    assert made.config is not None
    most = {str(m.id): m.permission for m in made.config.value.members}
    assert most == {"g1-0": Permission.FULL, "g1-1": Permission.WRITE}


def test_paused_group_only_gets_events(moves: bool) -> None:
    made = running(moves)
    made.spec(paused=True, image="new:2", replicas=3)
    made.annotate(FENCE, "g1-0")
    assert plan(made.seen()) == [Requeue(30_000)]
    made.round()
    assert made.body["status"]["phase"] == "Paused"
    assert made.condition("Paused")["status"] == "True"
    assert made.condition("ConfigApplied")["status"] == "Unknown"
    progress = made.condition("Progressing")
    assert (progress["status"], progress["reason"]) == ("False", "Paused"), "not: as declared"
    assert made.body["status"]["access"] == "FULL"
    made.spec(paused=False)
    made.run()
    assert len(made.pods) == 3


def test_a_hibernated_group_stops_slaves_first_and_comes_back(moves: bool) -> None:
    made = running(moves, replicas=3)
    epoch = made.state.epoch
    made.spec(hibernated=True)
    made.round()
    assert replicas(made) == 1
    made.run(lambda w: not w.pods and w.body["status"]["phase"] == "Hibernated")
    assert made.state.epoch == epoch
    assert plan(made.seen())[-1] == Requeue(30_000)
    assert kinds(plan(made.seen())) == []
    made.spec(hibernated=False)
    made.run()
    assert len(made.pods) == 3
    assert restarts(made) == []


def test_switchover_to_the_acting_master_cancels_a_waiting_one(moves: bool) -> None:
    """The requested slave went out of sync, and the person changes their mind."""
    made = running(moves)
    made.annotate(SWITCHOVER, "g1-1")
    made.round()
    made.state = replace(made.state, isr=frozenset())
    made.round()
    made.annotate(SWITCHOVER, "g1-0")
    made.round()
    made.run()
    assert made.terms == ["g1-0"]
    assert made.body["metadata"]["annotations"] == {}
    assert event_reasons(made)[-1] == "SwitchoverDone"
    assert ("SwitchoverWithdrawn" in event_reasons(made)) == moves


def test_switchover_to_the_acting_master_cancels_a_stuck_one(moves: bool) -> None:
    """The wanted master is in sync, and never catches up in time: no other step is taken."""
    made = running(moves, replicas=3)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-1")))
    made.annotate(SWITCHOVER, "g1-0")
    seen = made.seen()
    master = BrokerId("g1-0")
    cause = "g1-1 did not have all in time, it is tried again"
    slow = {**seen.answers, master: replace(seen.answers[master], cause=cause)}
    found = outlook(replace(seen, answers=slow))
    assert isinstance(found.step, Move)
    assert (found.step.to, found.holds) == ("g1-0", ())
    made.body["metadata"]["annotations"] = {}
    if moves:
        (hold,) = outlook(replace(made.seen(), answers=slow)).holds
        assert hold.message == f"g1-1 is to be master instead of g1-0: {cause}"
    made.annotate(SWITCHOVER, "g1-0")
    made.round()
    made.round()
    assert made.config.value.master == "g1-0"
    assert SWITCHOVER not in made.body["metadata"]["annotations"]


def test_a_group_that_is_being_deleted_is_left_to_itself(moves: bool) -> None:
    made = running(moves)
    made.body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made.children.clear()
    assert plan(made.seen()) == []


# ---- volumes


def test_volumes_grow(moves: bool) -> None:
    made = running(moves)
    made.spec(storage={"size": "20Gi"})
    made.run()
    assert {c.requested for c in made.claims.values()} == {"20Gi"}
    assert restarts(made) == []
    assert event_reasons(made) == ["VolumeGrows", "VolumeGrows"]


def test_volumes_never_shrink(moves: bool) -> None:
    made = running(moves, storage={"size": "20Gi"})
    made.spec(storage={"size": "10Gi"})
    assert not [a for a in plan(made.seen()) if isinstance(a, GrowClaim)]


def test_waking_group_keeps_its_volumes(moves: bool) -> None:
    """Its pod may still be stopping; a volume that goes with its broker goes with a stopped pod."""
    made = running(moves, replicas=3, storage={"onScaleDown": "Delete"})
    made.spec(hibernated=True)
    made.run(lambda w: replicas(w) == 0)
    made.spec(hibernated=False)
    made.zookeeper_away = True
    made.round()
    assert (replicas(made), when_scaled(made)) == (0, "Retain"), (
        "no operator knows which broker to start"
    )
    made.zookeeper_away = False
    made.run()
    assert (replicas(made), when_scaled(made)) == (3, "Retain")
    assert len(made.claims) == 3


@pytest.mark.parametrize("trouble", ["a quota", "a node that is down"])
def test_stuck_broker_does_not_prevent_hibernation(moves: bool, trouble: str) -> None:
    made = running(moves, replicas=3)
    made.spec(hibernated=True)
    if trouble == "a quota":
        seen = made.seen()
        seen = replace(seen, pods={b: p for b, p in (seen.pods or {}).items() if b != "g1-2"})
        assert isinstance(outlook(seen).step, Run)
        return
    made.round()
    stuck = replace(made.pods["g1-2"], deleting=True, ready=False)
    made.turn()
    made.turn()
    made.pods["g1-2"] = stuck
    assert replicas(made) == 1
    assert outlook(made.seen()).holds[0].message == "brokers are being stopped: g1-2"
    made.nodes[stuck.node] = replace(made.nodes[stuck.node], ready=None)
    assert outlook(made.seen()).step == Run(0, "spec.hibernated is set")
