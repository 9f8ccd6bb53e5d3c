"""What the operator does, from a declared change to a calm group, step by step."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.cluster import GroupState, Mode
from fmqcore.words import BrokerId, Epoch, Permission
from fmqoperator.actions import (
    Action,
    ApplyChild,
    GrowClaim,
    PutGroupConfig,
    Requeue,
    RestartPod,
    Tell,
)
from fmqoperator.plan import plan
from fmqoperator.resources import FENCE, RESTART, SWITCHOVER
from fmqoperator.seen import Node, PodPhase
from fmqoperator.tests.world import World, running, world

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


def kinds(actions: list[Action]) -> list[str]:
    return [type(a).__name__ for a in actions if not isinstance(a, Tell | Requeue)]


def restarts(made: World) -> list[str]:
    return [a.pod for a in made.done if isinstance(a, RestartPod)]


def masters(made: World) -> list[str]:
    return [a.config.master for a in made.done if isinstance(a, PutGroupConfig)]


def told(made: World) -> list[str]:
    return [e.reason for e in made.events]


# ---- from nothing to a group


def test_a_group_is_made_configuration_first_and_then_left_alone(moves: bool) -> None:
    made = world(moves)
    first = kinds(made.round())
    assert first[0] == "PutGroupConfig"
    assert set(first[1:]) == {"ApplyChild"}
    made.run()
    assert made.state.mode is Mode.MASTER
    assert made.body["status"]["phase"] == "Running"
    assert restarts(made) == []
    assert kinds(plan(made.seen())) == []


def test_without_zookeeper_no_broker_is_started(moves: bool) -> None:
    made = world(moves)
    made.zookeeper_away = True
    made.run(lambda w: "StatefulSet" not in {k for k, _ in w.children} and w.now_ms % 5000 == 0)
    assert made.config is None
    assert made.body["status"]["phase"] == "Unknown"
    assert "zk:2181 does not answer" in made.condition("ZooKeeperConnected")["message"]
    made.zookeeper_away = False
    made.run()


def test_the_group_of_others_is_left_alone(moves: bool) -> None:
    made, other = running(moves), running(moves, metadata={"namespace": "elsewhere"})
    made.config, made.state = other.config, other.state
    made.children.clear()
    made.pods.clear()
    actions = plan(made.seen())
    assert "PutGroupConfig" not in kinds(actions)
    assert all(a.manifest["kind"] != "StatefulSet" for a in actions if isinstance(a, ApplyChild))
    made.round()
    assert made.condition("ConfigApplied")["reason"] == "NameTaken"
    assert made.body["status"]["phase"] == "Pending"


def test_what_somebody_changed_by_hand_is_put_back(moves: bool) -> None:
    made = running(moves)
    made.children["Service", "g1-rw"]["spec"]["type"] = "NodePort"
    (action,) = [a for a in plan(made.seen()) if isinstance(a, ApplyChild)]
    assert action.manifest["metadata"]["name"] == "g1-rw"
    assert "changed by somebody else" in action.why


def test_services_and_budgets_follow_who_serves(moves: bool) -> None:
    made = running(moves)
    made.state = replace(
        made.state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(9), reader=BrokerId("g1-1")
    )
    names = {a.manifest["metadata"]["name"] for a in plan(made.seen()) if isinstance(a, ApplyChild)}
    assert names == {"g1-ro", "g1-master", "g1-others"}


# ---- restarts


def _roll(moves: bool, **change: Any) -> World:
    made = running(moves, replicas=3)
    made.spec(**change)
    made.run()
    return made


def test_an_upgrade_restarts_slaves_first_and_the_master_last(moves: bool) -> None:
    made = _roll(moves, image="new:2")
    assert restarts(made) == ["g1-2", "g1-1", "g1-0"]
    assert {p.image for p in made.pods.values()} == {"new:2"}
    why = [a.why for a in made.done if isinstance(a, RestartPod)]
    assert why == ["image fmq-broker:test -> new:2"] * 3
    assert told(made).count("Restarting") == 3


def test_a_master_moves_away_before_its_restart_where_brokers_can(moves: bool) -> None:
    made = _roll(moves, image="new:2")
    moved = [type(a).__name__ for a in made.done if isinstance(a, PutGroupConfig | RestartPod)]
    if moves:
        assert moved == ["RestartPod", "RestartPod", "PutGroupConfig", "RestartPod"]
        assert made.state.master == "g1-1"
    else:
        assert moved == ["RestartPod"] * 3
        assert made.state.master == "g1-0"


def test_each_restart_waits_until_the_one_before_is_in_sync(moves: bool) -> None:
    made = running(moves, replicas=3)
    made.spec(image="new:2")
    made.run(lambda w: restarts(w) == ["g1-2"])
    made.broken.add("g1-2")
    for _ in range(20):
        made.round()
        made.turn()
    assert restarts(made) == ["g1-2"]
    assert "g1-2 is not in sync" in made.condition("Progressing")["message"]
    made.broken.clear()
    made.run()
    assert restarts(made) == ["g1-2", "g1-1", "g1-0"]


def test_an_image_that_cannot_be_had_stops_one_pod_and_is_taken_back(moves: bool) -> None:
    made = running(moves, replicas=3)
    made.bad_images.add("bad:1")
    made.spec(image="bad:1")
    made.run(lambda w: restarts(w) == ["g1-2"])
    for _ in range(20):
        made.round()
        made.turn()
    assert restarts(made) == ["g1-2"]
    assert "ImagePullBackOff" in made.condition("Degraded")["message"]
    made.spec(image="good:1")
    made.run()
    assert restarts(made) == ["g1-2", "g1-2", "g1-1", "g1-0"]


def test_a_group_that_never_began_is_mended(moves: bool) -> None:
    made = world(moves, image="bad:1")
    made.bad_images.add("bad:1")
    for _ in range(5):
        made.round()
        made.turn()
    assert made.body["status"]["phase"] == "Creating"
    assert "g1-0: ImagePullBackOff" in made.said()
    made.spec(image="good:1")
    made.run()
    assert sorted(restarts(made)) == ["g1-0", "g1-1"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"settings": {"retentionMs": 1}}, "its settings have changed"),
        ({"terminationGraceSeconds": 90}, "its pod template has changed"),
    ],
)
def test_every_restart_has_a_reason(moves: bool, change: dict[str, Any], why: str) -> None:
    made = _roll(moves, **change)
    assert {a.why for a in made.done if isinstance(a, RestartPod)} == {why}


def test_a_restart_that_was_asked_for(moves: bool) -> None:
    made = running(moves)
    made.annotate(RESTART, "monday")
    made.run()
    assert restarts(made) == ["g1-1", "g1-0"]
    made.run()
    assert len(restarts(made)) == 2


def test_one_broker_alone_is_restarted_too(moves: bool) -> None:
    made = running(moves, replicas=1, policy={"howMany": "none"})
    made.spec(image="new:2")
    made.run()
    assert restarts(made) == ["g1-0"]


# ---- switchover


def test_a_switchover_by_annotation(moves: bool) -> None:
    made = running(moves)
    made.annotate(SWITCHOVER, "g1-1")
    made.run()
    assert SWITCHOVER not in made.body["metadata"]["annotations"]
    if moves:
        assert made.state.master == "g1-1"
        assert told(made) == ["Switchover", "SwitchoverDone", "EpochOpened"]
    else:
        assert made.state.master == "g1-0"
        assert told(made) == ["SwitchoverRefused"]
        assert masters(made) == []


@pytest.mark.parametrize("value", ["", "any"])
def test_a_switchover_to_anybody_is_made_once(moves: bool, value: str) -> None:
    made = running(moves, replicas=3)
    made.annotate(SWITCHOVER, value)
    made.run()
    assert made.state.master == ("g1-1" if moves else "g1-0")
    assert len(masters(made)) == (1 if moves else 0)


def test_a_switchover_to_nobody_is_refused_with_words(moves: bool) -> None:
    made = running(moves)
    made.annotate(SWITCHOVER, "g7-1")
    made.run()
    assert told(made) == ["SwitchoverRefused"]
    assert masters(made) == []


def test_a_declared_master(moves: bool) -> None:
    made = running(moves)
    made.spec(switchover={"to": "g1-1"})
    if not moves:
        made.round()
        assert "do not move the mastership" in made.condition("Progressing")["message"]
        assert masters(made) == []
        for _ in range(5):
            made.round()
        assert told(made) == ["MoveUnsupported"]
        return
    made.run()
    assert made.state.master == "g1-1"


def test_a_declared_master_opens_a_new_group(moves: bool) -> None:
    made = running(moves, switchover={"to": "g1-1"})
    assert made.state.master == "g1-1"


def test_a_switchover_waits_for_a_slave_that_is_not_in_sync(moves: bool) -> None:
    made = running(moves)
    made.broken.add("g1-1")
    made.run(lambda w: "g1-1" not in w.state.isr)
    made.annotate(SWITCHOVER, "g1-1")
    for _ in range(5):
        made.round()
        made.turn()
    assert masters(made) == []
    made.broken.clear()
    made.run()
    assert made.state.master == ("g1-1" if moves else "g1-0")


def test_a_wish_whose_broker_died_is_taken_back(moves: bool) -> None:
    if not moves:
        return
    made = running(moves)
    made.annotate(SWITCHOVER, "g1-1")
    made.round()
    assert masters(made) == ["g1-1"]
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], waiting="CrashLoopBackOff", ready=False)
    made.round()
    assert masters(made) == ["g1-1", "g1-0"]


# ---- drain


def test_a_drained_node(moves: bool) -> None:
    made = running(moves)
    node = made.pods["g1-0"].node
    made.nodes[node] = replace(made.nodes[node], schedulable=False)
    if moves:
        made.run()
        assert made.state.master == "g1-1"
        assert restarts(made) == []
        return
    made.run(lambda w: _budget(w) == 1)
    assert restarts(made) == []
    assert "DrainOpen" in told(made)
    made.nodes[node] = Node(node, zone="z0")
    made.run()
    assert _budget(made) == 0


def test_a_drain_without_a_slave_in_sync_waits(moves: bool) -> None:
    made = running(moves)
    made.broken.add("g1-1")
    made.run(lambda w: "g1-1" not in w.state.isr)
    node = made.pods["g1-0"].node
    made.nodes[node] = replace(made.nodes[node], schedulable=False)
    for _ in range(5):
        made.round()
        made.turn()
    assert _budget(made) == 0
    assert masters(made) == []
    assert "DrainWaits" in told(made)


def _budget(made: World) -> int:
    found: int = made.children["PodDisruptionBudget", "g1-master"]["spec"]["maxUnavailable"]
    return found


# ---- scale


def test_a_new_slave_is_a_member_before_it_is_a_pod(moves: bool) -> None:
    made = running(moves)
    made.spec(replicas=3)
    first = made.round()
    assert kinds(first) == ["PutGroupConfig", "ApplyChild"]
    assert made.config is not None
    assert [m.id for m in made.config.value.members] == ["g1-0", "g1-1", "g1-2"]
    made.run()
    assert sorted(made.state.isr) == ["g1-1", "g1-2"]
    assert restarts(made) == []


def test_brokers_leave_one_by_one_and_stay_members_until_they_hold_nothing(moves: bool) -> None:
    made = running(moves, replicas=4)
    made.spec(replicas=2)
    made.round()
    assert _replicas(made) == 3
    assert _members(made) == ["g1-0", "g1-1", "g1-2", "g1-3"]
    made.run(lambda w: len(_members(w)) == 3)
    assert "g1-3" not in made.pods
    made.run()
    assert _members(made) == ["g1-0", "g1-1"]
    assert _replicas(made) == 2
    assert sorted(made.claims) == [f"data-g1-{n}" for n in range(4)]


def test_a_scale_down_that_would_lose_a_copy_is_refused(moves: bool) -> None:
    made = running(moves, replicas=3)
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], waiting="CrashLoopBackOff", ready=False)
    made.run(lambda w: w.state.isr == {"g1-2"})
    made.spec(replicas=2)
    for _ in range(10):
        made.round()
        made.turn()
    assert _replicas(made) == 3
    assert "g1-1 would hold less than it does" in made.condition("Progressing")["message"]
    assert told(made).count("ScaleDownRefused") == 1
    made.broken.clear()
    made.run()
    assert _replicas(made) == 2


def test_a_master_is_not_scaled_away(moves: bool) -> None:
    made = running(moves, replicas=3, switchover={"to": "g1-2"})
    assert made.state.master == "g1-2"
    del made.body["spec"]["switchover"]
    made.spec(replicas=2)
    if moves:
        made.run()
        assert made.state.master != "g1-2"
        assert _replicas(made) == 2
        return
    for _ in range(10):
        made.round()
        made.turn()
    assert _replicas(made) == 3
    assert "g1-2 is to be taken out and is master" in made.condition("Progressing")["message"]


def _replicas(made: World) -> int:
    found: int = made.children["StatefulSet", "g1"]["spec"]["replicas"]
    return found


def _members(made: World) -> list[str]:
    assert made.config is not None
    return [str(m.id) for m in made.config.value.members]


# ---- the master is gone


def _lose_master(made: World) -> None:
    """Its pod is gone with its volume and does not come back."""
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(
        made.pods["g1-0"], ready=False, phase=PodPhase.PENDING, waiting="Unschedulable", node=""
    )
    made.nodes.pop("n0", None)


def test_a_lost_master_is_replaced_after_the_time_and_only_if_asked(moves: bool) -> None:
    made = running(moves, promotion={"policy": "after", "afterSeconds": 60})
    _lose_master(made)
    made.pods["g1-0"] = replace(made.pods["g1-0"], phase=PodPhase.PENDING)
    start_ms = made.now_ms
    for _ in range(100):
        made.round()
        made.turn()
    if moves:
        assert made.state.master == "g1-1"
        assert "Promotion" in told(made)
        assert made.now_ms - start_ms >= 60_000
    else:
        assert made.state.mode is Mode.SLAVE_CONSUME
        assert masters(made) == []


def test_a_lost_master_is_not_replaced_before_the_time(moves: bool) -> None:
    made = running(moves, promotion={"policy": "after", "afterSeconds": 3600})
    _lose_master(made)
    for _ in range(100):
        made.round()
        made.turn()
    assert masters(made) == []


def test_a_lost_master_is_not_replaced_if_nobody_asked(moves: bool) -> None:
    made = running(moves)
    _lose_master(made)
    for _ in range(400):
        made.round()
        made.turn()
    assert masters(made) == []
    assert made.body["status"]["phase"] == "ReadOnly"


def test_who_serves_in_place_of_a_dead_master_is_served_by_the_services(moves: bool) -> None:
    made = running(moves)
    _lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.round()
    ro = made.children["Service", "g1-ro"]["spec"]["selector"]
    assert ro["statefulset.kubernetes.io/pod-name"] == "g1-1"


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


def test_slaves_that_shall_not_read(moves: bool) -> None:
    made = running(moves, slaveReads=False)
    assert made.config is not None
    most = {str(m.id): m.permission for m in made.config.value.members}
    assert most == {"g1-0": Permission.FULL, "g1-1": Permission.WRITE}


def test_a_paused_group_is_only_told_of(moves: bool) -> None:
    made = running(moves)
    made.spec(paused=True, image="new:2", replicas=3)
    made.annotate(FENCE, "g1-0")
    assert plan(made.seen()) == [Requeue(30_000)]
    made.round()
    assert made.body["status"]["phase"] == "Paused"
    assert made.condition("Paused")["status"] == "True"
    made.spec(paused=False)
    made.run()
    assert len(made.pods) == 3


def test_a_hibernated_group_stops_slaves_first_and_comes_back(moves: bool) -> None:
    made = running(moves, replicas=3)
    epoch = made.state.epoch
    made.spec(hibernated=True)
    made.round()
    assert _replicas(made) == 1
    made.run(lambda w: not w.pods and w.body["status"]["phase"] == "Hibernated")
    assert made.state.epoch == epoch
    assert plan(made.seen())[-1] == Requeue(30_000)
    assert kinds(plan(made.seen())) == []
    made.spec(hibernated=False)
    made.run()
    assert len(made.pods) == 3
    assert restarts(made) == []


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
    assert told(made) == ["VolumeGrows", "VolumeGrows"]


def test_volumes_never_shrink(moves: bool) -> None:
    made = running(moves, storage={"size": "20Gi"})
    made.spec(storage={"size": "10Gi"})
    assert not [a for a in plan(made.seen()) if isinstance(a, GrowClaim)]


def test_a_class_that_grows_no_volume_is_told(moves: bool) -> None:
    made = running(moves)
    made.claims = {k: replace(c, expandable=False) for k, c in made.claims.items()}
    made.spec(storage={"size": "20Gi"})
    made.run(lambda w: w.condition("StorageReady")["reason"] == "CannotGrow")
    assert not [a for a in made.done if isinstance(a, GrowClaim)]
    assert "storage.size back to 10Gi" in made.condition("StorageReady")["message"]


# ---- what is not known


@pytest.mark.parametrize(
    "unknown",
    ["zookeeper", "pods", "answers", "children", "phase"],
)
@pytest.mark.parametrize(
    "wish",
    ["upgrade", "scale down", "hibernate", "switchover", "drain", "promotion", "restart"],
)
@pytest.mark.parametrize("brokers", [2, 3])
def test_what_is_not_known_stops_nobody(moves: bool, unknown: str, wish: str, brokers: int) -> None:
    made = running(moves, replicas=brokers, policy={"howMany": "none"})
    _wish(made, wish)
    seen = made.seen()
    match unknown:
        case "zookeeper":
            seen = replace(seen, zookeeper=None)
        case "pods":
            seen = replace(seen, pods=None)
        case "answers":
            seen = replace(seen, answers={})
        case "children":
            seen = replace(seen, children=None)
        case "phase":
            pods = {n: replace(p, phase=PodPhase.UNKNOWN) for n, p in made.pods.items()}
            seen = replace(seen, pods=pods)
    hibernates = wish == "hibernate" and unknown in ("answers", "phase")
    for action in plan(seen):
        assert not isinstance(action, RestartPod)
        if isinstance(action, PutGroupConfig):
            assert action.config.master == "g1-0"
        if isinstance(action, ApplyChild) and action.manifest["kind"] == "StatefulSet":
            assert action.manifest["spec"]["replicas"] == brokers or hibernates


def _wish(made: World, wish: str) -> None:
    match wish:
        case "upgrade":
            made.spec(image="new:2")
            made.round()
            made.done.clear()
        case "scale down":
            made.spec(replicas=made.body["spec"]["replicas"] - 1)
        case "hibernate":
            made.spec(hibernated=True)
        case "switchover":
            made.annotate(SWITCHOVER, "g1-1")
        case "drain":
            node = made.pods["g1-0"].node
            made.nodes[node] = replace(made.nodes[node], schedulable=False)
        case "promotion":
            made.spec(promotion={"policy": "after", "afterSeconds": 30})
            made.state = replace(
                made.state,
                mode=Mode.SLAVE_CONSUME,
                epoch=Epoch(9),
                reader=BrokerId("g1-1"),
            )
        case "restart":
            made.annotate(RESTART, "now")
            made.round()
            made.done.clear()


def test_a_new_state_under_an_old_configuration_is_no_reason_for_anything(moves: bool) -> None:
    """ZooKeeper's data was lost: brokers open anew, and the operator restarts nobody."""
    made = running(moves)
    made.state = GroupState()
    assert kinds([a for a in plan(made.seen()) if not isinstance(a, ApplyChild)]) == []
