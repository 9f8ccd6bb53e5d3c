"""Prometheus metrics of each BrokerGroup, of topics and jobs, from their status. Pure.

They report what `kubectl get bg` shows: so there is an alert, too, for a group of which no broker
is there to be scraped. Labels are the brokers' own (`cluster`, `group`): rules join the two. Of
several resources of one name in a cluster, of which one counts, one sample is reported: Prometheus
takes no two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple

from fmqoperator.api.job import JobPhase, JobType
from fmqoperator.api.status import Access, Phase

_GROUP: Final = ("cluster", "group")
_SERVES: Final = {
    "read": frozenset({Access.FULL.value, Access.READ.value}),
    "write": frozenset({Access.FULL.value, Access.WRITE.value}),
}
_AS_ASKED: Final = frozenset(
    phase.value for phase in (Phase.PAUSED, Phase.HIBERNATING, Phase.HIBERNATED, Phase.DELETING)
)
"""Phases that are not ready, and for which no person is to be woken."""


class Gauge(NamedTuple):
    """One family: each sample is the label values, and a number."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: list[tuple[tuple[str, ...], float]]


def of_groups(bodies: Iterable[Mapping[str, Any]]) -> Iterator[Gauge]:
    """Yield the gauges of BrokerGroups. What is not known (a condition `Unknown`) has no sample."""
    wanted = Gauge("brokers", "Declared brokers of the group", _GROUP, [])
    ready = Gauge("ready_brokers", "Brokers of the group whose pod is ready", _GROUP, [])
    serves = Gauge(
        "serves",
        "1 if the group serves that, by its ACCESS; once it was opened",
        (*_GROUP, "operation"),
        [],
    )
    met = Gauge("condition", "1 if the status condition is True", (*_GROUP, "type"), [])
    known = set[tuple[str, str]]()
    for body in sorted(bodies, key=_never_opened):
        meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        of = _labels(body)
        if of in known:
            continue  # its name is taken by the one before
        known.add(of)
        asleep = bool(spec.get("hibernated"))
        wanted.samples.append((of, 0.0 if asleep else float(spec.get("replicas", 0))))
        ready.samples.append((of, float(status.get("readyReplicas", 0))))
        if status.get("epoch") and not asleep and not meta.get("deletionTimestamp"):
            access = None if _unheard(status) else status.get("access")
            serves.samples.extend(
                ((*of, w), float(access in serving)) for w, serving in _SERVES.items()
            )
        for condition in status.get("conditions") or ():
            kind, value = condition["type"], condition["status"]
            readable = condition.get("reason") != "Invalid"
            as_asked = kind == "Ready" and readable and status.get("phase") in _AS_ASKED
            if value in ("True", "False") and not as_asked:
                met.samples.append(((*of, kind), float(value == "True")))
    for gauge in (wanted, ready, serves, met):
        yield gauge._replace(name=f"fmq_operator_group_{gauge.name}")


def of_neglect(groups: Iterable[tuple[Mapping[str, Any], float]]) -> Gauge:
    """Return how long each group has been without a round in which nothing failed.

    A group that is paused, and of which nothing is expected, has no sample, nor has one being
    deleted.
    """
    found: dict[tuple[str, ...], float] = {}
    for body, seconds in groups:
        paused = (body.get("spec") or {}).get("paused")
        if not paused and not body["metadata"].get("deletionTimestamp"):
            found[_labels(body)] = max(seconds, found.get(_labels(body), 0.0))
    samples = list(found.items())
    text = "Since a round of the group in which nothing failed"
    return Gauge("fmq_operator_group_unreconciled_seconds", text, _GROUP, samples)


def _never_opened(body: Mapping[str, Any]) -> bool:
    return not (body.get("status") or {}).get("epoch")


def _labels(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the labels cluster and group, as the brokers name them."""
    meta = body["metadata"]
    return (str((body.get("spec") or {}).get("cluster") or meta["namespace"]), str(meta["name"]))


def _unheard(status: Mapping[str, Any]) -> bool:
    """Whether neither ZooKeeper nor the server could be asked: ACCESS is what was known last."""
    known = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return known.get("ReadAvailable") == "Unknown"


def of_jobs(bodies: Iterable[Mapping[str, Any]]) -> Gauge:
    """Return how many BrokerJobs of each type are in each phase; 0 where there is none."""
    count = Counter(
        (
            str((body.get("spec") or {}).get("type", "")),
            str((body.get("status") or {}).get("phase") or JobPhase.PENDING.value),
        )
        for body in bodies
    )
    every = [(job.value, phase.value) for job, phase in product(JobType, JobPhase)]
    samples: list[tuple[tuple[str, ...], float]] = [(of, float(count[of])) for of in every]
    name, text = "fmq_operator_jobs_in_phase", "BrokerJobs of a type that are in a phase"
    return Gauge(name, text, ("type", "phase"), samples)


def of_failed_jobs(bodies: Iterable[Mapping[str, Any]]) -> Gauge:
    """Return whether each BrokerJob came to no verdict, until its resource is deleted."""
    samples = [
        (_job(body), float((body.get("status") or {}).get("phase") == JobPhase.FAILED.value))
        for body in bodies
    ]
    name, text = "fmq_operator_job_failed", "1 if a BrokerJob failed"
    return Gauge(name, text, ("job_namespace", "group", "broker_job"), samples)


def _job(body: Mapping[str, Any]) -> tuple[str, ...]:
    meta, spec = body["metadata"], body.get("spec") or {}
    return (str(meta["namespace"]), str(spec.get("group", "")), str(meta["name"]))


def of_topics(bodies: Iterable[Mapping[str, Any]]) -> Gauge:
    """Return whether each Topic is as declared, where known; no if one of several is not."""
    found: dict[tuple[str, ...], float] = {}
    for body in bodies:
        for condition in (body.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Ready" and condition["status"] in ("True", "False"):
                so = float(condition["status"] == "True")
                found[_topic(body)] = min(so, found.get(_topic(body), 1.0))
    samples = list(found.items())
    name, text = "fmq_operator_topic_ready", "1 if a Topic is as declared"
    return Gauge(name, text, ("cluster", "topic"), samples)


def _topic(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels cluster and topic, as the brokers name them."""
    meta, spec = body["metadata"], body.get("spec") or {}
    return (str(spec.get("cluster") or meta["namespace"]), str(spec.get("name") or meta["name"]))
