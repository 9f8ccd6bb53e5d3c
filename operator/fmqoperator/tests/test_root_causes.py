"""PHASE and MESSAGE of a group in trouble: the root cause comes first, whatever waits for it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core.observation import Failure, Observation, PodPhase
from fmqoperator.core.status.group import status
from fmqoperator.tests.world import World, running

IMAGE = "image new:2 cannot be pulled: check spec.image and spec.imagePullSecrets"
OOM = "it ended with status 137: Kubernetes reports OOMKilled: "
NO_ROOM = "0/3 nodes are available: 3 Insufficient memory."


def ailing(made: World, broker: str, ailment: str) -> str:
    """Break that broker's pod; return how the message starts."""
    made.broken.add(broker)
    pod = replace(made.pods[broker], ready=False, unready_since_ms=made.now_ms)
    match ailment:
        case "image":
            pod = replace(pod, phase=PodPhase.PENDING, waiting="ImagePullBackOff", image="new:2")
            begins = f"{broker}: {IMAGE}"
        case "memory":
            pod = replace(pod, waiting="CrashLoopBackOff", message="back-off 40s")
            pod = replace(pod, exit_code=137, end_reason="OOMKilled")
            begins = f"{broker}: {OOM}"
        case "no node":
            pod = replace(pod, phase=PodPhase.PENDING, waiting="Unschedulable", node="")
            pod = replace(pod, message=NO_ROOM)
            begins = f"{broker}: Unschedulable ({NO_ROOM})"
        case _:
            made.nodes[pod.node] = replace(made.nodes[pod.node], ready=False)
            made.silent.add(broker)
            begins = f"{broker}: its node {pod.node} is not ready"
    made.pods[broker] = pod
    return begins


AILMENTS = ("image", "memory", "no node", "node down")


def updating(made: World) -> None:
    made.spec(image="new:2")


def growing(made: World) -> None:
    made.spec(replicas=3, image="new:2")


def leaving(made: World) -> None:
    made.spec(replicas=made.body["spec"]["replicas"] - 1)


def switching(made: World) -> None:
    made.annotate(SWITCHOVER, "g1-1")


def nothing(_: World) -> None:
    """Make no request."""


@pytest.mark.parametrize("wish", [nothing, updating, growing, leaving, switching])
@pytest.mark.parametrize("ailment", AILMENTS)
def test_slave_in_trouble_then_it_is_named_first(
    wish: Callable[[World], None], ailment: str
) -> None:
    made = running(True, replicas=3)
    wish(made)
    ill, well = ("g1-1", "g1-2") if wish is leaving else ("g1-2", "g1-1")
    begins = ailing(made, ill, ailment)
    made.state = replace(made.state, isr=frozenset({BrokerId(well)}))
    made.round()
    found = status(made.seen())
    assert found["message"].startswith(begins)
    assert found["message"].count(begins) == 1
    degraded = next(c for c in found["conditions"] if c["type"] == "Degraded")
    assert degraded["message"].startswith(begins)


@pytest.mark.parametrize("ailment", AILMENTS)
@pytest.mark.parametrize("how", ["Down", "ReadOnly", "Promoting"])
def test_master_in_trouble_then_it_is_named_first(how: str, ailment: str) -> None:
    spec = {"promotion": {"policy": "after"}} if how == "Promoting" else {}
    made = running(True, replicas=3, **spec)
    begins = ailing(made, "g1-0", ailment)
    if how != "Down":
        made.state = replace(
            made.state, mode=Mode.SLAVE_CONSUME, reader=BrokerId("g1-1"), reason="g1-1 serves reads"
        )
    found = status(made.seen())
    assert found["message"].startswith(begins)
    if how != "Promoting" and ailment != "node down":  # its session has not ended yet
        assert found["phase"] == how


def test_rollout_that_hangs_then_phase_is_degraded() -> None:
    """An image that does not exist: `Updating` would mean progress."""
    made = running(True)
    made.bad_images.add("new:2")
    made.spec(image="new:2")
    for _ in range(8):
        made.round()
        made.turn()
    found = status(made.seen())
    assert found["phase"] == "Degraded"
    assert found["message"].startswith(f"g1-1: {IMAGE}")
    assert found["message"].endswith("g1-0 is to be restarted (image fmq-broker:test -> new:2): "
                                     "g1-1 is not in sync")  # fmt: skip


def test_rollout_in_good_order_then_phase_stays_updating() -> None:
    made, phases = running(True), []
    made.spec(image="new:2")
    for _ in range(20):
        made.round()
        phases.append(made.body["status"]["phase"])
        made.turn()
    assert "Degraded" not in phases
    assert "Updating" in phases


def refusing(seen: Observation, broker: str) -> Observation:
    one = BrokerId(broker)
    full = replace(seen.answers[one], refuses="7 MiB are free")
    return replace(seen, answers={**seen.answers, one: full})


@pytest.mark.parametrize("broker", ["g1-0", "g1-1"])
def test_full_disk_while_update_waits_then_disk_first(broker: str) -> None:
    made = running(True)
    made.spec(image="new:2")
    made.round()
    made.state = replace(made.state, isr=frozenset())
    found = status(refusing(made.seen(), broker))
    assert found["message"].startswith(f"{broker} refuses messages: its disk is full: ")


def test_lost_volume_then_it_is_named_before_lag() -> None:
    made = running(True)
    made.claims["data-g1-1"] = replace(made.claims["data-g1-1"], lost=True)
    made.state = replace(made.state, isr=frozenset())
    assert status(made.seen())["message"].startswith("volume of g1-1 is lost: ")


def test_operator_refused_twice_then_the_status_reports_it() -> None:
    failed = Failure("StatefulSet g1", "Forbidden", "an admission webhook refused", rounds=2)
    found = status(replace(running().seen(), failures=(failed,)))
    assert found["message"].startswith("StatefulSet g1: an admission webhook refused")


def test_paused_group_in_trouble_then_both_are_reported() -> None:
    made = running(True)
    made.spec(paused=True)
    begins = ailing(made, "g1-1", "memory")
    found = status(made.seen())
    assert found["phase"] == "Paused"
    assert f"; {begins}" in found["message"]
