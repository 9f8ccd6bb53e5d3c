"""BrokerJobs and their observations, for tests."""

from dataclasses import replace
from typing import Any

from fmqoperator.api.job import BrokerJob
from fmqoperator.core.actions import ApplyChild
from fmqoperator.core.jobs.plan import JobSeen, plan_job
from fmqoperator.core.observation import Claim, Defaults, Pod, PodPhase
from fmqoperator.tests.samples import group

ARCHIVE = {"topics": ["orders", "bills"], "claim": "lake"}
SPARKY = Defaults(broker_image="fmq-broker:test", spark_image="fmq-spark:test")


def job(status: Any = None, name: str = "j1", **spec: Any) -> BrokerJob:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "shop", "uid": "u-9", "generation": 2}
        | {"creationTimestamp": "2027-01-15T07:00:00Z"},
        "spec": {"type": "check", "group": "g1"} | spec,
    }
    return BrokerJob.model_validate(body | ({"status": status} if status else {}))


def seen(made: BrokerJob, nodes: Any = ("n0", "n1"), **more: Any) -> JobSeen:
    """Return a group of two brokers on these nodes ("" = not running); g1-1 is the master."""
    names = [f"g1-{at}" for at in range(len(nodes))]
    pods = {
        b: Pod(b, f"u-{b}", PodPhase.RUNNING, node=n)
        for b, n in zip(names, nodes, strict=True)
        if n
    }
    found = JobSeen(
        made,
        1_800_000_000_000,
        Defaults(broker_image="fmq-broker:test"),
        group(status={"master": "g1-1", "epoch": 1}),
        True,
        pods,
        {f"data-{b}": Claim(f"data-{b}") for b in names},
        {},
        pods=(),
    )
    return replace(found, **more)


def made(what: JobSeen) -> list[Any]:
    return [a.manifest for a in plan_job(what) if isinstance(a, ApplyChild)]


def container(child: Any) -> Any:
    (found,) = child["spec"]["template"]["spec"]["containers"]
    return found


def arguments(child: Any) -> str:
    return " ".join(container(child)["args"])
