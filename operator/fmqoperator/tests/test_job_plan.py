"""BrokerJobs at the edges: what is not started, not deleted, and how a try is reported."""

from dataclasses import replace
from typing import Any

import pytest

from fmqoperator.api.times import as_text
from fmqoperator.core.actions import DeleteChild, Requeue
from fmqoperator.core.jobs.plan import JobPod, JobSeen, job_status, plan_job
from fmqoperator.core.observation import Defaults, Failure
from fmqoperator.tests.job_kit import ARCHIVE, SPARKY, job, made, seen
from fmqoperator.tests.samples import DEFAULTS, group
from fmqoperator.tests.test_job_ends import after, application

LIVE = ARCHIVE | {"live": True}
SAME = ("n0", "n0")


def kinds(what: JobSeen) -> list[str]:
    return [child["kind"] for child in made(what)]


def reason(what: JobSeen) -> str:
    text: str = job_status(what)["conditions"][0]["reason"]
    return text


# ---- what is started
def test_job_that_is_being_deleted_starts_nothing() -> None:
    going = job().metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    assert plan_job(seen(job().model_copy(update={"metadata": going}))) == []


def test_job_waits_for_the_objects_of_a_namesake() -> None:
    what = seen(job(), others=("j1-g1-0",))
    assert (made(what), reason(what)) == ([], "EarlierJob")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "Starting"),
        ({"claims": None}, "NotKnown"),
        ({"pods": None}, "NotListed"),
        ({"group": group(status={"master": "", "epoch": 1})}, "NoMaster"),
    ],
)
def test_archive_starts_only_on_what_is_known(change: dict[str, Any], expected: str) -> None:
    what = seen(job(type="archive", archive=ARCHIVE), **change)
    assert reason(what) == expected
    assert bool(made(what)) == (expected in ("Starting", "NotListed"))


def test_job_of_a_group_not_looked_for_waits() -> None:
    assert reason(JobSeen(job(), 0, DEFAULTS, children={}, pods=())) == "NotKnown"


def test_archive_stays_one_job_under_another_master() -> None:
    what = seen(job(type="archive", archive=ARCHIVE))
    (child,) = made(what)
    there = {("Job", child["metadata"]["name"]): child}
    moved = group(status={"master": "g1-0", "epoch": 2})
    assert made(replace(what, children=there, group=moved)) == []


@pytest.mark.parametrize("nodes", [("n0", ""), ("", "n1")])
def test_live_archive_needs_one_broker_and_no_master(nodes: tuple[str, str]) -> None:
    what = seen(job(type="archive", archive=LIVE), nodes)
    assert kinds(what) == ["Job"]
    assert kinds(replace(what, group=group(status={"master": "", "epoch": 1}))) == ["Job"]


@pytest.mark.parametrize(
    ("brokers", "nodes", "expected"),
    [
        ([], ("", ""), ["Job", "Job"]),
        (["g1-0"], ("", ""), ["SparkApplication"]),
        (["g1-0"], ("n0", ""), ["SparkApplication"]),
    ],
)
def test_spark_runs_on_volumes_of_one_node(
    brokers: list[str], nodes: tuple[str, str], expected: list[str]
) -> None:
    spec: dict[str, Any] = {"brokers": brokers} if brokers else {}
    assert kinds(seen(job(**spec), nodes, spark=True, defaults=SPARKY)) == expected


def test_job_that_started_without_spark_goes_on_so() -> None:
    first, _ = made(seen(job()))
    there = {("Job", first["metadata"]["name"]): first}
    assert kinds(seen(job(), SAME, children=there, spark=True, defaults=SPARKY)) == ["Job"]


def test_image_with_spark_may_be_of_the_brokers_repository() -> None:
    known = Defaults(broker_image="fmq:1", spark_image="fmq:1-spark")
    assert kinds(seen(job(image="fmq:1-spark"), SAME, spark=True, defaults=known)) == [
        "SparkApplication"
    ]
    assert kinds(seen(job(image="fmq:2"), SAME, spark=True, defaults=known)) == ["Job"]


# ---- what is deleted
def late(what: JobSeen) -> JobSeen:
    """Return the look a moment after its time is over."""
    started = job(status=job_status(what), timeoutSeconds=60)
    return replace(what, job=started, now_ms=what.now_ms + 60_001)


def test_late_job_is_left_to_kubernetes() -> None:
    assert [type(a) for a in plan_job(late(after(seen(job(timeoutSeconds=60)))))] == [Requeue]


def test_application_that_has_ended_is_not_overdue() -> None:
    ended = application("COMPLETED")
    running = late(application("RUNNING"))
    assert [type(a) for a in plan_job(running)] == [DeleteChild, Requeue]
    assert [type(a) for a in plan_job(replace(running, children=ended.children))] == [Requeue]


def test_late_jobs_that_are_gone_were_deleted() -> None:
    gone = replace(late(after(seen(job(timeoutSeconds=60)))), children={})
    found = job_status(gone)
    assert "was deleted before it ended" in found["message"]
    assert found["children"] == ["j1-g1-0", "j1-g1-1"]


def test_ended_application_goes_by_itself() -> None:
    what = application("COMPLETED")
    ended = job(status=job_status(what), keepSeconds=60)
    assert plan_job(replace(what, job=ended, now_ms=what.now_ms + 60_000)) == []


# ---- the status
def test_running_job_has_its_start_and_its_objects() -> None:
    what = after(seen(job()))
    calm = JobPod("j1-g1-0-x", "j1-g1-0")
    first = job_status(replace(what, pods=(calm,)))
    assert first["message"] == "running: j1-g1-0, j1-g1-1"
    assert (first["observedGeneration"], first["startedAt"]) == (2, as_text(what.now_ms))
    later = replace(what, job=job(status=first), now_ms=what.now_ms + 60_000)
    assert job_status(later)["startedAt"] == first["startedAt"]
    (consistent,) = job_status(later)["conditions"]
    assert consistent["lastTransitionTime"] == as_text(what.now_ms)


def test_verdict_has_the_time_of_the_end() -> None:
    first = job_status(after(seen(job())))
    ended = replace(
        after(seen(job()), g1_0=2, g1_1=0), job=job(status=first), now_ms=1_900_000_000_000
    )
    times = {c["type"]: c["lastTransitionTime"] for c in job_status(ended)["conditions"]}
    assert times == dict.fromkeys(("Consistent", "Complete"), as_text(ended.now_ms))


def test_half_of_a_job_that_ended_is_not_its_end() -> None:
    what = after(seen(job()), g1_0=0, g1_1=0)
    half = replace(what, children=dict(list((what.children or {}).items())[:1]))
    assert job_status(half)["message"] == "running: more to start"
    assert job_status(replace(half, group=None))["phase"] == "Succeeded", "no more can start"


def test_long_message_is_shortened() -> None:
    what = seen(job(), failures=(Failure("Job j1", "Invalid", "x" * 5000),))
    found = job_status(what)
    assert (len(found["message"]), len(found["conditions"][0]["message"])) == (1024, 2048)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (64, "status 64: verdict (deep): 64; the command refused its arguments"),
        (69, "status 69: verdict (deep): 69; it could not start"),
        (70, "status 70: verdict (deep): 70"),
    ],
)
def test_failed_command_is_explained(code: int, words: str) -> None:
    found = job_status(after(seen(job(), SAME), g1_1=code))
    assert found["message"].startswith(f"j1-g1-1: {words}")


def test_job_without_an_exit_code_has_the_cause_alone() -> None:
    found = job_status(after(seen(job()), g1_0=0, g1_1="failed"))
    assert found["message"] == "j1-g1-1: Too late"


def test_message_names_the_jobs_that_left_one() -> None:
    what = after(seen(job()), g1_0=0, g1_1=0)
    pods = tuple(replace(p, message="" if p.job == "j1-g1-0" else "fine") for p in what.pods or ())
    assert job_status(replace(what, pods=pods))["message"] == "j1-g1-1: fine"


# ---- tries
def test_message_is_that_of_the_try_that_succeeded() -> None:
    what = after(seen(job(), SAME), g1_1=0)
    killed = JobPod("j1-g1-1-a", "j1-g1-1", 137, "killed")
    found = job_status(replace(what, pods=(killed, *(what.pods or ()))))
    assert found["message"] == "j1-g1-1: verdict (deep): 0"


def test_try_without_an_exit_code_hides_no_other() -> None:
    what = after(seen(job(), SAME), g1_1=70)
    evicted = JobPod("j1-g1-1-z", "j1-g1-1", over=True)
    found = job_status(replace(what, pods=(*(what.pods or ()), evicted)))
    assert found["exitCode"] == 70


def test_condition_that_does_not_hold_is_no_end() -> None:
    what = after(seen(job(), SAME), g1_1=70)
    (child,) = (what.children or {}).values()
    child["status"]["conditions"][0]["status"] = "False"
    assert job_status(what)["phase"] == "Running"


def test_application_without_an_exit_code_waits_for_no_pod() -> None:
    what = application("FAILED", "its driver was lost")
    ((_, name),) = what.children or {}
    found = job_status(replace(what, pods=(JobPod("driver", name),)))
    assert (found["phase"], found["message"]) == ("Failed", f"{name}: its driver was lost")
