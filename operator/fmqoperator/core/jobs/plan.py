"""BrokerJobs: which objects do the work, and their result: plan and status. Pure.

A journal lies on a volume that only its node can mount, so there is one Job for each node with
chosen volumes, or one SparkApplication if they lie on one; replicas are compared where they lie on
one node. Which broker is in which is settled when it is made (annotation `fmq.io/brokers`), and
each is made once; when it is gone after its time the status still has its result.

Exit codes 0 to 3 of `fmq job` are verdicts about the data, and the job ran; any other is a failure
of the job, which is tried again unless it reports that trying is in vain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fmqoperator.api.base import Condition, Json
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.job import BrokerJob, BrokerJobStatus, JobEngine, JobPhase, JobType, Verdict
from fmqoperator.api.times import as_text, is_moment, of_text
from fmqoperator.core.actions import Action, ApplyChild, DeleteChild, EmitEvent, Requeue
from fmqoperator.core.event_dedup import has_waited
from fmqoperator.core.jobs.objects import BROKERS, brokers_of, job_object
from fmqoperator.core.jobs.results import (
    VERDICTS,
    End,
    JobPod,
    end_of_application,
    end_of_job,
    state_of,
)
from fmqoperator.core.jobs.spark_application import SPARK_API, application_name, spark_application
from fmqoperator.core.observation import Claim, Defaults, Failure, Pod

CALM_MS: Final = 60_000
BUSY_MS: Final = 3_000

__all__ = ["BROKERS", "JobPod", "JobSeen", "job_status", "plan_job"]

_FAILED: Final = {
    64: "the command refused its arguments: check the spec",
    69: "it could not start: a broker runs on that volume, no broker answers, another archive job "
    "writes to the same claim, or the image lacks pyarrow",
    137: "it was killed, but not for its memory limit: it was deleted or evicted, or its node ran "
    "out of memory: kubectl describe pod shows which",
}
_ENDS: Final = {
    "OOMKilled": "Kubernetes reports OOMKilled: raise spec.resources.limits.memory",
}
"""Meaning of Kubernetes' own reason for a container's end; it is more exact than the status."""
_NOT_KNOWN: Final = "NotKnown"
_JOB_API: Final = "batch/v1"
_ENDED: Final = (JobPhase.SUCCEEDED, JobPhase.FAILED)


@dataclass(frozen=True, slots=True)
class JobSeen:
    """Everything observed of one BrokerJob. None: not known.

    `children`: its Jobs and SparkApplications, by (kind, name). `others`: names of those with its
    label `fmq.io/job: <name>` and another owner: mostly an earlier BrokerJob of that name.
    `spark`: whether the cluster knows SparkApplications.
    `group`: the BrokerGroup that it names; `group_known`: whether it was looked for.
    `brokers`, `claims`: that group's pods and volumes, as in `observation.Observation`.
    """

    job: BrokerJob
    now_ms: int
    defaults: Defaults
    group: BrokerGroup | None = None
    group_known: bool = False
    brokers: Mapping[str, Pod] | None = None
    claims: Mapping[str, Claim] | None = None
    children: Mapping[tuple[str, str], Json] | None = None
    others: tuple[str, ...] = ()
    spark: bool = False
    pods: tuple[JobPod, ...] | None = None
    failures: tuple[Failure, ...] = ()


def plan_job(seen: JobSeen) -> list[Action]:
    """Return what is still to be made; only `Requeue`: there is nothing to do, or to wait."""
    job = seen.job
    if job.metadata.deletion_timestamp is not None:
        return []
    if job.status.phase in _ENDED:
        return _outlived(seen) or _release_claims(seen)
    if seen.children is None or _gone(seen):
        return [Requeue(BUSY_MS)]
    late = [
        DeleteChild(
            SPARK_API, kind, name, child["metadata"].get("uid", ""), "spec.timeoutSeconds is over"
        )
        for (kind, name), child in sorted(seen.children.items())
        if kind == "SparkApplication" and _overdue(seen, child)
    ]
    if late:
        return [*late, Requeue(BUSY_MS)]
    reason, message = _waits(seen)
    if reason:
        waited = has_waited(job.metadata.creation_timestamp, seen.now_ms)
        events = [EmitEvent("Warning", reason, message)] if waited and reason != _NOT_KNOWN else []
        return [*events, Requeue(BUSY_MS)]
    actions: list[Action] = []
    for node, brokers in _to_do(seen):
        assert seen.group is not None
        made = _made(seen, node, brokers)
        text = f"{job.spec.type.value} of {', '.join(brokers)} ({made['kind']})"
        actions += [ApplyChild(made, "it does not exist"), EmitEvent("Normal", "JobStarted", text)]
    return [*actions, Requeue(BUSY_MS)]


def _outlived(seen: JobSeen) -> list[Action]:
    """Delete ended Jobs that were kept as long as was asked. (Spark's go by themselves.)"""
    job, at = seen.job, seen.job.status.finished_at
    if not is_moment(at) or seen.now_ms < of_text(at) + job.spec.keep_seconds * 1000:
        return []
    return [
        DeleteChild(
            _JOB_API, kind, name, child["metadata"].get("uid", ""), "spec.keepSeconds is over"
        )
        for (kind, name), child in sorted((seen.children or {}).items())
        if kind == "Job" and "deletionTimestamp" not in child["metadata"]
    ]


def _release_claims(seen: JobSeen) -> list[Action]:
    """Delete ended objects whose pods hold a claim that is being deleted.

    A pod holds its mounted claim even after it has ended: a volume that is to be replaced would
    wait for as long as the job's log is kept. The job's findings are in the status.
    """
    actions: list[Action] = []
    for (kind, name), child in sorted((seen.children or {}).items()):
        held = sorted(
            claim.name
            for broker in brokers_of(child)
            if (claim := (seen.claims or {}).get(f"data-{broker}")) and claim.deleting
        )
        if held:
            api = SPARK_API if kind == "SparkApplication" else _JOB_API
            cause = f"{', '.join(held)} is being deleted, and its ended pod held it"
            uid = child["metadata"].get("uid", "")
            text = f"{kind} {name} removed: {cause}"
            actions += [
                DeleteChild(api, kind, name, uid, cause),
                EmitEvent("Normal", "JobRemoved", text),
            ]
    return actions


def _made(seen: JobSeen, node: str, brokers: tuple[str, ...]) -> Json:
    assert seen.group is not None
    if not _by_spark(seen):
        return job_object(seen.job, seen.group, seen.defaults, node, brokers)
    image, account = seen.defaults.spark_image, seen.defaults.spark_account
    made = spark_application(
        seen.job, seen.group, brokers, node, image=image, service_account=account
    )
    made["metadata"]["annotations"] = {BROKERS: ",".join(brokers)}
    return made


def _by_spark(seen: JobSeen) -> bool:
    """Whether to run as a SparkApplication: asked for, or possible with `auto`."""
    if seen.job.spec.engine is not JobEngine.AUTO:
        return seen.job.spec.engine is JobEngine.SPARK
    kinds = {kind for kind, _ in seen.children or {}}
    return "Job" not in kinds and not _no_spark(seen) and not _is_the_brokers(seen)


def _is_the_brokers(seen: JobSeen) -> bool:
    """Whether the requested image is the broker's, of whatever version: it has no Spark."""
    asked, group, known = seen.job.spec.image, seen.group, seen.defaults
    if not asked or asked == known.spark_image:
        return False
    brokers = (known.broker_image, (group.spec.image if group is not None else None) or "")
    return _repository(asked) in {_repository(image) for image in brokers}


def _repository(image: str) -> str:
    """Return an image without tag and digest."""
    host, slash, name = image.partition("@")[0].rpartition("/")
    return host + slash + name.partition(":")[0]


def _no_spark(seen: JobSeen) -> str:
    """Return why the job cannot run as a SparkApplication; "" = it can."""
    if not seen.spark:
        return "the cluster has no SparkApplication resource: install Kubeflow's Spark operator"
    if not (seen.job.spec.image or seen.defaults.spark_image):
        return "no image with Spark is configured: set spec.image"
    if seen.job.spec.live:
        return ""
    nodes = {pod.node for b in _wanted(seen) if (pod := (seen.brokers or {}).get(b)) is not None}
    if len(nodes) > 1 or (not nodes and len(_wanted(seen)) > 1):
        return "the volumes are on several nodes: name one broker in spec.brokers"
    return ""


def _overdue(seen: JobSeen, child: Json) -> bool:
    """Whether a SparkApplication is past its time: it does not end by itself then."""
    return _is_late(seen) and end_of_application(child, ()) is None


def _is_late(seen: JobSeen) -> bool:
    started_ms = seen.job.status.started_ms
    return (
        started_ms is not None and seen.now_ms - started_ms > seen.job.spec.timeout_seconds * 1000
    )


def _waits(seen: JobSeen) -> tuple[str, str]:
    """Return why no Job can be made: one word and a sentence; "" = nothing."""
    spec, group = seen.job.spec, seen.group
    if seen.others:
        text = f"{', '.join(seen.others)} of an earlier BrokerJob of this name is being deleted"
        return "EarlierJob", f"{text}: this one starts afterwards"
    if not seen.group_known:
        return _NOT_KNOWN, "the group's objects cannot be read"
    if group is None:
        return "NoSuchGroup", f"BrokerGroup {spec.group} does not exist in this namespace"
    if not group.status.epoch:
        return "NotOpened", f"group {spec.group} has not served yet: it has no data"
    if seen.brokers is None or seen.claims is None:
        return _NOT_KNOWN, "the group's pods and volumes cannot be listed"
    wanted = _wanted(seen)
    if not wanted:
        return "NoMaster", f"group {spec.group} has no master yet"
    if spec.live:
        some = any(b in seen.brokers for b in wanted)
        return ("", "") if some else ("NoBroker", f"no broker of group {spec.group} runs")
    missing = [b for b in wanted if f"data-{b}" not in seen.claims]
    if missing:
        return "NoVolume", f"no volume of {', '.join(missing)}: that broker has never run"
    if spec.type is JobType.REBUILD_INDEX:
        # Without a pod for a moment, a broker is back before the job ends.
        running = sorted(seen.brokers)
        if running or not group.spec.hibernated:
            which = f"{', '.join(running)} runs" if running else f"group {spec.group} may start"
            cause = "set spec.hibernated of the group, and unset it after the job"
            return "BrokerRuns", f"{which} and uses its index files: {cause}"
    if spec.engine is JobEngine.SPARK and (cause := _no_spark(seen)):
        return (
            "NoSpark",
            f"engine spark cannot run: {cause}, or set spec.engine to local in a new BrokerJob",
        )
    return "", ""


def _wanted(seen: JobSeen) -> tuple[str, ...]:
    """Return the chosen brokers, the master first."""
    spec, group = seen.job.spec, seen.group
    assert group is not None
    master = group.status.master
    if spec.brokers:
        named = spec.brokers
    elif spec.type is JobType.ARCHIVE and not spec.live:
        named = (master,) if master else ()
    else:
        named = group.brokers
    return tuple(sorted(named, key=lambda b: (b != master, b)))


def _to_do(seen: JobSeen) -> list[tuple[str, tuple[str, ...]]]:
    """Return nodes and their brokers for which no Job exists yet; node "": no pod runs."""
    if seen.job.spec.type is JobType.ARCHIVE and seen.children:
        return []  # an archive has one child, even if the master has changed since
    if seen.job.spec.live:
        return [("", _wanted(seen))]  # any node will do
    done = {b for child in (seen.children or {}).values() for b in brokers_of(child)}
    by_node: dict[tuple[str, str], list[str]] = {}
    for broker in _wanted(seen):
        if broker not in done:
            pod = (seen.brokers or {}).get(broker)
            node = "" if pod is None else pod.node
            # Only the scheduler knows the node of an unmounted volume: such a broker gets a Job.
            by_node.setdefault((node, "" if node else broker), []).append(broker)
    return [(node, tuple(brokers)) for (node, _), brokers in by_node.items()]


# ---- the result


def job_status(seen: JobSeen) -> Json:
    """Return the whole status, as JSON. The result of an ended job is never changed again."""
    old = seen.job.status
    if old.phase in _ENDED:
        return old.as_json()
    if seen.children is None or seen.pods is None:
        return _status(seen, old.phase, "NotListed", "the job's objects and pods cannot be listed")
    if seen.failures:
        first = seen.failures[0]
        return _status(seen, old.phase, first.reason, f"{first.what}: {first.message}")
    reason, message = _waits(seen)
    if gone := _gone(seen):
        if application_name(seen.job) in gone and _is_late(seen):
            text = f"{', '.join(gone)} was stopped: spec.timeoutSeconds is over"
            return _status(seen, JobPhase.FAILED, "DeadlineExceeded", text)
        text = f"{', '.join(gone)} was deleted before it ended"
        return _status(seen, JobPhase.FAILED, "Gone", text)
    if not seen.children:
        return _status(seen, JobPhase.PENDING, reason or "Starting", message)
    ends = {
        name: (end_of_application if kind == "SparkApplication" else end_of_job)(child, seen.pods)
        for (kind, name), child in sorted(seen.children.items())
    }
    going = [name for name, end in ends.items() if end is None]
    if going or (not reason and _to_do(seen)):
        waiting = [f"{p.name}: {p.waiting} {p.message}".strip() for p in seen.pods if p.waiting]
        waiting += [f"{name}: {cause}" for name in going if (cause := _not_submitted(seen, name))]
        text = "; ".join(waiting) or f"running: {', '.join(going) or 'more to start'}"
        return _status(seen, JobPhase.RUNNING, "Running", text)
    return _ended(seen, {name: end for name, end in ends.items() if end is not None})


def _gone(seen: JobSeen) -> list[str]:
    """Return children that existed, and do not any more."""
    return sorted(set(seen.job.status.children) - {name for _, name in seen.children or {}})


def _not_submitted(seen: JobSeen, name: str) -> str:
    """Return why an application does not start; "" = it is none, or it does."""
    state, text = state_of((seen.children or {}).get(("SparkApplication", name), {}))
    return text if state == "SUBMISSION_FAILED" else ""


def _ended(seen: JobSeen, ends: Mapping[str, End]) -> Json:
    failed = {n: e for n, e in ends.items() if e.exit_code not in VERDICTS}
    ranks = list(VERDICTS)
    codes = [e.exit_code for e in ends.values() if e.exit_code in VERDICTS]
    worst = max(codes, key=ranks.index, default=None)
    verdict = Verdict.UNKNOWN if worst is None else VERDICTS[worst]
    if failed:
        # A finding stays valid; what the failed ones would have found is not known.
        verdict = verdict if verdict is Verdict.INCONSISTENT else Verdict.UNKNOWN
        text = "; ".join(f"{n}: {_cause(e)}" for n, e in failed.items())
        code = next(iter(failed.values())).exit_code
        return _status(seen, JobPhase.FAILED, "Failed", text, code, verdict)
    text = "; ".join(f"{n}: {e.message}" for n, e in ends.items() if e.message)
    return _status(seen, JobPhase.SUCCEEDED, verdict.value, text, worst, verdict)


def _cause(end: End) -> str:
    if end.exit_code is None:
        return end.message
    parts = (end.message, _ENDS.get(end.reason) or _FAILED.get(end.exit_code, ""))
    return f"status {end.exit_code}: {'; '.join(p for p in parts if p) or 'see its log'}"


_CONSISTENT: Final = {
    Verdict.CLEAN: "True",
    Verdict.WARNINGS: "True",
    Verdict.INCONSISTENT: "False",
    Verdict.INCOMPLETE: "Unknown",
    Verdict.UNKNOWN: "Unknown",
}


def _status(
    seen: JobSeen,
    phase: JobPhase,
    reason: str,
    message: str,
    exit_code: int | None = None,
    verdict: Verdict = Verdict.UNKNOWN,
) -> Json:
    """Return the status with the condition Consistent, which is about the data.

    Once the job has ended also Complete or Failed, as a Kubernetes Job has (for `kubectl wait`).
    """
    job = seen.job
    states = {"Consistent": _CONSISTENT[verdict]}
    if phase in _ENDED:
        states["Complete" if phase is JobPhase.SUCCEEDED else "Failed"] = "True"
    conditions = tuple(_condition(seen, t, s, reason, message) for t, s in states.items())
    started_ms = job.status.started_ms or (seen.now_ms if seen.children else None)
    return BrokerJobStatus(
        observed_generation=job.metadata.generation,
        phase=phase,
        verdict=verdict,
        exit_code=exit_code,
        message=message[:1024],
        children=tuple(sorted(name for _, name in seen.children or {})) or job.status.children,
        started_ms=started_ms,
        started_at="" if started_ms is None else as_text(started_ms),
        finished_at=as_text(seen.now_ms) if phase in _ENDED else "",
        conditions=conditions,
    ).as_json()


def _condition(seen: JobSeen, kind: str, status: str, reason: str, message: str) -> Condition:
    before = next((c for c in seen.job.status.conditions if c.type == kind), None)
    since = before.last_transition_time if before is not None and before.status == status else ""
    return Condition.model_validate(
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:2048],
            "observedGeneration": seen.job.metadata.generation,
            "lastTransitionTime": since or as_text(seen.now_ms),
        }
    )
