"""What `kubectl get bg` shows: the truth, and no more than is known."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import BrokerGroup
from fmqoperator.core.actions import RestartPod
from fmqoperator.core.observation import Answer, Failure, PodPhase, Replica
from fmqoperator.core.status.group import COALESCE_MS, SEEN_MS, patch, status, worth_writing
from fmqoperator.core.status.unreconciled import unreadable
from fmqoperator.tests.world import World, running, world


def seen_status(made: World) -> Any:
    return status(made.seen())


def condition(found: Any, kind: str) -> Any:
    return next(c for c in found["conditions"] if c["type"] == kind)


def kill_master(made: World) -> None:
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(made.pods["g1-0"], ready=False, waiting="CrashLoopBackOff")


# ---- a group at rest


def test_a_group_as_declared() -> None:
    found = seen_status(running(replicas=3))
    shown = {k: found[k] for k in ("master", "access", "ready", "phase", "epoch", "lag", "mode")}
    assert shown == {
        "master": "g1-0", "access": "FULL", "ready": "3/3", "phase": "Running",
        "epoch": 1, "lag": "0 B", "mode": "MASTER",
    }  # fmt: skip
    assert found["inSync"] == ["g1-1", "g1-2"]
    good = {"Ready", "WriteAvailable", "ReadAvailable", "ReplicationHealthy", "FailoverSafe",
            "OffsetsSynced", "ZooKeeperConnected", "ConfigApplied", "StorageReady"}  # fmt: skip
    good |= {"WriteRedundancy"}
    bad = {"Progressing", "Degraded", "Fenced", "Paused"}
    by_status = {c["type"]: c["status"] for c in found["conditions"]}
    assert by_status == dict.fromkeys(good, "True") | dict.fromkeys(bad, "False")


def test_every_condition_has_its_observed_generation() -> None:
    made = running()
    made.spec(replicas=3)
    found = seen_status(made)
    generation = made.body["metadata"]["generation"]
    assert found["observedGeneration"] == generation
    assert {c["observedGeneration"] for c in found["conditions"]} == {generation}
    assert condition(found, "Ready")["status"] == "False"


def test_every_broker() -> None:
    first, second = seen_status(running())["brokers"]
    assert (first["broker"], first["role"], first["permission"]) == ("g1-0", "master", "FULL")
    assert (second["role"], second["permission"], second["inSync"]) == ("slave", "NONE", True)
    assert (first["pod"], first["node"], first["zone"]) == ("g1-0", "n0", "z0")
    assert second["lagBytes"] == 0
    assert first["journalEnd"] == 1000


def test_times_stay_while_a_condition_does() -> None:
    made = running()
    before = condition(made.body["status"], "Ready")["lastTransitionTime"]
    made.now_ms += 3_600_000
    made.round()
    assert condition(made.body["status"], "Ready")["lastTransitionTime"] == before
    kill_master(made)
    made.round()
    assert condition(made.body["status"], "Ready")["lastTransitionTime"] != before


def test_ready_pod_on_a_lost_node_does_not_count() -> None:
    seen = running().seen()
    assert seen.zookeeper is not None
    live = {b: node for b, node in seen.zookeeper.live.items() if b != "g1-0"}
    cut_off = replace(seen, zookeeper=replace(seen.zookeeper, live=live))
    assert status(cut_off)["ready"] == "2/2", "it answers: it is cut off from ZooKeeper alone"
    answers = {b: answer for b, answer in seen.answers.items() if b != "g1-0"}
    lost = status(replace(cut_off, answers=answers))
    assert (lost["ready"], lost["readyReplicas"]) == ("1/2", 1)
    assert [b["ready"] for b in lost["brokers"]] == [False, True]
    assert status(replace(seen, zookeeper=None, answers={}))["ready"] == "2/2", "not known"


# ---- the master dies and comes back


def test_failover_is_reported_with_its_outages() -> None:
    made = running()
    assert made.body["status"]["lastTransition"]["from"] == "none"
    kill_master(made)
    made.round()
    down = made.body["status"]
    assert (down["phase"], down["access"]) == ("Down", "NONE")
    assert condition(down, "WriteAvailable")["status"] == "False"
    made.now_ms += 1500
    made.state = replace(
        made.state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(2), reader=BrokerId("g1-1"), reason="gone"
    )
    made.round()
    reads = made.body["status"]
    assert (reads["phase"], reads["access"], reads["reader"]) == ("ReadOnly", "READ", "g1-1")
    last = reads["lastTransition"]
    assert (last["from"], last["to"], last["cause"]) == ("g1-0 FULL", "g1-1 READ", "gone")
    assert last["readOutageMs"] == 1500
    assert "writeOutageMs" not in last
    assert condition(reads, "OffsetsSynced")["reason"] == "AtReader"
    made.now_ms += 8500
    made.broken.clear()
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="", ready=True)
    made.state = replace(
        made.state, mode=Mode.MASTER, epoch=Epoch(4), reader=BrokerId("g1-0"), reason="back"
    )
    made.round()
    last = made.body["status"]["lastTransition"]
    assert (last["from"], last["to"], last["epoch"]) == ("g1-1 READ", "g1-0 FULL", 4)
    assert (last["readOutageMs"], last["writeOutageMs"]) == (0, 10_000)
    assert "noWritesSinceMs" not in made.body["status"]["memory"]


def test_time_of_the_masters_loss_survives_operator_restarts() -> None:
    made = running()
    kill_master(made)
    made.round()
    since = made.body["status"]["memory"]["masterGoneSinceMs"]
    made.now_ms += 60_000
    made.zookeeper_away = True
    made.round()
    assert made.body["status"]["memory"]["masterGoneSinceMs"] == since
    made.zookeeper_away = False
    made.broken.clear()
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="", ready=True)
    made.round()
    assert "masterGoneSinceMs" not in made.body["status"]["memory"]


def test_restart_without_takeover_is_a_transition_too() -> None:
    made = running()
    made.state = replace(made.state, epoch=Epoch(2), reason="is back, no broker had taken over")
    made.round()
    last = made.body["status"]["lastTransition"]
    assert (last["from"], last["to"], last["epoch"]) == ("g1-0 FULL", "g1-0 FULL", 2)


# ---- what is not known is not reported


def test_a_master_that_lives_and_does_not_answer_is_unknown() -> None:
    made = running()
    made.silent.add("g1-0")
    found = seen_status(made)
    assert (found["access"], found["phase"]) == ("UNKNOWN", "Unknown")
    assert found["brokers"][0]["permission"] == "UNKNOWN"


def test_a_master_that_fenced_itself_is_believed() -> None:
    made = running()
    seen = made.seen()
    answer = Answer(BrokerId("g1-0"), epoch=Epoch(1), cause="its lease has run out")
    found = status(replace(seen, answers={**seen.answers, BrokerId("g1-0"): answer}))
    assert (found["access"], found["phase"]) == ("NONE", "Down")
    assert "its lease has run out" in found["message"]


def test_pods_that_cannot_be_listed() -> None:
    found = status(replace(running().seen(), pods=None, claims=None, children=None))
    assert condition(found, "StorageReady")["status"] == "Unknown"
    assert condition(found, "ConfigApplied")["status"] == "Unknown"
    assert "cannot be listed" in found["message"]


# ---- what is wrong, in words


def test_a_slave_out_of_sync() -> None:
    made = running()
    made.state = replace(made.state, isr=frozenset())
    found = seen_status(made)
    assert found["phase"] == "Degraded"
    assert "not in sync: g1-1" in found["message"]
    assert condition(found, "WriteAvailable")["reason"] == "NotEnoughReplicas"
    assert found["access"] == "READ", "no send can be acknowledged"
    assert condition(found, "FailoverSafe")["reason"] == "NoSuccessor"


def test_one_broker_alone_is_as_declared_and_not_safe() -> None:
    found = seen_status(running(replicas=1, policy={"howMany": "none"}))
    assert found["phase"] == "Running"
    assert condition(found, "FailoverSafe")["reason"] == "Alone"


@pytest.mark.parametrize(
    ("code", "words"), [(78, "is not in ZooKeeper"), (74, "disk failed"), (3, "its log")]
)
def test_status_shows_why_a_broker_ended(code: int, words: str) -> None:
    made = running()
    made.pods["g1-1"] = replace(
        made.pods["g1-1"], ready=False, waiting="CrashLoopBackOff", exit_code=code
    )
    found = seen_status(made)
    assert words in condition(found, "Degraded")["message"]
    assert words in found["brokers"][1]["message"]


def test_an_image_that_cannot_be_pulled() -> None:
    made = world(image="bad:1")
    made.bad_images.add("bad:1")
    for _ in range(3):
        made.round()
        made.turn()
    found = seen_status(made)
    assert found["phase"] == "Creating"
    assert found["message"].startswith("g1-0: image bad:1 cannot be pulled")


def test_status_shows_what_the_operator_could_not_do() -> None:
    failure = Failure("StatefulSet g1", "Forbidden", "the operator may not patch statefulsets")
    found = status(replace(running().seen(), failures=(failure,)))
    applied = condition(found, "ConfigApplied")
    assert (applied["status"], applied["reason"]) == ("False", "Forbidden")
    assert "StatefulSet g1: the operator may not" in applied["message"]
    assert condition(found, "Ready")["reason"] == "Forbidden"


def test_a_broker_that_cannot_reach_zookeeper() -> None:
    made = running()
    seen = made.seen()
    cut = replace(seen.answers[BrokerId("g1-1")], zookeeper_connected=False)
    found = status(replace(seen, answers={**seen.answers, BrokerId("g1-1"): cut}))
    assert condition(found, "ZooKeeperConnected")["reason"] == "BrokersCut"


def test_a_lost_volume() -> None:
    made = running()
    made.claims["data-g1-1"] = replace(made.claims["data-g1-1"], lost=True)
    found = condition(seen_status(made), "StorageReady")
    assert found["reason"] == "VolumeLost"
    assert "delete claim data-g1-1 and pod g1-1" in found["message"]


def test_offsets_that_were_lost() -> None:
    made = running()
    made.state = replace(made.state, degraded=True, reason="without the newest offsets of g1-1")
    made.state = replace(made.state, epoch=Epoch(made.state.epoch + 3))
    for waited_ms, phase in ((0, "Degraded"), (3_500_000, "Degraded"), (200_000, "Running")):
        made.now_ms += waited_ms
        made.round()
        found = made.body["status"]
        assert condition(found, "OffsetsSynced")["reason"] == "Lost"
        assert found["phase"] == phase


# ---- what goes on


def test_phases_on_the_way() -> None:
    made = world()
    phases: list[str] = []

    def note() -> bool:
        phase = str(made.body["status"]["phase"])
        if not phases or phases[-1] != phase:
            phases.append(phase)
        return phase == "Running"

    made.run(lambda w: note())
    assert phases[0] == "Pending"
    assert set(phases[1:-1]) <= {"Creating", "Degraded"}
    before = len(phases)
    made.spec(image="new:2")
    made.run(lambda w: note() and len([a for a in w.done if isinstance(a, RestartPod)]) == 2)
    assert phases[before] == "Updating"
    assert set(phases[before:]) <= {"Updating", "Degraded", "Down", "ReadOnly", "Running"}


def test_a_group_that_is_being_deleted() -> None:
    made = running()
    made.body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = seen_status(made)
    assert (found["phase"], found["message"]) == ("Deleting", "being deleted; volumes: Retain")


# ---- writing it


def test_a_patch_makes_the_new_of_the_old() -> None:
    old = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1], "f": 0}
    new = {"a": 1, "b": {"c": 3}, "e": [1, 2]}
    assert patch(old, new) == {"b": {"c": 3, "d": None}, "e": [1, 2], "f": None}
    assert patch(new, new) == {}


def test_unchanged_status_is_not_written() -> None:
    """Except for its bounded age: nothing else changes in an hour."""
    made = running()
    old = made.body["status"]
    new = seen_status(made)
    assert not worth_writing(old, new, 0, 10**15)
    made.now_ms += 3_600_000
    later = seen_status(made)
    assert list(patch(old, later)) == ["observedAt"]
    assert not worth_writing(old, later, 1000, 1000 + SEEN_MS - 1)
    assert worth_writing(old, later, 1000, 1000 + SEEN_MS)


def test_restarted_operator_leaves_a_fresh_status_as_it_is() -> None:
    made = running()
    old = made.body["status"]
    made.now_ms += SEEN_MS - 1000
    assert not worth_writing(old, seen_status(made), 0, made.now_ms)
    made.now_ms += 2000
    assert worth_writing(old, seen_status(made), 0, made.now_ms)
    assert worth_writing(old | {"observedAt": "yesterday"}, seen_status(made), 0, made.now_ms)
    made.now_ms -= 2 * SEEN_MS  # the clock of the operator before was ahead
    assert worth_writing(old, seen_status(made), 0, made.now_ms)


def test_fields_that_change_with_traffic_are_written_rarely() -> None:
    made = running()
    seen = made.seen()
    master = seen.answers[BrokerId("g1-0")]
    busy = replace(
        master,
        end=Position(5_000_000),
        replicas=(Replica(BrokerId("g1-1"), True, True, lag_bytes=70_000),),
    )
    new = status(replace(seen, answers={**seen.answers, BrokerId("g1-0"): busy}))
    old = made.body["status"]
    assert new["lag"] == "68.4 KiB"
    assert not worth_writing(old, new, 1000, 1000 + COALESCE_MS - 1)
    assert worth_writing(old, new, 1000, 1000 + COALESCE_MS)
    kill_master(made)
    assert worth_writing(old, seen_status(made), 1000, 1001)


def test_resource_of_an_older_schema_then_the_field_is_named() -> None:
    made = running()
    made.body["spec"]["replicas"] = "many"
    with pytest.raises(ValidationError) as caught:
        BrokerGroup.model_validate(made.body)
    found = unreadable(made.body, caught.value, made.now_ms)
    assert "spec.replicas" in found["message"]
    assert condition(found, "Ready")["status"] == "False"
    assert condition(found, "ConfigApplied")["reason"] == "Invalid"
    assert found["master"] == "g1-0"
    assert len({c["type"] for c in found["conditions"]}) == len(found["conditions"])


def test_a_status_is_read_back_as_it_was_written() -> None:
    made = running()
    assert BrokerGroup.model_validate(made.body).status.as_json() == made.body["status"]


@pytest.mark.parametrize("phase", list(PodPhase))
def test_no_phase_of_a_pod_breaks_it(phase: PodPhase) -> None:
    made = running()
    made.pods["g1-1"] = replace(made.pods["g1-1"], phase=phase, ready=False)
    assert seen_status(made)["phase"]


def test_waiting_update_does_not_hide_that_no_broker_serves() -> None:
    made = running()
    made.spec(image="new:2")
    made.round()
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(made.pods["g1-0"], ready=False, waiting="ContainerCreating")
    found = status(replace(made.seen(), answers={}))
    waits = next(c for c in found["conditions"] if c["type"] == "Progressing")
    assert waits["reason"] == "UpdateWaits"
    assert (found["phase"], found["access"]) == ("Down", "NONE")


def test_progressing_is_unknown_without_zookeeper() -> None:
    made = running()
    made.zookeeper_away = True
    found = condition(seen_status(made), "Progressing")
    assert (found["status"], found["reason"]) == ("Unknown", "NotKnown")
    assert "see ZooKeeperConnected" in found["message"]
    where = condition(seen_status(made), "ZooKeeperConnected")
    assert "zk:2181 does not answer" in where["message"]


def test_overscaled_stateful_set_then_broker_list_is_bounded() -> None:
    """Scaled by hand while the group is paused. The schema would refuse a longer status."""
    made = running()
    made.spec(paused=True)
    for number in range(2, 30):
        name = f"g1-{number}"
        made.pods[name] = replace(made.pods["g1-1"], name=name, ready=False)
    found = seen_status(made)
    assert [b["broker"] for b in found["brokers"]] == [f"g1-{number}" for number in range(18)]
    assert (found["replicas"], found["ready"]) == (30, "2/2")


def test_status_of_a_configured_new_group_names_its_master() -> None:
    made = world()
    made.round()
    assert made.state.mode is Mode.NEW
    assert made.config is not None
    made.round()
    assert made.body["status"]["master"] == made.config.value.master == "g1-0"


def test_patch_replaces_an_object_by_what_is_none() -> None:
    assert patch({"a": {"b": 1}, "c": 2}, {"a": 3, "c": {"d": 4}}) == {"a": 3, "c": {"d": 4}}
    assert patch({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}) == {"a": {"c": None}}
    assert patch({"a": {"b": 1}}, {"a": {"b": 1}}) == {}
