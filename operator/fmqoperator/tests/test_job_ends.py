"""BrokerJobs: the two verdicts: it ran, and the data is consistent."""

from dataclasses import replace
from typing import Any

import pytest

from fmqoperator.core.actions import DeleteChild, EmitEvent, Requeue
from fmqoperator.core.jobs.objects import brokers_of
from fmqoperator.core.jobs.plan import JobPod, JobSeen, job_status, plan_job
from fmqoperator.core.observation import Claim, Failure
from fmqoperator.tests.job_kit import SPARKY, job, made, seen

# ---- the result


def after(what: JobSeen, **ends: Any) -> JobSeen:
    """All children exist; `ends` by broker: an exit code, "failed", or nothing yet."""
    children, pods = dict(what.children or {}), []
    for child in made(what):
        name, broker = child["metadata"]["name"], brokers_of(child)[0]
        end = ends.get(broker.replace("-", "_"))
        children[child["kind"], name] = child
        if end is None:
            continue
        kind = "Complete" if end == 0 else "Failed"
        child["status"] = {"conditions": [{"type": kind, "status": "True", "message": "Too late"}]}
        if end != "failed":
            pods.append(JobPod(f"{name}-x", name, end, f"verdict (deep): {end}"))
    return replace(what, children=children, pods=tuple(pods))


def verdict(what: JobSeen) -> tuple[str, str, int | None, str]:
    found = job_status(what)
    condition = found["conditions"][0]
    return found["phase"], found["verdict"], found.get("exitCode"), condition["status"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (0, 0, ("Succeeded", "Clean", 0, "True")),
        (0, 1, ("Succeeded", "Warnings", 1, "True")),
        (1, 3, ("Succeeded", "Incomplete", 3, "Unknown")),
        (3, 2, ("Succeeded", "Inconsistent", 2, "False")),
        (2, 0, ("Succeeded", "Inconsistent", 2, "False")),
        (0, 69, ("Failed", "Unknown", 69, "Unknown")),
        (2, 69, ("Failed", "Inconsistent", 69, "False")),
        (0, "failed", ("Failed", "Unknown", None, "Unknown")),
        (0, None, ("Running", "Unknown", None, "Unknown")),
        (None, 2, ("Running", "Unknown", None, "Unknown")),
    ],
)
def test_two_verdicts(first: Any, second: Any, expected: Any) -> None:
    assert verdict(after(seen(job()), g1_0=first, g1_1=second)) == expected


def test_python_that_dies_with_1_found_no_warnings() -> None:
    ended = after(seen(job(), nodes=("n0", "n0")), g1_1=1)
    (pod,) = ended.pods or ()
    died = replace(ended, pods=(replace(pod, message="Traceback: no such module"),))
    assert verdict(ended)[:2] == ("Succeeded", "Warnings")
    assert verdict(died)[:2] == ("Failed", "Unknown")
    assert "status 1 without a verdict: Traceback" in job_status(died)["message"]


def test_attempt_with_a_verdict_counts_among_several() -> None:
    what = after(seen(job(), nodes=("n0", "n0")), g1_1=2)
    crashed = JobPod("j1-g1-1-a", "j1-g1-1", 137)
    assert verdict(replace(what, pods=(crashed, *(what.pods or ()))))[1] == "Inconsistent"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("OOMKilled", "status 137: Kubernetes reports OOMKilled: raise spec.resources.limits.mem"),
        ("Error", "status 137: it was killed, but not for its memory limit: it was deleted or"),
    ],
)
def test_killed_job_then_kubernetes_reason_is_given(reason: str, words: str) -> None:
    ended = after(seen(job(), nodes=("n0", "n0")), g1_1=137)
    (pod,) = ended.pods or ()
    killed = replace(ended, pods=(replace(pod, message="", end_reason=reason),))
    (child,) = (killed.children or {}).values()
    child["status"]["conditions"][0]["message"] = ""
    assert words in job_status(killed)["message"]


def test_clean_job_reports_its_verdict_too() -> None:
    assert job_status(after(seen(job(), nodes=("n0", "n0")), g1_1=0))["message"] == (
        "j1-g1-1: verdict (deep): 0"
    )


@pytest.mark.parametrize("end", [0, 2])
def test_job_ended_before_its_pod_is_seen_then_status_waits(end: int) -> None:
    """Jobs and pods are watched separately: without its pod's exit code an end looks failed."""
    ended = after(seen(job(), nodes=("n0", "n0")), g1_1=end)
    (pod,) = ended.pods or ()
    late = replace(ended, pods=(replace(pod, exit_code=None, message=""),))
    assert verdict(late) == ("Running", "Unknown", None, "Unknown")
    evicted = replace(late, pods=(replace(pod, exit_code=None, message="", over=True),))
    assert job_status(evicted)["phase"] == ("Succeeded" if end == 0 else "Failed")
    (child,) = (late.children or {}).values()
    child["status"]["conditions"][0]["reason"] = "DeadlineExceeded"
    assert job_status(late)["phase"] == ("Succeeded" if end == 0 else "Failed")


def test_started_job_is_not_started_again_when_pods_move() -> None:
    what = after(seen(job()))
    assert [type(a) for a in plan_job(what)] == [Requeue]
    moved = replace(what, brokers={b: replace(p, node="n9") for b, p in what.brokers.items()})  # type: ignore[union-attr]
    assert [type(a) for a in plan_job(moved)] == [Requeue]


def test_partly_created_job_is_completed() -> None:
    what = after(seen(job()))
    half = replace(what, children=dict(list((what.children or {}).items())[:1]))
    assert [brokers_of(c) for c in made(half)] == [("g1-0",)]
    assert job_status(half)["phase"] == "Running"


def test_ended_job_releases_a_claim_that_is_being_deleted() -> None:
    """An ended pod still holds it, and a slave's volume could not be replaced."""
    ended = {"phase": "Succeeded", "verdict": "Clean", "children": ["j1-g1-0", "j1-g1-1"]}
    found = made(seen(job()))
    for child in found:
        child["metadata"]["uid"] = f"u-{child['metadata']['name']}"
    children = {("Job", child["metadata"]["name"]): child for child in found}
    claims = {"data-g1-0": Claim("data-g1-0"), "data-g1-1": Claim("data-g1-1", deleting=True)}
    (removed, event) = plan_job(seen(job(ended), children=children, claims=claims))
    cause = "data-g1-1 is being deleted, and its ended pod held it"
    assert removed == DeleteChild("batch/v1", "Job", "j1-g1-1", "u-j1-g1-1", cause)
    assert event == EmitEvent("Normal", "JobRemoved", f"Job j1-g1-1 removed: {cause}")
    claims["data-g1-1"] = Claim("data-g1-1")
    assert plan_job(seen(job(ended), children=children, claims=claims)) == []
    for unknown in (dict[Any, Any](), None):
        assert plan_job(seen(job(ended), children=unknown, claims=claims)) == []
        assert plan_job(seen(job(ended), children=children, claims=unknown)) == []


def test_early_results_are_kept_until_the_last_job_ends() -> None:
    """A job that ends early must not lose its verdict while another one is running."""
    what = after(seen(job(timeoutSeconds=7200, keepSeconds=60)), g1_0=2, g1_1=0)
    for child in (what.children or {}).values():
        limits = child["spec"]
        assert limits["ttlSecondsAfterFinished"] >= limits["activeDeadlineSeconds"] + 60
    ended = job(status=job_status(what), keepSeconds=60)
    kept = replace(what, job=ended, now_ms=what.now_ms + 59_000)
    assert plan_job(kept) == []
    over = plan_job(replace(kept, now_ms=what.now_ms + 60_000))
    assert [(a.kind, a.name) for a in over if isinstance(a, DeleteChild)] == [
        ("Job", "j1-g1-0"),
        ("Job", "j1-g1-1"),
    ]
    going = {of: c | {"metadata": c["metadata"] | {"deletionTimestamp": "now"}}
             for of, c in (kept.children or {}).items()}  # fmt: skip
    assert plan_job(replace(kept, now_ms=what.now_ms + 60_000, children=going)) == []
    assert plan_job(replace(kept, now_ms=what.now_ms + 60_000, children=None)) == []
    written = job(status=job_status(what) | {"finishedAt": "noon"}, keepSeconds=60)  # by hand
    assert plan_job(replace(kept, job=written, now_ms=what.now_ms + 60_000)) == []


def test_running_job_is_not_deleted_with_its_claim() -> None:
    found = made(seen(job()))
    children = {("Job", child["metadata"]["name"]): child for child in found}
    claims = {f"data-{b}": Claim(f"data-{b}", deleting=True) for b in ("g1-0", "g1-1")}
    running = job({"phase": "Running", "children": sorted(name for _, name in children)})
    assert plan_job(seen(running, children=children, claims=claims)) == [Requeue(3000)]


def test_ended_job_keeps_its_reported_status() -> None:
    ended = job_status(after(seen(job()), g1_0=0, g1_1=2))
    later = seen(job(status=ended), children={}, now_ms=1_900_000_000_000)
    assert plan_job(later) == []
    assert job_status(later) == ended


def test_deleted_jobs_are_reported_and_not_recreated() -> None:
    started = job_status(after(seen(job())))
    assert started["phase"] == "Running"
    gone = seen(job(status=started))
    assert made(gone) == []
    assert verdict(gone)[0] == "Failed"
    one = dict(list((after(seen(job())).children or {}).items())[:1])
    assert made(replace(gone, children=one)) == []
    assert verdict(replace(gone, children=one))[0] == "Failed"
    assert "was deleted before it ended" in job_status(gone)["message"]


def test_waiting_pod_and_failed_action_are_reported() -> None:
    what = after(seen(job()))
    waiting = JobPod("j1-g1-0-x", "j1-g1-0", waiting="Unschedulable", message="no node fits")
    assert "Unschedulable no node fits" in job_status(replace(what, pods=(waiting,)))["message"]
    failed = replace(what, failures=(Failure("Job j1-g1-0", "Forbidden", "may not create"),))
    assert job_status(failed)["conditions"][0]["reason"] == "Forbidden"


def application(state: str, error: str = "driver failed") -> JobSeen:
    what = seen(job(timeoutSeconds=60), ("n0", "n0"), spark=True, defaults=SPARKY)
    (child,) = made(what)
    child["status"] = {"applicationState": {"state": state, "errorMessage": error}}
    child["metadata"]["uid"] = "u-app"
    return replace(what, children={("SparkApplication", child["metadata"]["name"]): child})


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("COMPLETED", None, ("Succeeded", "Clean", 0, "True")),
        ("FAILED", 2, ("Succeeded", "Inconsistent", 2, "False")),
        ("FAILED", None, ("Failed", "Unknown", None, "Unknown")),
        ("SUBMISSION_FAILED", None, ("Running", "Unknown", None, "Unknown")),
        ("FAILING", 2, ("Running", "Unknown", None, "Unknown")),
        ("RUNNING", None, ("Running", "Unknown", None, "Unknown")),
        ("", None, ("Running", "Unknown", None, "Unknown")),
    ],
)
def test_applications(state: str, code: int | None, expected: Any) -> None:
    what = application(state)
    ((_, name),) = what.children or {}
    pods = () if code is None else (JobPod("driver", name, code),)
    assert verdict(replace(what, pods=pods)) == expected


@pytest.mark.parametrize("code", [0, 2])
def test_drivers_termination_message_is_waited_for(code: int) -> None:
    """The ends of the application and of the pod may be observed in either order."""
    expected = "driver container failed with ExitCode: 2, Reason: Error"
    what = application("FAILED", expected) if code else application("COMPLETED", "")
    ((_, name),) = what.children or {}
    ran = ("Succeeded", "Inconsistent", 2, "False") if code else ("Succeeded", "Clean", 0, "True")
    old, new = JobPod("driver", name), JobPod("driver", name, code, "2 replica(s)")
    executor = JobPod("executor", "", None)
    assert verdict(replace(what, pods=(old, executor)))[0] == "Running"
    seen_it = replace(what, pods=(executor, new))
    assert verdict(seen_it) == ran
    assert "2 replica(s)" in job_status(seen_it)["message"]
    assert verdict(replace(what, pods=())) == ran  # its pod was deleted


@pytest.mark.parametrize("known", [True, False])
def test_a_driver_that_dies_with_1_found_no_warnings(known: bool) -> None:
    error = "driver container failed with ExitCode: 1, Reason: Error"
    what = application("FAILED", error)
    ((_, name),) = what.children or {}
    died = replace(what, pods=(JobPod("driver", name, 1),) if known else ())
    assert verdict(died) == ("Failed", "Unknown", None, "Unknown")
    assert error in job_status(died)["message"]
    warned = replace(what, pods=(JobPod("driver", name, 1, "verdict (deep): warnings; 1 rep"),))
    assert verdict(warned) == ("Succeeded", "Warnings", 1, "True")


def test_reason_for_a_failed_submission_is_reported() -> None:
    what = application("SUBMISSION_FAILED", "no such account")
    assert "no such account" in job_status(what)["message"]


def test_an_application_is_ended_when_its_time_is_over() -> None:
    what = application("RUNNING")
    started = job(status=job_status(what), timeoutSeconds=60)
    on_time = replace(what, job=started, now_ms=what.now_ms + 60_000)
    assert [type(a) for a in plan_job(on_time)] == [Requeue]
    late = replace(on_time, now_ms=what.now_ms + 60_001)
    (action, _) = plan_job(late)
    assert isinstance(action, DeleteChild)
    assert (action.kind, action.uid) == ("SparkApplication", "u-app")
    assert plan_job(replace(late, group=None))[0] == action, "also when its group was deleted"
    gone = replace(late, children={})
    assert verdict(gone)[0] == "Failed"
    assert "spec.timeoutSeconds is over" in job_status(gone)["message"]
    early = replace(on_time, children={})
    assert "was deleted before it ended" in job_status(early)["message"]
    assert plan_job(replace(gone, job=job(status=job_status(gone)))) == []


@pytest.mark.parametrize(("code", "kind"), [(0, "Complete"), (2, "Complete"), (70, "Failed")])
def test_a_job_that_ended_can_be_waited_for(code: int, kind: str) -> None:
    """As `kubectl wait --for=condition=Complete` does for a Job of Kubernetes."""
    started = seen(job(), ("n0", "n0"))
    assert [c["type"] for c in job_status(started)["conditions"]] == ["Consistent"]
    ended = job_status(after(started, g1_1=code))
    conditions = {c["type"]: c["status"] for c in ended["conditions"]}
    assert conditions.keys() == {"Consistent", kind}
    assert conditions[kind] == "True"
