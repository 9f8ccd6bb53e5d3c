"""What the operator does, from a declared change to a calm group, step by step."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import GroupState, Mode
from fmqoperator.api.group import RESTART, SWITCHOVER
from fmqoperator.core.actions import ApplyChild, DeleteChild, PutGroupConfig, RestartPod
from fmqoperator.core.observation import Observation, PodPhase
from fmqoperator.core.plan import plan
from fmqoperator.tests.plan_kit import (
    event_reasons,
    kinds,
    restarts,
)
from fmqoperator.tests.world import World, running, world

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


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
    assert made.body["status"]["phase"] == "Pending"
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
    made.body["status"] = {}
    before = len(made.events)
    made.round()
    assert made.condition("ConfigApplied")["reason"] == "NameTaken"
    assert made.condition("Progressing")["reason"] == "NameTaken"
    found = made.body["status"]
    assert (found["phase"], found["access"]) == ("Pending", "NONE")
    whose = [found.get(name) for name in ("master", "reader", "lastTransition", "inSync")]
    assert not any(whose), "it is another group's story"
    assert [e.reason for e in made.events[before:]] == ["NameTaken"]


def test_manual_change_is_reverted(moves: bool) -> None:
    made = running(moves)
    made.children["Service", "g1-rw"]["spec"]["type"] = "NodePort"
    (action,) = [a for a in plan(made.seen()) if isinstance(a, ApplyChild)]
    assert action.manifest["metadata"]["name"] == "g1-rw"
    assert "changed by another writer" in action.cause


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
    cause = [a.cause for a in made.done if isinstance(a, RestartPod)]
    assert cause == ["image fmq-broker:test -> new:2"] * 3
    assert event_reasons(made).count("Restarting") == 3


def test_master_moves_before_its_restart_if_brokers_support_it(moves: bool) -> None:
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


def without(made: World, *brokers: str) -> Observation:
    """Return the observation while these slaves live and do not come in sync."""
    seen, out = made.seen(), {BrokerId(b) for b in brokers}
    assert seen.zookeeper is not None
    state = replace(seen.zookeeper.state, isr=seen.zookeeper.state.isr - out)
    return replace(seen, zookeeper=replace(seen.zookeeper, state=state))


@pytest.mark.parametrize(
    ("behind", "first"), [([], "g1-2"), (["g1-1"], "g1-1"), (["g1-1", "g1-2"], "g1-2")]
)
def test_out_of_sync_slave_gets_a_change_first(moves: bool, behind: list[str], first: str) -> None:
    """Its disk is full, for example, and the change is a shorter retention: none would get it."""
    made = running(moves, replicas=3)
    made.spec(settings={"retentionMs": 5})
    made.round()
    made.turn()
    (restart,) = [a for a in plan(without(made, *behind)) if isinstance(a, RestartPod)]
    assert restart.pod == first


def test_a_slave_on_a_lost_node_is_not_restarted_and_waited_for(moves: bool) -> None:
    """Its pod would never end, and nothing could be moved meanwhile."""
    made = running(moves, replicas=3)
    made.spec(image="new:2")
    made.round()
    made.turn()
    seen = without(made, "g1-1")
    lost = replace(seen.nodes["n1"], ready=None)
    actions = plan(replace(seen, nodes={**seen.nodes, "n1": lost}))
    assert not [a for a in actions if isinstance(a, RestartPod)]


def test_unpullable_image_stops_one_pod_and_is_reverted(moves: bool) -> None:
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


def test_group_that_never_started_is_repaired_by_a_good_image(moves: bool) -> None:
    made = world(moves, image="bad:1")
    made.bad_images.add("bad:1")
    for _ in range(5):
        made.round()
        made.turn()
    assert made.body["status"]["phase"] == "Creating"
    assert made.sentence().startswith("g1-0: image bad:1 cannot be pulled")
    made.spec(image="good:1")
    made.run()
    assert sorted(restarts(made)) == ["g1-0", "g1-1"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"settings": {"retentionMs": 1}}, "its settings have changed"),
        ({"terminationGraceSeconds": 90}, "its pod template has changed"),
    ],
)
def test_every_restart_has_a_reason(moves: bool, change: dict[str, Any], cause: str) -> None:
    made = _roll(moves, **change)
    assert {a.cause for a in made.done if isinstance(a, RestartPod)} == {cause}


def test_a_restart_that_was_asked_for(moves: bool) -> None:
    made = running(moves)
    made.annotate(RESTART, "monday")
    made.run()
    assert restarts(made) == ["g1-1", "g1-0"]
    made.run()
    assert len(restarts(made)) == 2


def test_withdrawn_restart_request_causes_no_restart(moves: bool) -> None:
    """A manifest without the annotation is applied, or a person cleans up."""
    made = running(moves)
    made.annotate(RESTART, "monday")
    made.run()
    del made.body["metadata"]["annotations"][RESTART]
    made.run()
    assert restarts(made) == ["g1-1", "g1-0"]
    made.annotate(RESTART, "tuesday")
    made.run()
    assert len(restarts(made)) == 4


def test_one_broker_alone_is_restarted_too(moves: bool) -> None:
    made = running(moves, replicas=1, policy={"howMany": "none"})
    made.spec(image="new:2")
    made.run()
    assert restarts(made) == ["g1-0"]


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
def test_unknown_facts_then_no_broker_is_stopped(
    moves: bool, unknown: str, wish: str, brokers: int
) -> None:
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
            made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")
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


def test_new_state_with_old_configuration_restarts_no_broker(moves: bool) -> None:
    """ZooKeeper's data was lost: brokers open new terms, and the operator restarts none."""
    made = running(moves)
    made.state = GroupState()
    assert kinds([a for a in plan(made.seen()) if not isinstance(a, ApplyChild)]) == []


def test_zookeeper_never_seen_is_reported_after_a_grace_time(moves: bool) -> None:
    """The quick start creates both at once; a wrong address stays wrong."""
    made = world(moves)
    made.zookeeper_away = True
    for _ in range(2):
        made.round()
    assert event_reasons(made) == []
    made.now_ms += 30_000
    made.round()
    assert event_reasons(made) == ["ZooKeeperUnreachable"]
    assert "check spec.zookeeper.connect" in made.events[-1].message
    made.zookeeper_away = False
    made.run()
    assert "ZooKeeperAway" not in event_reasons(made)


def test_zookeeper_outage_is_reported_once(moves: bool) -> None:
    made = running(moves)
    assert "ZooKeeperAway" not in event_reasons(made)
    made.zookeeper_away = True
    for _ in range(3):
        made.round()
    away = [e for e in made.events if e.reason == "ZooKeeperAway"]
    assert [e.type for e in away] == ["Warning"]
    assert "zk:2181 does not answer" in away[0].message
    assert "no group fails over" in away[0].message
    assert "ZooKeeperBack" not in event_reasons(made)
    made.zookeeper_away = False
    made.run()
    assert event_reasons(made).count("ZooKeeperBack") == 1
    assert event_reasons(made).count("ZooKeeperAway") == 1


def test_lost_volume_is_reported_once_and_a_pending_one_is_not(moves: bool) -> None:
    made = running(moves)
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], deleting=True)
    made.round()
    made.round()
    assert event_reasons(made).count("VolumeGoes") == 1
    assert "data-g1-0" in next(e.message for e in made.events if e.reason == "VolumeGoes")
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], deleting=False, capacity="")
    made.round()
    assert made.condition("StorageReady")["reason"] == "NotBound"
    made = running(moves)
    made.spec(replicas=3)
    made.run()
    assert not {"NoVolume", "NotBound", "VolumeGoes"} & set(event_reasons(made))


def test_manual_scaling_is_reverted(moves: bool) -> None:
    """Pods beyond the declared ones are no members of the group, and would restart for ever."""
    made = running(moves)
    made.children["StatefulSet", "g1"]["spec"]["replicas"] = 4
    made.broken |= {"g1-2", "g1-3"}
    made.turn()
    assert len(made.pods) == 4
    made.run()
    assert sorted(made.pods) == ["g1-0", "g1-1"]
    assert event_reasons(made).count("ScaledBack") == 1
    assert made.body["status"]["phase"] == "Running"


def test_settings_stay_as_long_as_a_pod_has_them(moves: bool) -> None:
    made = running(moves)
    (before,) = [name for kind, name in made.children if kind == "ConfigMap"]
    made.spec(settings={"retentionMs": 5})
    made.round()
    made.turn()
    assert len([kind for kind, _ in made.children if kind == "ConfigMap"]) == 2
    made.run()
    (after,) = [name for kind, name in made.children if kind == "ConfigMap"]
    assert after != before
    gone = [a for a in made.done if isinstance(a, DeleteChild)]
    assert [(a.kind, a.name) for a in gone] == [("ConfigMap", before)]
    assert made.done.index(gone[0]) > max(
        at for at, a in enumerate(made.done) if isinstance(a, RestartPod)
    )


def test_foreign_object_with_our_label_is_left_alone(moves: bool) -> None:
    made = running(moves)
    labels = {"fmq.io/group": "g1"}
    made.children["ConfigMap", "precious"] = {"metadata": {"name": "precious", "labels": labels}}
    made.run()
    assert ("ConfigMap", "precious") in made.children


def test_stateful_set_is_applied_as_it_was_looked_at(moves: bool) -> None:
    """An operator that sleeps between plan and action must not undo what the next one has done."""
    made = running(moves, replicas=3)
    made.spec(replicas=4)
    there = made.children["StatefulSet", "g1"]["metadata"]["generation"]
    applied = [a for a in plan(made.seen()) if isinstance(a, ApplyChild)]
    found = {a.manifest["kind"]: a.generation for a in applied}
    assert found["StatefulSet"] == there > 0
    assert set(found.values()) <= {0, there}
