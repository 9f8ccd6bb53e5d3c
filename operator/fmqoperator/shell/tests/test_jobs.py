"""Rounds of BrokerJobs: what the API server is asked, and what is known without it."""

from typing import Any, cast

from fmqoperator.core.observation import Claim, Defaults, Pod, PodPhase
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.events import Events
from fmqoperator.shell.jobs import Jobs
from fmqoperator.shell.keeper import Key
from fmqoperator.shell.kube import Kube, KubeError, Ref
from fmqoperator.tests.samples import group

KEY = Key("BrokerJob", "shop", "j1")
BROKERS = ("g1-0", "g1-1")
BODY = {
    "metadata": {"name": "j1", "namespace": "shop", "uid": "u-9", "generation": 1},
    "spec": {"type": "check", "group": "g1", "engine": "spark"},
}


class FakeCache:
    """A group on one node, and Spark's operator."""

    views = True
    knows_spark = True

    def __init__(self, jobs: Any = (), pods: Any = ()) -> None:
        self.found, self.pods_found = list(jobs), list(pods)

    def jobs(self, key: Any) -> list[Any]:
        return self.found

    def job_pods(self, key: Any) -> list[Any]:
        return self.pods_found

    def group(self, key: Any) -> Any:
        return group(status={"master": "g1-0", "epoch": 1}).model_dump(mode="json", by_alias=True)

    def pods(self, key: Any) -> Any:
        return {b: Pod(b, f"u-{b}", PodPhase.RUNNING, node="n0") for b in BROKERS}

    def claims(self, key: Any) -> Any:
        return {f"data-{b}": Claim(f"data-{b}") for b in BROKERS}


class FakeKube:
    """Applied objects exist; the test sets their status."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}
        self.answers = True

    async def labelled(self, kind: str, namespace: str, label: str, value: str) -> list[Any]:
        assert (kind, namespace, label, value) == ("SparkApplication", "shop", "fmq.io/job", "j1")
        if not self.answers:
            raise KubeError(404, "NotFound", "the server could not find the requested resource")
        return list(self.there.values())

    async def apply(self, ref: Ref, body: Any) -> Any:
        self.there[ref.name] = body


class FakeEvents:
    async def emit(self, *_: Any) -> None: ...

    def round_ended(self, _: Any) -> None: ...


async def test_applications_are_found_though_kopf_watches_none() -> None:
    """kopf looks once for a new kind, and perhaps before the API server serves it."""
    kube = FakeKube()
    defaults = Defaults(broker_image="b:1", spark_image="s:1")
    jobs = Jobs(cast(Kube, kube), cast(Cache, FakeCache()), cast(Events, FakeEvents()), defaults)

    async def round_() -> tuple[str, str]:
        found = (await jobs.round(KEY, BODY, (), lambda: None)).status
        assert found is not None, found
        return found["phase"], found["conditions"][0]["reason"]

    kube.answers = False
    assert await round_() == ("Pending", "NotListed")
    assert kube.there == {}
    kube.answers = True
    assert (await round_())[0] == "Pending"
    (made,) = kube.there.values()
    assert await round_() == ("Running", "Running")
    assert list(kube.there.values()) == [made]
    made["status"] = {"applicationState": {"state": "COMPLETED"}}
    assert await round_() == ("Succeeded", "Clean")


async def test_earlier_job_of_the_same_name_is_not_reused() -> None:
    """Deleted and recreated for a new verdict: the garbage collector deletes the old Job later."""
    cache, kube = FakeCache(), FakeKube()
    cache.knows_spark = False
    body: Any = {**BODY, "spec": {"type": "check", "group": "g1", "engine": "local"}}
    jobs = Jobs(cast(Kube, kube), cast(Cache, cache), cast(Events, FakeEvents()), Defaults("b:1"))

    async def round_() -> Any:
        return (await jobs.round(KEY, body, (), lambda: None)).status

    await round_()
    (made,) = kube.there.values()
    owner = {"batch.kubernetes.io/controller-uid": "o"}
    labels = owner | {"batch.kubernetes.io/job-name": "j1-g1-0", "fmq.io/job": "j1"}
    state = {"terminated": {"exitCode": 2, "message": "verdict (deep): 9 findings"}}
    old = {
        "metadata": {
            "name": "j1-x",
            "labels": labels | {"batch.kubernetes.io/controller-uid": "o"},
        },
        "status": {"phase": "Failed", "containerStatuses": [{"state": state}]},
    }
    ended = {"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}
    before = {"metadata": made["metadata"] | {"uid": "o", "ownerReferences": [{"uid": "u-1"}]}}
    kube.there.clear()
    cache.found, cache.pods_found = [before | {"status": ended}], [old]
    found = await round_()
    assert (found["phase"], found["verdict"]) == ("Pending", "Unknown")
    assert found["conditions"][0]["reason"] == "EarlierJob"
    assert kube.there == {}, "its place is not free yet"
    cache.found = []
    await round_()
    (again,) = kube.there.values()
    again["metadata"]["uid"] = "n"
    again["status"] = ended
    cache.found = [again]
    found = await round_()
    assert found["verdict"] == "Unknown", "the old pod goes last, and is not of this Job"
