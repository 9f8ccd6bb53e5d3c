"""What a status reports that is not in ZooKeeper: without an ensemble, moves, checks."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import GroupState, Mode
from fmqoperator.api.group import FENCE, SWITCHOVER, read_group
from fmqoperator.api.job import Verdict
from fmqoperator.api.status import Access, BrokerGroupStatus
from fmqoperator.api.times import of_text
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Answer, Check, Failure, InZooKeeper
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.core.status.unreconciled import blind
from fmqoperator.tests.plan_kit import lose_master
from fmqoperator.tests.world import running

NOON = {"lastTransitionTime": "noon"}


def condition(found: Any, kind: str) -> Any:
    return next(c for c in found["conditions"] if c["type"] == kind)


def test_without_zookeeper_brokers_report_what_they_serve() -> None:
    """A master serves on by its slaves' grants: the status does not deny it."""
    made = running()
    made.zookeeper_away = True
    found = status(made.seen())
    assert (found["access"], found["phase"], found["mode"]) == ("FULL", "Degraded", "UNKNOWN")
    assert (found["master"], found["epoch"], found["inSync"]) == ("g1-0", 1, ["g1-1"])
    roles = {b["broker"]: (b["role"], b["inSync"], b["live"]) for b in found["brokers"]}
    assert roles == {"g1-0": ("master", False, True), "g1-1": ("slave", True, True)}
    by_status = {c["type"]: c["status"] for c in found["conditions"]}
    assert (by_status["WriteAvailable"], by_status["ReadAvailable"]) == ("True", "True")
    for kind in ("ReplicationHealthy", "FailoverSafe", "OffsetsSynced"):
        assert by_status[kind] == "Unknown", kind
    assert "by its own report" in condition(found, "WriteAvailable")["message"]
    assert condition(found, "ZooKeeperConnected")["status"] == "False"
    assert "spec.zookeeper.connect" in condition(found, "ZooKeeperConnected")["message"]
    assert found["lastTransition"] == made.body["status"]["lastTransition"]


def test_without_zookeeper_and_answers_last_known_is_marked_so() -> None:
    made = running()
    made.zookeeper_away = True
    made.silent |= {"g1-0", "g1-1"}
    found = status(made.seen())
    assert (found["access"], found["phase"]) == ("FULL", "Unknown")
    assert condition(found, "Ready")["status"] == "Unknown"
    for kind in ("WriteAvailable", "ReadAvailable"):
        now = condition(found, kind)
        assert (now["status"], now["reason"]) == ("Unknown", "LastKnown")
        assert "last known: FULL" in now["message"]


@pytest.mark.parametrize(
    ("silent", "access"),
    [(set(), "NONE"), ({"g1-0"}, "FULL"), ({"g1-1"}, "UNKNOWN"), ({"g1-0", "g1-1"}, "FULL")],
)
def test_without_zookeeper_none_serves_only_if_all_report_it(silent: set[str], access: str) -> None:
    """The last known state does not hold once the serving broker denies it."""
    seen = running().seen()
    answers = {b: Answer(b, cause="its lease expired") for b in seen.answers if b not in silent}
    found = status(replace(seen, zookeeper=None, answers=answers))
    assert (found["access"], found["phase"]) == (access, "Unknown")
    if access == "UNKNOWN":
        expected = "g1-0: its lease expired; no answer from g1-1"
        reads = condition(found, "ReadAvailable")
        assert (reads["status"], reads["reason"]) == ("Unknown", "NotKnown")
        assert reads["message"].startswith(expected)
        assert found["message"].startswith(expected)


def test_without_zookeeper_the_takeover_reader_decides_access() -> None:
    made = running()
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.round()
    seen = made.seen()
    assert seen.group.status.access is Access.READ
    reader = BrokerId(seen.group.status.reader)
    found = status(replace(seen, zookeeper=None, answers={reader: Answer(reader)}))
    assert found["access"] == "UNKNOWN"


def test_reason_for_missing_zookeeper_is_in_one_condition() -> None:
    made = running()
    made.zookeeper_away = True
    found = status(made.seen())
    types = [c["type"] for c in found["conditions"] if "zk:2181 does not answer" in c["message"]]
    assert sorted(types) == ["Degraded", "Ready", "ZooKeeperConnected"]


def test_group_that_no_broker_serves_is_degraded() -> None:
    made = running()
    made.annotate(FENCE, "g1-0")
    for _ in range(3):
        made.round()
    found = status(made.seen())
    assert found["phase"] == "Down"
    degraded = condition(found, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "Down")
    assert "g1-0 is fenced" in degraded["message"]


def test_switchover_of_a_hibernated_group_reports_that_it_waits() -> None:
    made = running(hibernated=True)
    for _ in range(12):
        made.round()
    assert status(made.seen())["phase"] == "Hibernated"
    made.annotate(SWITCHOVER, "g1-1")
    found = status(made.seen())
    waits = condition(found, "Progressing")
    assert (found["phase"], waits["reason"]) == ("Hibernated", "MoveWaits")
    assert "switchover to g1-1 was requested: spec.hibernated is set" in waits["message"]


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict.CLEAN, ("True", "Clean")),
        (Verdict.WARNINGS, ("True", "Warnings")),
        (Verdict.INCONSISTENT, ("False", "Inconsistent")),
        (Verdict.INCOMPLETE, ("Unknown", "Incomplete")),
    ],
)
def test_index_condition_follows_the_last_check(
    verdict: Verdict, expected: tuple[str, str]
) -> None:
    seen = running().seen()
    assert not [c for c in status(seen)["conditions"] if c["type"] == "IndexConsistent"]
    check = Check("c1", "deep", verdict, "2026-01-01T00:00:00Z", "3 findings")
    index = condition(status(replace(seen, check=check)), "IndexConsistent")
    assert (index["status"], index["reason"]) == expected
    assert index["message"] == "BrokerJob c1 (deep, 2026-01-01T00:00:00Z): 3 findings"


def test_switchover_is_reported_with_the_old_master_and_reason() -> None:
    made = running(True)
    made.annotate(SWITCHOVER, "g1-1")
    made.run()
    last = made.body["status"]["lastTransition"]
    assert (last["from"], last["to"]) == ("g1-0 FULL", "g1-1 FULL")
    assert last["cause"] == ("g1-1 is master in place of g1-0: a switchover to g1-1 was requested")
    assert not made.body["status"]["memory"]["switchoverReason"]


def test_switchover_requested_elsewhere_is_reported_too() -> None:
    made = running(True)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-1")))
    made.run()
    cause = made.body["status"]["lastTransition"]["cause"]
    assert cause == "g1-1 is master in place of g1-0"


def test_promotion_is_reported_with_its_reason() -> None:
    made = running(True, promotion={"policy": "after", "afterSeconds": 30})
    lose_master(made)
    made.run(lambda w: w.body["status"].get("lastTransition", {}).get("to") == "g1-1 FULL")
    assert made.body["status"]["access"] == "READ", "the policy needs a slave, and none is there"
    last = made.body["status"]["lastTransition"]
    assert (last["from"], last["to"]) == ("g1-1 READ", "g1-1 FULL")
    assert last["cause"].startswith("g1-1 is master: master g1-0 is lost")
    assert not made.state.isr
    assert "writeOutageMs" not in last, "no message can be acknowledged yet: it lasts"
    gone_ms = of_text(last["at"]) - of_text(made.body["status"]["noWritesSince"])
    assert gone_ms >= 30_000


FORBIDDEN = "NetworkPolicy g1: networkpolicies is forbidden: you may not"


@pytest.mark.parametrize(("rounds", "messages"), [(1, []), (2, [FORBIDDEN]), (9, [FORBIDDEN])])
@pytest.mark.parametrize("paused", [False, True])
def test_repeated_failure_is_reported_before_the_next_try(
    rounds: int, messages: list[str], paused: bool
) -> None:
    """A missing permission: it is in the condition at once, and in an Event."""
    made = running(paused=paused)
    failure = Failure("NetworkPolicy g1", "Forbidden", FORBIDDEN.partition(": ")[2], rounds)
    actions = plan(replace(made.seen(), failures=(failure,)))
    assert [a.message for a in actions if isinstance(a, EmitEvent)] == messages
    assert actions[: len(messages)] == [EmitEvent("Warning", "Forbidden", m) for m in messages]


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Levitating"},  # written by a newer operator
        {"brokers": [{"broker": "g1-0", "role": "king", "permission": "FULL"}]},
        {"conditions": [{"type": "Ready", "status": "True", "reason": "x"} | NOON]},
        {"lastTransition": {"from": "", "to": "", "cause": "", "at": "noon", "epoch": 1}},
        {},
    ],
)
def test_unreadable_status_does_not_stop_the_operator(change: Any) -> None:
    body = running().body
    found = read_group(body | {"status": body["status"] | change})
    assert found.spec.replicas == 2
    assert (found.status.master == "g1-0") is (change == {})


def test_nearly_empty_condition_does_not_stop_the_operator() -> None:
    """The schema demands no more than its type."""
    body = running().body | {"status": {"conditions": [{"type": "Ready"}]}}
    found = blind(body, "no right to list pods", 0)
    assert condition(found, "Ready")["status"] == "Unknown"


def test_a_spec_that_cannot_be_read_is_not_guessed() -> None:
    body = running().body
    with pytest.raises(ValidationError):
        read_group(body | {"spec": {"replicas": 99}, "status": {"phase": "Levitating"}})


def test_paused_group_still_has_a_current_status() -> None:
    made = running(replicas=3)
    made.spec(paused=True)
    made.round()
    made.pods["g1-2"] = replace(made.pods["g1-2"], ready=False, exit_code=74)
    made.claims["data-g1-1"] = replace(made.claims["data-g1-1"], deleting=True)
    made.state = replace(made.state, epoch=Epoch(9))
    for _ in range(3):
        made.round()
    assert sorted(e.reason for e in made.events) == ["BrokerEnded", "EpochOpened", "VolumeGoes"]
    made.zookeeper_away = True
    for _ in range(3):
        made.round()
    assert [e.reason for e in made.events][3:] == ["ZooKeeperAway"]
    assert made.done == []


def test_status_and_events_precede_actions_that_may_fail() -> None:
    """A child that must not be applied ends every round; the status is still written."""
    made = running()
    made.zookeeper_away = True
    made.pods["g1-1"] = replace(made.pods["g1-1"], ready=False, exit_code=74)
    made.spec(service={"type": "NodePort"}, storage={"size": "20Gi"})
    actions = plan(made.seen())
    reasons = [a.reason for a in actions if isinstance(a, EmitEvent)]
    first = next(at for at, a in enumerate(actions) if not isinstance(a, EmitEvent))
    assert reasons[:first] == ["BrokerEnded", "ZooKeeperAway"]


@pytest.mark.parametrize(
    ("permission", "reads", "most"), [("READ", "True", "only READ"), ("NONE", "False", "nothing")]
)
def test_master_with_less_permission_is_reported_as_limited(
    permission: str, reads: str, most: str
) -> None:
    made = running(permissions=[{"broker": "g1-0", "permission": permission}])
    found = status(made.seen())
    cause = (
        f"g1-0 may serve {most} (spec.permissions): raise its permission, or name another master"
    )
    assert condition(found, "WriteAvailable")["message"] == cause
    assert condition(found, "ReadAvailable")["status"] == reads
    assert found["message"] == cause


def test_fenced_reader_is_reported_as_fenced() -> None:
    made = running()
    lose_master(made)
    made.run(lambda w: w.body["status"]["access"] == "READ")
    made.annotate(FENCE, "g1-1")
    made.round()
    found = status(made.seen())
    assert (found["phase"], found["access"]) == ("Down", "NONE")
    cause = condition(found, "WriteAvailable")["message"]
    assert cause.startswith("g1-1 may serve nothing (fmq.io/fence)")
    assert found["message"].startswith("g1-0: ")
    assert found["message"].endswith(cause)


def test_reader_without_permission_is_not_reported_as_serving() -> None:
    made = running()
    lose_master(made)
    made.run(lambda w: w.body["status"]["access"] == "READ")
    made.spec(slaveReads=False)
    made.round()
    found = status(made.seen())
    expected = "g1-1 may serve only WRITE (spec.permissions, or spec.slaveReads): raise its"
    for kind in ("ReadAvailable", "WriteAvailable"):
        assert condition(found, kind)["message"].startswith(expected), kind


def test_group_served_by_another_ensemble_is_not_reported_as_new() -> None:
    """The resource names an empty ensemble: brokers serve on by the one they started with."""
    made = running()
    made.round()
    assert made.state is not None
    seen = replace(made.seen(), zookeeper=InZooKeeper(None, GroupState(), {}))
    found = status(seen)
    assert (found["access"], found["phase"], found["epoch"]) == ("FULL", "Degraded", 1)
    where = condition(found, "ZooKeeperConnected")
    assert (where["status"], where["reason"]) == ("False", "OtherEnsemble")
    assert "has no state of this group, but g1-0 serves it" in where["message"]
    assert found["lastTransition"] == made.body["status"]["lastTransition"]
    (event,) = [a for a in plan(seen) if isinstance(a, EmitEvent) and a.type == "Warning"]
    assert (event.reason, event.message) == ("OtherEnsemble", where["message"])
    made.body["status"] = found
    again = replace(made.seen(), zookeeper=seen.zookeeper)
    assert not [a for a in plan(again) if isinstance(a, EmitEvent) and a.reason == "OtherEnsemble"]
    # A group that was never opened: its first term is on its way.
    fresh = made.group.model_copy(update={"status": BrokerGroupStatus()})
    assert status(replace(seen, group=fresh))["phase"] == "Creating"


def test_restored_configuration_is_reported() -> None:
    made = running()
    made.config = None
    made.round()
    (again,) = [e for e in made.events if e.reason == "GroupConfigured"]
    assert again.type == "Warning"
    assert "to ZooKeeper again: the configuration was missing" in again.message
