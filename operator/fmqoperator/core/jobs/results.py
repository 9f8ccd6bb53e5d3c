"""How a Job or a SparkApplication of a BrokerJob ended, from its status and its pods. Pure.

The two arrive separately, so either end may be observed first: the exit code and the last lines
come from the pods, and are waited for as long as they may still come.
"""

import re
from dataclasses import dataclass
from typing import Final

from fmqoperator.api.base import Json
from fmqoperator.api.job import Verdict

VERDICTS: Final = {
    0: Verdict.CLEAN,
    1: Verdict.WARNINGS,
    3: Verdict.INCOMPLETE,
    2: Verdict.INCONSISTENT,
}
"""By exit code, the best first."""

_EXIT_CODE: Final = re.compile(r"\bExitCode: (\d+)")
"""In the message of Spark's operator about a driver that failed."""
_VERDICT_MARK: Final = "verdict ("
"""In the last lines of a check, the only job that exits with 1 by itself."""


@dataclass(frozen=True, slots=True)
class JobPod:
    """A pod of one of the operator's Jobs, or of a SparkApplication."""

    name: str
    job: str  # the Job or application that ends with the pod; "" of an executor
    exit_code: int | None = None  # the container's, once it has ended
    message: str = ""  # the last lines of the log, or why the pod waits
    waiting: str = ""
    over: bool = False  # it has ended, though maybe without an exit code: evicted, its node lost
    end_reason: str = ""  # of the container's end, as Kubernetes names it: OOMKilled, Error, ...


@dataclass(frozen=True, slots=True)
class End:
    """How one of the children ended."""

    exit_code: int | None  # None: without one (a deadline, a pod that was taken away)
    message: str
    reason: str = ""  # of the container's end, as Kubernetes names it


def end_of_job(job: Json, pods: tuple[JobPod, ...]) -> End | None:
    """Return the end of a Job; None: it goes on, or its pods were observed before its end."""
    found = {
        c["type"]: c
        for c in job.get("status", {}).get("conditions") or ()
        if c.get("status") == "True"
    }
    end = found.get("Complete") or found.get("Failed")
    if end is None:
        return None
    own_pods = [p for p in pods if p.job == job["metadata"]["name"]]
    # One that is stopped as its time is over may never end, if its node is away.
    if end.get("reason") != "DeadlineExceeded" and not _all_over(own_pods):
        return None
    if "Complete" in found:
        return End(0, next((p.message for p in own_pods if p.exit_code == 0), ""))
    return _with_verdict(_by_pods(own_pods, end.get("message", "")))


def _all_over(pods: list[JobPod]) -> bool:
    return all(p.over or p.exit_code is not None for p in pods)


def end_of_application(application: Json, pods: tuple[JobPod, ...]) -> End | None:
    """Return the end of an application; None: it goes on.

    A submission that failed is tried again, or becomes FAILED.
    """
    state, error = state_of(application)
    if state not in ("COMPLETED", "FAILED"):
        return None
    found = _EXIT_CODE.search(error)
    code = 0 if state == "COMPLETED" else int(found[1]) if found else None
    own_pods = [p for p in pods if p.job == application["metadata"]["name"]]
    if code is not None and not _all_over(own_pods):
        return None  # its driver has ended: the observed pod is older
    end = _by_pods(own_pods, error)
    return _with_verdict(End(code, error) if end.exit_code is None and code is not None else end)


def state_of(application: Json) -> tuple[str, str]:
    """Return a SparkApplication's state, and why it failed."""
    found = application.get("status", {}).get("applicationState", {})
    return found.get("state", ""), found.get("errorMessage", "")


def _by_pods(own_pods: list[JobPod], error: str) -> End:
    """Return the end of the try that came to a verdict; else of the last try."""
    codes = [p for p in own_pods if p.exit_code is not None]
    best = next((p for p in codes if p.exit_code in VERDICTS), codes[-1] if codes else None)
    if best is None:
        return End(None, error or "it failed without an exit code")
    return End(best.exit_code, best.message or error, best.end_reason)


def _with_verdict(end: End) -> End:
    """Refuse exit code 1 as a verdict unless a check reported it.

    Python that dies exits with 1, too, as Java does: then warnings are not what it found.
    """
    if end.exit_code == 1 and _VERDICT_MARK not in end.message:
        return End(None, f"status 1 without a verdict: {end.message}")
    return end
