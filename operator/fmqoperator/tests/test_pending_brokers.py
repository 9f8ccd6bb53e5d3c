"""Brokers started on request are pending, not missing; their trouble is not hidden."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId
from fmqoperator.api.group import RESTART
from fmqoperator.core.actions import RestartPod
from fmqoperator.core.status.group import status
from fmqoperator.tests.world import World, running, world


def phases(made: World, turns: int = 40) -> list[str]:
    """Return the phases as `kubectl get -w` shows them, until it has run for a while."""
    out: list[str] = []
    calm = 0
    for _ in range(turns):
        made.round()
        phase = str(made.body["status"]["phase"])
        out += [phase] if out[-1:] != [phase] else []
        calm = calm + 1 if phase == "Running" else 0
        if calm == 4:
            return out
        made.turn()
    raise AssertionError(f"it does not run: {out}")


def now(made: World) -> str:
    return str(status(made.seen())["phase"])


def out_of_sync(made: World, *brokers: str) -> None:
    isr = made.state.isr - {BrokerId(b) for b in brokers}
    made.state = replace(made.state, isr=frozenset(isr))


def condition(made: World, kind: str) -> tuple[str, str]:
    found = next(c for c in status(made.seen())["conditions"] if c["type"] == kind)
    return found["status"], found["reason"]


def test_a_new_group_is_being_created_until_it_is_whole() -> None:
    assert phases(world(replicas=3)) == ["Pending", "Creating", "Running"]


def test_brokers_that_are_added() -> None:
    made = running(replicas=2)
    made.spec(replicas=4)
    assert phases(made)[-2:] == ["Scaling", "Running"]
    assert made.body["status"]["memory"]["joining"] == []


def test_missing_copy_is_reported_while_a_broker_is_pending() -> None:
    made = running(replicas=2)
    made.spec(replicas=3)
    made.round()
    made.turn()
    out_of_sync(made, "g1-2")
    made.round()
    assert now(made) == "Scaling"
    assert condition(made, "ReplicationHealthy") == ("False", "NotInSync")
    assert condition(made, "Degraded") == ("True", "Missing")
    assert condition(made, "Ready") == ("False", "Scaling")


@pytest.mark.parametrize("moves", [True, False])
def test_all_brokers_that_are_restarted_one_by_one(moves: bool) -> None:
    made = running(moves, replicas=3)
    made.annotate(RESTART, "now")
    found = phases(made, 80)
    assert len([a for a in made.done if isinstance(a, RestartPod)]) == 3
    assert "Degraded" not in found
    assert "Down" not in found
    if moves:
        assert set(found) == {"Updating", "Switching", "Running"}


def test_one_broker_alone_that_is_restarted() -> None:
    made = running(replicas=1, policy={"howMany": "none"})
    made.annotate(RESTART, "now")
    assert phases(made) == ["Updating", "Running"]


def test_a_group_that_wakes() -> None:
    made = running(replicas=3)
    made.spec(hibernated=True)
    made.run(lambda w: w.body["status"]["phase"] == "Hibernated")
    made.spec(hibernated=False)
    assert phases(made) == ["Creating", "Running"]


# ---- what is not hidden


@pytest.mark.parametrize("way", ["crashes", "no pod", "no node", "no image"])
def test_added_broker_that_does_not_come_up(way: str) -> None:
    made = running(replicas=2)
    made.spec(replicas=3)
    made.round()
    made.turn()
    made.round()
    assert now(made) == "Scaling"
    pod = replace(made.pods["g1-2"], ready=False)
    pods = {
        "crashes": replace(pod, waiting="CrashLoopBackOff", exit_code=78),
        "no node": replace(pod, waiting="Unschedulable"),
        "no image": replace(pod, waiting="ImagePullBackOff"),
    }
    seen = made.seen()
    if way == "no pod":
        pods = {b: p for b, p in made.pods.items() if b != "g1-2"}
        seen = replace(seen, pods=pods, not_made={"g1-2": "quota"})
    else:
        seen = replace(seen, pods=made.pods | {"g1-2": pods[way]})
    assert status(seen)["phase"] == "Degraded"


def test_another_slave_falls_behind_while_one_is_pending() -> None:
    made = running(replicas=2)
    made.spec(replicas=3)
    made.round()
    made.turn()
    made.round()
    out_of_sync(made, "g1-1")
    found = status(made.seen())
    assert found["phase"] == "Degraded"
    assert found["memory"]["joining"] == ["g1-2"]


def test_in_sync_slave_that_falls_behind() -> None:
    made = running(replicas=3)
    out_of_sync(made, "g1-2")
    assert now(made) == "Degraded"


def test_restarted_broker_not_back_in_time() -> None:
    made = running(True, replicas=2)
    made.annotate(RESTART, "now")
    made.run(lambda w: len([a for a in w.done if isinstance(a, RestartPod)]) == 2)
    made.turn()
    made.turn()
    made.pods["g1-0"] = replace(made.pods["g1-0"], ready=True)
    out_of_sync(made, "g1-0")
    made.round()
    assert made.body["status"]["memory"]["returning"] == ["g1-0"]
    made.now_ms += 599_000
    assert now(made) == "Updating"
    made.now_ms += 2_000
    assert now(made) == "Degraded"


def test_pending_brokers_are_known_without_zookeeper() -> None:
    made = running(replicas=2)
    made.spec(replicas=3)
    made.round()
    made.turn()
    made.round()
    made.zookeeper_away = True
    made.round()
    made.zookeeper_away = False
    assert now(made) == "Scaling"
