"""Brokers in trouble: the report on each, made once per occurrence."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId
from fmqoperator.api.status import BrokerGroupStatus
from fmqoperator.core import switchovers as moves
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Observation, PodPhase
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import event_reasons, kinds
from fmqoperator.tests.world import World, running

IMAGE = "g1-1: image fmq-broker:test cannot be pulled: check spec.image and spec.imagePullSecrets"


def ill(made: World, **change: Any) -> None:
    """The second broker's pod is not what it should be, and does not get better."""
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], ready=False, **change)


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({"waiting": "ErrImagePull", "message": "no such host"}, "ImageUnavailable", IMAGE),
        ({"waiting": "ImagePullBackOff", "message": "back-off"}, "ImageUnavailable", IMAGE),
        ({"waiting": "InvalidImageName"}, "ImageUnavailable", IMAGE),
        (
            {"waiting": "CreateContainerConfigError", "message": "secret x not found"},
            "ContainerNotMade",
            "g1-1: CreateContainerConfigError: secret x not found",
        ),
        (
            {"exit_code": 74},
            "BrokerEnded",
            "g1-1 ended with status 74: its disk failed or is full: check the volume, or raise "
            "storage.size",
        ),
        (
            {"exit_code": 137, "waiting": "CrashLoopBackOff"},
            "BrokerEnded",
            "g1-1 ended with status 137: it was killed, but not for its memory limit: it did not "
            "answer /livez, did not stop in time, or its node ran out of memory: kubectl "
            "describe pod shows which",
        ),
        (
            {"exit_code": 137, "end_reason": "OOMKilled", "waiting": "CrashLoopBackOff"},
            "BrokerEnded",
            "g1-1 ended with status 137: Kubernetes reports OOMKilled: it needs more memory than "
            "its container may use: raise spec.resources.limits.memory",
        ),
        ({"exit_code": 3}, "BrokerEnded", "g1-1 ended with status 3: see its log"),
        # Trouble that passes by itself, or was requested:
        ({"waiting": "ContainerCreating"}, "", ""),
        ({"exit_code": 0}, "", ""),
        ({"phase": PodPhase.PENDING}, "", ""),
        ({"exit_code": 137, "deleting": True}, "", ""),
    ],
)
def test_a_pod_in_trouble(change: dict[str, Any], reason: str, message: str) -> None:
    made = running()
    ill(made, **change)
    for _ in range(3):
        made.round()
    found = [e for e in made.events if e.reason in (reason, "ImageUnavailable", "BrokerEnded")]
    assert [(e.type, e.reason, e.message) for e in found] == (
        [("Warning", reason, message)] if reason else []
    )
    if reason:
        assert "g1-1: " in made.condition("Degraded")["message"]


QUOTA = 'pods "g1-1" is forbidden: exceeded quota: tight, requested: pods=1'


def test_missing_pod_then_the_reason_is_reported() -> None:
    made = running()
    seen = made.seen()
    pods = {name: pod for name, pod in (seen.pods or {}).items() if name != "g1-1"}
    bare = replace(seen, pods=pods)
    assert "PodNotMade" not in [getattr(a, "reason", "") for a in plan(bare)]
    refused = replace(bare, not_made={"g1-1": QUOTA})
    (event,) = [a for a in plan(refused) if isinstance(a, EmitEvent) and a.reason == "PodNotMade"]
    assert event.message == f"g1-1 has no pod: {QUOTA}"
    found = status(refused)
    (degraded,) = [c for c in found["conditions"] if c["type"] == "Degraded"]
    assert event.message in degraded["message"]
    known = {"conditions": [degraded]}
    reported = replace(refused, group=made.seen().group.model_copy(
        update={"status": BrokerGroupStatus.model_validate(known)}))  # fmt: skip
    assert "PodNotMade" not in [getattr(a, "reason", "") for a in plan(reported)]


def test_alternating_messages_are_reported_once_per_occurrence() -> None:
    made = running()
    for at in range(6):
        ill(made, waiting=("ErrImagePull", "ImagePullBackOff")[at % 2], message=f"try {at}")
        made.round()
    assert event_reasons(made) == ["ImageUnavailable"]
    made.broken.clear()
    made.pods["g1-1"] = replace(made.pods["g1-1"], ready=True, waiting="", message="")
    made.run()
    ill(made, waiting="ErrImagePull")
    made.round()
    assert event_reasons(made) == ["ImageUnavailable", "ImageUnavailable"]


def test_crash_looping_broker_is_reported_once_while_it_loops() -> None:
    made = running()
    for at in range(6):
        ill(made, waiting=("CrashLoopBackOff", "")[at % 2], exit_code=74)
        made.round()
    assert event_reasons(made) == ["BrokerEnded"]
    ill(made, waiting="CrashLoopBackOff", exit_code=65)
    made.round()
    assert event_reasons(made) == ["BrokerEnded", "BrokerEnded"], "another reason is news"


def answers(seen: Observation, broker: str, **change: Any) -> Observation:
    one = BrokerId(broker)
    return replace(seen, answers={**seen.answers, one: replace(seen.answers[one], **change)})


@pytest.mark.parametrize(("broker", "writes"), [("g1-0", "False"), ("g1-1", "True")])
def test_a_full_disk(broker: str, writes: str) -> None:
    """On the master no message is taken, whatever its permission. On a slave it falls behind."""
    found = status(answers(running().seen(), broker, refuses="7 MiB are free"))
    by_type = {c["type"]: c for c in found["conditions"]}
    assert by_type["WriteAvailable"]["status"] == writes
    assert by_type["ReadAvailable"]["status"] == "True"
    assert (by_type["Degraded"]["status"], by_type["Ready"]["status"]) == ("True", "False")
    served = "READ" if writes == "False" else "FULL"
    assert (found["phase"], found["access"]) == ("Degraded", served)
    assert found["message"].count(f"{broker} refuses messages: its disk is full") == 1
    assert "raise storage.size" in found["message"]
    assert "7 MiB" not in found["message"], "it changes with the traffic"
    if writes == "False":
        assert by_type["WriteAvailable"]["reason"] == "DiskFull"


@pytest.mark.parametrize(
    ("change", "reason"), [({"refuses": "7 MiB"}, "DiskFull"), ({"damage": "f"}, "JournalDamaged")]
)
def test_bad_disk_is_reported_once_per_occurrence(
    change: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, well = running(), World.seen
    monkeypatch.setattr(World, "seen", lambda world: answers(well(world), "g1-0", **change))
    for _ in range(3):
        made.round()
    assert event_reasons(made) == [reason]
    assert made.condition("Degraded")["status"] == "True"
    monkeypatch.setattr(World, "seen", well)
    made.run()
    assert made.condition("Degraded")["status"] == "False"
    assert made.condition("WriteAvailable")["status"] == "True"
    monkeypatch.setattr(World, "seen", lambda world: answers(well(world), "g1-0", **change))
    assert kinds(made.round()) == []
    assert event_reasons(made) == [reason, reason]


def test_broker_refusing_messages_is_the_last_choice_as_master() -> None:
    seen = running(True, replicas=3).seen()
    assert moves.successors(seen) == ("g1-1", "g1-2")
    assert moves.successors(answers(seen, "g1-1", refuses="7 MiB are free")) == ("g1-2", "g1-1")


def test_broker_on_a_lost_node_then_the_node_is_named() -> None:
    made = running()
    ill(made)
    made.nodes["n1"] = replace(made.nodes["n1"], ready=False)
    made.silent.add("g1-1")
    found = status(made.seen())
    cause = "its node n1 is not ready (kubectl describe node n1)"
    assert f"g1-1: {cause}" in found["message"]
    assert next(b for b in found["brokers"] if b["broker"] == "g1-1")["message"] == cause
