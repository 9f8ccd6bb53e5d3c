"""How long reads are away when a master dies, time and again; KILLS=20 for the figure."""

import os
import statistics
import time
from collections.abc import Callable

import pytest

from e2e.events import Ending, FaultKind
from e2e.kind.groups import Group
from e2e.kind.hurting import restarts, signal_to
from e2e.kind.story import Report, story
from e2e.kind.tools import kubectl, until
from fmqclient.dev.verdict import outages

pytestmark = [pytest.mark.kind, pytest.mark.timeout(3600)]

Told = Callable[[str, Ending], None]
KILLS = int(os.environ.get("KILLS", "3"))


def test_reads_come_back_after_every_kill(pair: Group, report: Report) -> None:
    """kill -9 of the master's process; then its pod is made anew, or kubelet would hold it back
    for longer after each."""
    times_ms: list[tuple[float, float]] = []
    with story(pair, report, f"kill -9, {KILLS} times", FaultKind.KILL) as told:
        for _ in range(KILLS):
            from_ms = time.monotonic() * 1000
            told.fired("g1-0")
            _kill(pair, told.down)
            _renew(pair, told.down)
            until(lambda: pair.status["master"] == "g1-0", "it is master again")
            pair.wait_ready()
            times_ms.append((from_ms, time.monotonic() * 1000))
        told.healed()
    away_s = sorted(outages(told.seen, *span)[0].reads_ms / 1000 for span in times_ms)
    said = f"{statistics.median(away_s):.2f}, {away_s[-1]:.2f} s"
    report[f"kill -9, {KILLS} times: without reads, median and most"] = said
    print(f"kill -9, {KILLS} times: without reads: {away_s}", flush=True)


def _kill(group: Group, down: Told) -> None:
    before = restarts(group.namespace, "g1-0")
    signal_to(group.namespace, "g1-0", "KILL")
    down("g1-0", Ending.KILLED)
    until(lambda: restarts(group.namespace, "g1-0") > before, "it is started again")


def _renew(group: Group, down: Told) -> None:
    (old,) = (p["metadata"]["uid"] for p in group.pods() if p["metadata"]["name"] == "g1-0")
    kubectl("delete", "pod", "g1-0", "-n", group.namespace)
    down("g1-0", Ending.KILLED)  # it may not have come far enough to stop in order

    def new() -> bool:
        found = {p["metadata"]["name"]: p["metadata"]["uid"] for p in group.pods()}
        return bool(found.get("g1-0", old) != old)

    until(new, "its pod is another one")
