"""Decode Kubernetes objects into plain values of `fmqoperator.core.observation`. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from fmqoperator.api.job import BrokerJob, JobPhase, JobType, Verdict
from fmqoperator.api.times import of_text
from fmqoperator.core.jobs.results import JobPod
from fmqoperator.core.observation import Check, Claim, Node, Pod, PodPhase

Body = Mapping[str, Any]

ZONE = "topology.kubernetes.io/zone"
_BROKER = "broker"
"""Name of the broker's container. A mesh may put its proxies before or after it in the pod."""
_PHASES = {phase.value: phase for phase in PodPhase}
_JOB_LABELS = ("batch.kubernetes.io/job-name", "sparkoperator.k8s.io/app-name")
_LEVELS = ("quick", "standard", "deep")
_RESIZING = ("ControllerResizeError", "NodeResizeError")
_DRAINS = {
    "ToBeDeletedByClusterAutoscaler": "cluster-autoscaler, utils/taints",
    "cloud.google.com/impending-node-termination": "GKE, graceful end of spot nodes",
    "karpenter.sh/disrupted": "Karpenter 1.0 and newer, apis/v1",
    "karpenter.sh/disruption": "Karpenter 0.32 to 0.37, apis/v1beta1",
    "node.kubernetes.io/unschedulable": "Kubernetes, for a cordon",
}
"""Taints of nodes whose pods are about to be evicted, and who sets them.

A tool that removes nodes may taint without a cordon. Other taints reserve a node for certain pods,
or mark it as down, and no drain follows.
"""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def pod_of(body: Body, zone: str = "") -> Pod:
    """Return a broker's pod."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    waiting, message = _waiting(status)
    ended = {} if _well_since(status) else _ended(status)
    return Pod(
        name=meta["name"],
        uid=meta.get("uid", ""),
        phase=_PHASES.get(status.get("phase", ""), PodPhase.UNKNOWN),
        ready=_condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in meta,
        revision=labels.get("controller-revision-hash", ""),
        restart=notes.get("fmq.io/restart", ""),
        node=spec.get("nodeName") or "",
        zone=zone,
        waiting=waiting,
        message=message,
        image=next((c.get("image", "") for c in _brokers(spec.get("containers"))), ""),
        settings=notes.get("fmq.io/settings-hash", ""),
        exit_code=ended.get("exitCode"),
        end_reason=ended.get("reason") or "",
        unready_since_ms=_since_ms(_condition(status, "Ready")),
        ended_ms=of_text(at) if (at := _ended(status).get("finishedAt")) else None,
    )


def _since_ms(ready: Body) -> int | None:
    """Return since when a condition is False; None: it is not, or that is not known."""
    at = ready.get("lastTransitionTime")
    return of_text(at) if at and ready.get("status") == "False" else None


def node_of(body: Body) -> Node:
    """Return a node. `Unknown` counts as not ready.

    A lost node never reports `False`: its kubelet is silent, and the node controller writes
    `Unknown` after its own grace (40 s and more).
    """
    meta, status = body["metadata"], body.get("status") or {}
    ready = _condition(status, "Ready").get("status")
    return Node(
        name=meta["name"],
        drain_reason=_drain_reason(body),
        ready={"True": True, "False": False, "Unknown": False}.get(ready or ""),
        zone=(meta.get("labels") or {}).get(ZONE, ""),
    )


def _drain_reason(node: Body) -> str:
    """Return why the pods of a node have to leave it, a predicate; "" = they may stay."""
    if "deletionTimestamp" in node["metadata"]:
        return "is being deleted"
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "is cordoned"
    for taint in spec.get("taints") or ():
        if taint.get("key") in _DRAINS and taint.get("effect") in _KEEPS_AWAY:
            return f"has the taint {taint['key']}"
    return ""


def last_check(jobs: Iterable[Body], brokers: Iterable[str]) -> Check | None:
    """Return the check that ended last, or an earlier one whose damage still counts.

    Damage is reported until a check that looks at those brokers at least as closely finds none: a
    check that could not see it proves nothing. `brokers`: all of the group. A check that did not
    run counts only for what it found.
    """
    everyone = frozenset(brokers)
    found = sorted(
        (one for job in jobs if (one := _check_of(job, everyone)) is not None),
        key=lambda one: (one.check.finished_at, one.check.job),
    )
    for at, one in reversed([*enumerate(found)]):
        hurt = one.check.verdict is Verdict.INCONSISTENT
        if hurt and not any(_takes_back(later, one) for later in found[at + 1 :]):
            return one.check
    return found[-1].check if found else None


class _Looked(NamedTuple):
    """A check, and at which brokers of today's group it looked."""

    check: Check
    brokers: frozenset[str]


def _takes_back(later: _Looked, damage: _Looked) -> bool:
    """Whether the later check would have found that damage, and found none."""
    deep = [_LEVELS.index(one.check.level) for one in (later, damage)]
    well = later.check.verdict in (Verdict.CLEAN, Verdict.WARNINGS)
    return well and deep[0] >= deep[1] and later.brokers >= damage.brokers


def _check_of(body: Body, everyone: frozenset[str]) -> _Looked | None:
    try:
        job = BrokerJob.model_validate(body)
    except ValidationError:
        return None
    spec, status = job.spec, job.status
    ran = status.phase is JobPhase.SUCCEEDED
    # Of several nodes' Jobs one may have failed: what another one found stays valid.
    found = status.phase is JobPhase.FAILED and status.verdict is Verdict.INCONSISTENT
    if spec.type is not JobType.CHECK or not (ran or found):
        return None
    at = status.finished_at
    check = Check(job.metadata.name, spec.level, status.verdict, at, status.message)
    return _Looked(check, everyone & frozenset(spec.brokers) if spec.brokers else everyone)


def claim_of(body: Body, expandable: bool | None = None) -> Claim:
    """Return a broker's claim of storage."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    wanted = (spec.get("resources") or {}).get("requests") or {}
    trouble = (_condition(status, kind) for kind in _RESIZING)
    waits = _condition(status, "FileSystemResizePending")
    return Claim(
        name=meta["name"],
        requested=wanted.get("storage", ""),
        capacity=(status.get("capacity") or {}).get("storage", ""),
        deleting="deletionTimestamp" in meta,
        lost=status.get("phase") == "Lost",
        resize=next((c.get("message", "") for c in trouble if c.get("status") == "True"), ""),
        waits=waits.get("message", "") if waits.get("status") == "True" else "",
        expandable=expandable,
        uid=meta.get("uid", ""),
        owners=frozenset((o["kind"], o["uid"]) for o in meta.get("ownerReferences") or ()),
    )


def job_pod_of(body: Body) -> JobPod:
    """Return a pod that does a BrokerJob's work, or drives Spark for it, or is an executor."""
    meta, status = body["metadata"], body.get("status") or {}
    labels = meta.get("labels") or {}
    ends = labels.get("spark-role") != "executor"
    ended: Body = next(
        (
            (container.get("state") or {})["terminated"]
            for container in status.get("containerStatuses") or ()
            if "terminated" in (container.get("state") or {})
        ),
        {},
    )
    waiting, message = _waiting(status)
    return JobPod(
        name=meta["name"],
        job=next((labels[name] for name in _JOB_LABELS if ends and name in labels), ""),
        exit_code=ended.get("exitCode"),
        over=status.get("phase") in ("Succeeded", "Failed"),
        message=(ended.get("message") or message).strip(),
        waiting=waiting,
        end_reason=ended.get("reason") or "",
    )


def why_not_made(pod: str, events: Iterable[Body]) -> str:
    """Return why the controller cannot make that pod, by its Events; "" = it could, last."""
    about = [e for e in events if re.search(rf"\b{re.escape(pod)}\b", e.get("message") or "")]
    newest = max(about, key=_event_time, default=None)
    if newest is None or newest.get("reason") != "FailedCreate":
        return ""
    return str(newest["message"]).partition(" failed error: ")[2] or str(newest["message"])


def _event_time(event: Body) -> str:
    """RFC 3339, in UTC; a time with a part of a second sorts behind the bare second."""
    series = event.get("series") or {}
    at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(at or "").rstrip("Z")


def class_of(body: Body) -> str:
    """Return the StorageClass of a claim; "" = none is named."""
    return (body.get("spec") or {}).get("storageClassName") or ""


def _condition(status: Body, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        (c for c in status.get("conditions") or () if c.get("type") == kind), {}
    )
    return found


def _waiting(status: Body) -> tuple[str, str]:
    """Return why a pod does not run: by its container, the kubelet or the scheduler."""
    if status.get("phase") == "Failed" and status.get("reason"):
        return status["reason"], status.get("message", "")
    at_work = any(
        container.get("name") == _BROKER and "running" in (container.get("state") or {})
        for container in status.get("containerStatuses") or ()
    )
    found = (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or [])
    for container in () if at_work else found:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return waiting.get("reason", "Waiting"), waiting.get("message", "")
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return scheduled.get("reason", "Unschedulable"), scheduled.get("message", "")
    return "", ""


def _well_since(status: Body) -> bool:
    """Whether a pod was ready since its containers started: their last end explains nothing."""
    started = [
        (c.get("state") or {}).get("running", {}).get("startedAt") or "~"
        for c in _brokers(status.get("containerStatuses"))
    ]
    ready = _condition(status, "Ready")
    return bool(started) and (ready.get("lastTransitionTime") or "") > max(started)


def _ended(status: Body) -> Mapping[str, Any]:
    """Return how and when its container ended last; {} = it never did."""
    for container in _brokers(status.get("containerStatuses")):
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            if "terminated" in state:
                ended: Mapping[str, Any] = state["terminated"]
                return ended
    return {}


def _brokers(containers: list[Body] | None) -> list[Body]:
    """Return the broker's container alone, or all if none has its name."""
    return [c for c in containers or () if c.get("name") == _BROKER] or list(containers or ())
