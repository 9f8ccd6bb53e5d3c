"""How long reads are away when a master dies or its pod is deleted; KILLS=20 for the figures."""

import os
import statistics
import time
from collections.abc import Callable

import pytest

from e2e.events import Ending, FaultKind
from e2e.kind.groups import Group
from e2e.kind.hurting import restarts, signal_to
from e2e.kind.story import Report, Story, story
from e2e.kind.tools import kubectl, until
from fmqclient.dev.verdict import outages

pytestmark = [pytest.mark.kind, pytest.mark.timeout(3600)]

Told = Callable[[str, Ending], None]
KILLS = int(os.environ.get("KILLS", "3"))


def test_reads_come_back_after_every_kill(pair: Group, report: Report) -> None:
    """kill -9 of the master's process; then its pod is made anew, or kubelet would hold it back
    for longer after each. What the group's status says of it is what the clients saw."""
    times_ms: list[tuple[float, float]] = []
    said_ms: list[int] = []
    with story(pair, report, f"kill -9, {KILLS} times", FaultKind.KILL) as told:
        for _ in range(KILLS):
            from_ms = time.monotonic() * 1000
            told.fired("g1-0")
            _kill(pair, told.down)
            said_ms.append(until(lambda: _away_ms(pair), "the group says who reads now"))
            _renew(pair, told.down)
            until(lambda: pair.status["master"] == "g1-0", "it is master again")
            pair.wait_ready()
            times_ms.append((from_ms, time.monotonic() * 1000))
        told.healed()
    away_ms = _tell(report, f"kill -9, {KILLS} times", told, times_ms)
    wrong_s = [f"{(said - away) / 1000:+.2f}" for said, away in zip(said_ms, away_ms, strict=True)]
    report[f"kill -9, {KILLS} times: the status says more by"] = f"{', '.join(wrong_s)} s"


def test_reads_go_over_before_a_deleted_pod_ends(pair: Group, report: Report) -> None:
    """`kubectl delete pod` of the master is an orderly stop, and with that a planned move."""
    times_ms: list[tuple[float, float]] = []
    with story(pair, report, f"kubectl delete pod, {KILLS} times", FaultKind.STOP) as told:
        for _ in range(KILLS):
            from_ms = time.monotonic() * 1000
            told.fired("g1-0")
            _renew(pair, told.down, Ending.STOPPED)
            until(lambda: pair.status["master"] == "g1-0", "it is master again")
            pair.wait_ready()
            times_ms.append((from_ms, time.monotonic() * 1000))
        told.healed()
    _tell(report, f"kubectl delete pod, {KILLS} times", told, times_ms)


def _tell(
    report: Report, what: str, told: Story, times_ms: list[tuple[float, float]]
) -> list[float]:
    """The longest time without reads in each span, its way back included."""
    away_ms = [outages(told.seen, *span)[0].reads_ms for span in times_ms]
    away_s = sorted(ms / 1000 for ms in away_ms)
    said = f"{statistics.median(away_s):.2f}, {away_s[-1]:.2f} s"
    report[f"{what}: without reads, median and most"] = said
    print(f"{what}: without reads: {away_s}", flush=True)
    return away_ms


def _away_ms(group: Group) -> int:
    """For how long nobody served reads until g1-1 did, as the status says it; 0: not yet."""
    last = group.status["lastTransition"]
    return int(last["readOutageMs"]) if last["to"] == "g1-1 READ" else 0


def _kill(group: Group, down: Told) -> None:
    before = restarts(group.namespace, "g1-0")
    signal_to(group.namespace, "g1-0", "KILL")
    down("g1-0", Ending.KILLED)
    until(lambda: restarts(group.namespace, "g1-0") > before, "it is started again")


def _renew(group: Group, down: Told, how: Ending = Ending.KILLED) -> None:
    """Another pod. After a kill the process may not have come far enough to stop in order."""
    (old,) = (p["metadata"]["uid"] for p in group.pods() if p["metadata"]["name"] == "g1-0")
    kubectl("delete", "pod", "g1-0", "-n", group.namespace)
    down("g1-0", how)

    def new() -> bool:
        found = {p["metadata"]["name"]: p["metadata"]["uid"] for p in group.pods()}
        return bool(found.get("g1-0", old) != old)

    until(new, "its pod is another one")
