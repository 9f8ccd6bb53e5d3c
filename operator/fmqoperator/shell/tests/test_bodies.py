"""Kubernetes' objects become plain values: a missing field is unknown, never made up."""

from typing import Any

import pytest

from fmqoperator.api.job import Verdict
from fmqoperator.core.jobs.results import JobPod
from fmqoperator.core.observation import Check, Claim, Node, Pod, PodPhase
from fmqoperator.shell.decoding import (
    claim_of,
    job_pod_of,
    last_check,
    node_of,
    pod_of,
    why_not_made,
)

BARE: dict[str, Any] = {"metadata": {"name": "g1-0", "uid": "u"}}

END = {"exitCode": 78, "finishedAt": "2027-01-01T00:00:00Z"}


def pod(**status: Any) -> dict[str, Any]:
    return {**BARE, "spec": {"containers": [{"image": "i:1"}], "nodeName": "n"}, "status": status}


def test_pod_without_status() -> None:
    assert pod_of(BARE) == Pod("g1-0", "u")
    assert pod_of({**BARE, "status": {"phase": "Strange"}}).phase is PodPhase.UNKNOWN


def test_a_pod_that_runs() -> None:
    body = pod(
        phase="Running",
        conditions=[{"type": "Ready", "status": "True"}],
        containerStatuses=[{"state": {"running": {}}, "lastState": {"terminated": dict(END)}}],
    )
    body["metadata"] = {
        **body["metadata"],
        "deletionTimestamp": "now",
        "labels": {"controller-revision-hash": "r"},
        "annotations": {"fmq.io/settings-hash": "h", "fmq.io/restart": "once"},
    }
    seen = pod_of(body, zone="z")
    assert (seen.phase, seen.ready, seen.deleting) == (PodPhase.RUNNING, True, True)
    assert (seen.revision, seen.settings, seen.restart) == ("r", "h", "once")
    assert (seen.node, seen.zone, seen.image, seen.exit_code) == ("n", "z", "i:1", 78)
    assert seen.ended_ms == 1_798_761_600_000


@pytest.mark.parametrize(
    ("status", "waiting", "message"),
    [
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImage", "message": "m"}}}]},
            "ErrImage",
            "m",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/1 nodes"}]},
            "Unschedulable",
            "0/1 nodes",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, "", ""),
    ],
)  # fmt: skip
def test_a_pod_that_waits(status: dict[str, Any], waiting: str, message: str) -> None:
    seen = pod_of(pod(phase="Pending", **status))
    assert (seen.waiting, seen.message) == (waiting, message)


@pytest.mark.parametrize(
    ("state", "ready_at", "code"),
    [
        ({"running": {"startedAt": "2027-01-01T00:00:05Z"}}, "2027-01-01T00:02:00Z", None),
        ({"running": {"startedAt": "2027-01-01T00:00:05Z"}}, "2027-01-01T00:00:00Z", 78),
        ({"running": {"startedAt": "2027-01-01T00:00:05Z"}}, "2027-01-01T00:00:05Z", 78),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "2027-01-01T00:02:00Z", 78),
    ],
    ids=["was ready since", "never ready since", "in one second", "does not run"],
)
def test_exit_before_the_last_ready_time_is_not_the_cause(
    state: dict[str, Any], ready_at: str, code: int | None
) -> None:
    seen = pod_of(
        pod(
            phase="Running",
            conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": ready_at}],
            containerStatuses=[{"state": state, "lastState": {"terminated": dict(END)}}],
        )
    )
    assert seen.exit_code == code


def test_sidecar_container_is_not_taken_for_the_broker() -> None:
    """A mesh's proxy that was killed, or is crash-looping, is no end of the broker."""
    crashes = {"reason": "CrashLoopBackOff", "message": "back-off"}
    proxy = {
        "name": "a-proxy",
        "state": {"waiting": crashes},
        "lastState": {"terminated": {"exitCode": 137, "finishedAt": "2027-01-01T00:00:00Z"}},
    }
    runs = {"name": "broker", "state": {"running": {}}}
    body = pod(phase="Running", containerStatuses=[proxy, runs])
    body["spec"]["containers"] = [
        {"name": "a-proxy", "image": "p:1"},
        {"name": "broker", "image": "b:1"},
    ]
    seen = pod_of(body)
    assert (seen.image, seen.waiting, seen.exit_code, seen.ended_ms) == ("b:1", "", None, None)
    pulls = {"name": "broker", "state": {"waiting": {"reason": "PodInitializing"}}}
    waits = pod(phase="Pending", containerStatuses=[proxy, pulls])
    assert pod_of(waits).waiting == "CrashLoopBackOff", "whatever keeps it from starting"


def test_end_by_oom_killer_then_kubernetes_reason_is_kept() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2027-01-01T00:00:00Z"}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    broker = {"name": "broker", "state": waits, "lastState": {"terminated": ended}}
    seen = pod_of(pod(phase="Running", containerStatuses=[broker]))
    assert (seen.exit_code, seen.end_reason) == (137, "OOMKilled")
    broker["state"] = {"running": {"startedAt": "2027-01-01T00:00:05Z"}}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:09Z"}
    well = pod_of(pod(phase="Running", containerStatuses=[broker], conditions=[ready]))
    assert (well.exit_code, well.end_reason) == (None, ""), "it has been ready since"


def test_evicted_pod_then_kubelet_reason_is_kept() -> None:
    cause = "The node was low on resource: memory."
    seen = pod_of(pod(phase="Failed", reason="Evicted", message=cause))
    assert (seen.waiting, seen.message) == ("Evicted", cause)


def test_nodes() -> None:
    assert node_of({"metadata": {"name": "n"}}) == Node("n", ready=None)
    silent = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
    assert node_of({"metadata": {"name": "n"}, "status": silent}) == Node("n", ready=False)
    body = {
        "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }
    assert node_of(body) == Node("n", drain_reason="is cordoned", ready=False, zone="z")


@pytest.mark.parametrize(
    ("key", "effect", "drained"),
    [
        ("karpenter.sh/disrupted", "NoSchedule", True),
        ("karpenter.sh/disruption", "NoSchedule", True),
        ("ToBeDeletedByClusterAutoscaler", "NoSchedule", True),
        ("cloud.google.com/impending-node-termination", "NoSchedule", True),
        ("node.kubernetes.io/unschedulable", "NoSchedule", True),
        ("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", False),
        ("karpenter.sh/disrupted", "PreferNoSchedule", False),
        ("dedicated", "NoSchedule", False),
        ("node.kubernetes.io/unreachable", "NoExecute", False),
    ],
)
def test_taint_of_a_drain_is_the_drain_reason(key: str, effect: str, drained: bool) -> None:
    """Such a drain evicts through the budgets, and may never cordon the node."""
    taints = [{"key": "gpu", "effect": "NoSchedule"}, {"key": key, "effect": effect}]
    found = node_of({"metadata": {"name": "n"}, "spec": {"taints": taints}})
    assert found.drain_reason == (f"has the taint {key}" if drained else "")


def test_pods_leave_a_node_that_is_being_deleted() -> None:
    """A finalizer keeps it until it is drained."""
    meta = {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert node_of({"metadata": meta}).drain_reason == "is being deleted"


def test_claims() -> None:
    assert claim_of({"metadata": {"name": "data-g1-0"}}) == Claim("data-g1-0")
    body = {
        "metadata": {"name": "data-g1-0"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}},
        "status": {
            "phase": "Lost",
            "capacity": {"storage": "1Gi"},
            "conditions": [{"type": "NodeResizeError", "status": "True", "message": "no"}],
        },
    }
    seen = claim_of(body, expandable=True)
    assert (seen.requested, seen.capacity, seen.lost) == ("2Gi", "1Gi", True)
    assert (seen.resize, seen.expandable, seen.waits) == ("no", True, "")


def test_claim_owners_are_read() -> None:
    owners = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "g1", "uid": "s"},
        {"apiVersion": "fmq.io/v1alpha1", "kind": "BrokerGroup", "name": "g1", "uid": "b"},
    ]
    meta = {"name": "data-g1-0", "uid": "c", "ownerReferences": owners}
    seen = claim_of({"metadata": meta})
    assert seen.uid == "c"
    assert sorted(seen.owners) == [("BrokerGroup", "b"), ("StatefulSet", "s")]


@pytest.mark.parametrize(("status", "waits"), [("True", "restart a pod"), ("False", "")])
def test_a_claim_whose_file_system_waits(status: str, waits: str) -> None:
    condition = {"type": "FileSystemResizePending", "status": status, "message": "restart a pod"}
    body = {"metadata": {"name": "data-g1-0"}, "status": {"conditions": [condition]}}
    assert (claim_of(body).waits, claim_of(body).resize) == (waits, "")


def test_pods_of_jobs() -> None:
    body = {
        "metadata": {"name": "c-g1-0-x", "labels": {"batch.kubernetes.io/job-name": "c-g1-0"}},
        "status": {
            "containerStatuses": [
                {"state": {"terminated": {"exitCode": 2, "message": "the last lines of the log"}}}
            ]
        },
    }  # fmt: skip
    assert job_pod_of(body) == JobPod("c-g1-0-x", "c-g1-0", 2, "the last lines of the log")
    driver = {"metadata": {"name": "d", "labels": {"sparkoperator.k8s.io/app-name": "check-1"}}}
    assert job_pod_of(driver) == JobPod("d", "check-1")


def test_the_reason_of_a_jobs_end_is_read() -> None:
    ended = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    body = {"metadata": {"name": "c-0"}, "status": {"containerStatuses": [ended]}}
    assert job_pod_of(body) == JobPod("c-0", "", 137, end_reason="OOMKilled")


def test_an_executors_end_is_no_verdict() -> None:
    labels = {"sparkoperator.k8s.io/app-name": "check-1", "spark-role": "executor"}
    ended = {"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}
    body = {"metadata": {"name": "e", "labels": labels}, "status": ended}
    assert job_pod_of(body) == JobPod("e", "", 0)


def job(name: str, ended: str, **change: Any) -> dict[str, Any]:
    ran = {"phase": "Succeeded", "verdict": "Clean", "finishedAt": ended, "message": "well"}
    return {
        "apiVersion": "fmq.io/v1alpha1",
        "kind": "BrokerJob",
        "metadata": {"name": name, "namespace": "shop", "uid": "u"},
        "spec": {"group": "g1", "type": change.pop("type", "check")} | change.pop("spec", {}),
        "status": ran | change,
    }


PAIR = ("g1-0", "g1-1")


def test_the_check_that_ended_last() -> None:
    jobs = [
        job("a", "2026-01-01T00:00:00Z", verdict="Inconsistent"),
        job("b", "2026-01-02T00:00:00Z"),
        job("c", "2026-01-03T00:00:00Z", phase="Failed"),
        job("d", "2026-01-04T00:00:00Z", type="rebuild-index"),
        {**job("e", "2026-01-05T00:00:00Z"), "spec": {"of": "an older schema"}},
    ]
    found = Check("b", "standard", Verdict.CLEAN, "2026-01-02T00:00:00Z", "well")
    assert last_check(jobs, PAIR) == last_check(reversed(jobs), PAIR) == found
    assert last_check(jobs[2:], PAIR) is None


@pytest.mark.parametrize(
    ("found", "later", "silent"),
    [
        ({}, {}, True),
        ({}, {"brokers": ["g1-1", "g1-0"]}, True),
        ({"brokers": ["g1-0"]}, {}, True),
        ({"level": "quick"}, {"level": "deep"}, True),
        ({"brokers": ["g1-1", "g1-2"]}, {"brokers": ["g1-1"]}, True),  # g1-2 was removed
        ({"level": "deep"}, {"level": "quick"}, False),
        ({}, {"brokers": ["g1-1"]}, False),
        ({"brokers": ["g1-0"]}, {"brokers": ["g1-1"]}, False),
    ],
)
def test_damage_is_reported_until_the_same_check_finds_none(
    found: Any, later: Any, silent: bool
) -> None:
    """If a quick look at another broker silenced the alert, no person would repair the damage."""
    damage = job("a", "2026-01-01T00:00:00Z", verdict="Inconsistent", spec=found)
    jobs = [damage, job("b", "2026-01-02T00:00:00Z", spec=later)]
    check = last_check(jobs, PAIR)
    assert check is not None
    assert check.job == ("b" if silent else "a")
    jobs[1]["status"]["verdict"] = "Incomplete"
    assert (check := last_check(jobs, PAIR)) is not None
    assert check.job == "a", "it did not see all"
    assert (check := last_check(jobs[1:], PAIR)) is not None
    assert check.verdict is Verdict.INCOMPLETE, "the newer BrokerJob was deleted"


def test_damage_found_beside_a_failed_job_is_reported() -> None:
    jobs = [
        job("a", "2026-01-01T00:00:00Z"),
        job("b", "2026-01-02T00:00:00Z", phase="Failed", verdict="Inconsistent"),
    ]
    assert (check := last_check(jobs, PAIR)) is not None
    assert (check.job, check.verdict) == ("b", Verdict.INCONSISTENT)


def made_event(at: str, reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at}


FAILED = 'create Pod g1-1 in StatefulSet g1 failed error: pods "g1-1" is forbidden: quota'


def test_reason_for_a_missing_pod_is_the_latest_event() -> None:
    failed = made_event("2026-01-01T00:00:09Z", "FailedCreate", FAILED)
    made = "create Pod g1-1 in StatefulSet g1 successful"
    before = made_event("2026-01-01T00:00:01Z", "SuccessfulCreate", made)
    after = made_event("2026-01-01T00:00:10Z", "SuccessfulCreate", made)
    assert why_not_made("g1-1", [failed, before]) == 'pods "g1-1" is forbidden: quota'
    assert why_not_made("g1-1", [failed, after]) == ""
    assert why_not_made("g1-1", []) == ""
    other = made_event("2026-01-01T00:00:11Z", "SuccessfulCreate", made.replace("g1-1", "g1-11"))
    assert why_not_made("g1-1", [failed, other]) == 'pods "g1-1" is forbidden: quota'
    assert why_not_made("g1-0", [failed, other]) == ""
