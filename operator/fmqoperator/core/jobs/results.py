"""How a Job or a SparkApplication of a BrokerJob ended, from its status and its pods. Pure.

The two arrive separately, so either end may be observed first: the exit code and the last words
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
_TOLD: Final = "verdict ("
"""In the last words of a check, the only job that exits with 1 by itself."""


@dataclass(frozen=True, slots=True)
class JobPod:
    """A pod of one of the operator's Jobs, or of a SparkApplication."""

    name: str
    job: str  # whose end its end is: the Job's or application's name; "" of an executor
    exit_code: int | None = None  # of its container, once it has ended
    message: str = ""  # the end of its log, or why it waits
    waiting: str = ""
    over: bool = False  # it has ended, though maybe without an exit code: evicted, its node lost


@dataclass(frozen=True, slots=True)
class End:
    """How one of the children ended."""

    exit_code: int | None  # None: without one (a deadline, a pod that was taken away)
    message: str


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
    mine = [p for p in pods if p.job == job["metadata"]["name"]]
    # One that is stopped as its time is over may never end, if its node is away.
    if end.get("reason") != "DeadlineExceeded" and not _all_over(mine):
        return None
    if "Complete" in found:
        return End(0, next((p.message for p in mine if p.exit_code == 0), ""))
    return _with_verdict(_by_pods(mine, end.get("message", "")))


def _all_over(pods: list[JobPod]) -> bool:
    return all(p.over or p.exit_code is not None for p in pods)


def end_of_application(application: Json, pods: tuple[JobPod, ...]) -> End | None:
    """Return the end of an application; None: it goes on.

    A submission that failed is tried again, or becomes FAILED.
    """
    state, said = state_of(application)
    if state not in ("COMPLETED", "FAILED"):
        return None
    found = _EXIT_CODE.search(said)
    code = 0 if state == "COMPLETED" else int(found[1]) if found else None
    mine = [p for p in pods if p.job == application["metadata"]["name"]]
    if code is not None and not _all_over(mine):
        return None  # its driver has ended: what we have seen of its pod is older than that
    end = _by_pods(mine, said)
    return _with_verdict(End(code, said) if end.exit_code is None and code is not None else end)


def state_of(application: Json) -> tuple[str, str]:
    """Return a SparkApplication's state, and why it failed."""
    found = application.get("status", {}).get("applicationState", {})
    return found.get("state", ""), found.get("errorMessage", "")


def _by_pods(mine: list[JobPod], said: str) -> End:
    """Return the end of the try that came to a verdict; else of the last try."""
    codes = [p for p in mine if p.exit_code is not None]
    best = next((p for p in codes if p.exit_code in VERDICTS), codes[-1] if codes else None)
    if best is None:
        return End(None, said or "it failed without an exit code")
    return End(best.exit_code, best.message or said)


def _with_verdict(end: End) -> End:
    """Refuse exit code 1 as a verdict unless a check reported it.

    Python that dies exits with 1, too, as Java does: then warnings are not what it found.
    """
    if end.exit_code == 1 and _TOLD not in end.message:
        return End(None, f"status 1 without a verdict: {end.message}")
    return end
