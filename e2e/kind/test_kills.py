"""How long reads are away when a master dies or its pod is deleted; KILLS=20 for the figures."""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from e2e.history.cluster_events import Ending, FaultKind
from e2e.kind.groups import Group
from e2e.kind.hurting import restarts, signal_to
from e2e.kind.story import Report, Story, story
from e2e.kind.tools import kubectl, until
from fmqdev.demo.verdict import outages

pytestmark = [pytest.mark.kind, pytest.mark.timeout(3600)]

RecordEnd = Callable[[str, Ending], None]
KILLS = int(os.environ.get("KILLS", "3"))


def test_reads_come_back_after_every_kill(pair: Group, report: Report) -> None:
    """kill -9 of the master's process; then its pod is recreated, or kubelet would delay each
    restart for longer."""
    times_ms: list[tuple[float, float]] = []
    title = f"kill -9, {KILLS} times"
    with story(pair, report, title, FaultKind.KILL) as recorder, _watched(pair) as changes:
        for _ in range(KILLS):
            from_ms = time.monotonic() * 1000
            recorder.fired("g1-0")
            _kill(pair, recorder.down)
            _renew(pair, recorder.down)
            until(lambda: pair.status["master"] == "g1-0", "it is master again")
            pair.wait_ready()
            times_ms.append((from_ms, time.monotonic() * 1000))
        recorder.healed()
    away_s = _add_outages(report, title, recorder, times_ms)
    # The first outage in the status may have ended while no operator looked; it has no duration.
    reported_s = [int(ms) / 1000 for ms, *_ in map(str.split, changes.values()) if ms.isdecimal()]
    report[f"{title}: by the clients; each change, and its way back, by the status"] = (
        f"{away_s}; {reported_s} s"
    )


def test_reads_go_over_before_a_deleted_pod_ends(pair: Group, report: Report) -> None:
    """`kubectl delete pod` of the master is an orderly stop, and so a planned move."""
    times_ms: list[tuple[float, float]] = []
    with story(pair, report, f"kubectl delete pod, {KILLS} times", FaultKind.STOP) as recorder:
        for _ in range(KILLS):
            from_ms = time.monotonic() * 1000
            recorder.fired("g1-0")
            _renew(pair, recorder.down, Ending.STOPPED)
            until(lambda: pair.status["master"] == "g1-0", "it is master again")
            pair.wait_ready()
            times_ms.append((from_ms, time.monotonic() * 1000))
        recorder.healed()
    _add_outages(report, f"kubectl delete pod, {KILLS} times", recorder, times_ms)


def _add_outages(
    report: Report, what: str, recorder: Story, times_ms: list[tuple[float, float]]
) -> list[float]:
    """Report the longest time without reads in each span, including the way back."""
    away_s = [round(outages(recorder.seen, *span)[0].reads_ms / 1000, 2) for span in times_ms]
    figures = f"{statistics.median(away_s):.2f}, {max(away_s):.2f} s"
    report[f"{what}: without reads, median and most"] = figures
    print(f"{what}: without reads: {away_s}", flush=True)
    return away_s


@contextmanager
def _watched(group: Group) -> Iterator[dict[int, str]]:
    """Yield what `kubectl get -w` shows of the status, by epoch: for how many ms reads were away,
    and who has served what since. Filled at the end."""
    found: dict[int, str] = {}
    last = "{.status.lastTransition.epoch} {.status.lastTransition.readOutageMs}"
    columns = f'-ojsonpath={last} {{.status.lastTransition.to}}{{"\\n"}}'
    command = ("kubectl", "get", "bg", group.name, "-n", group.namespace, "-w", columns)
    with tempfile.TemporaryFile("w+") as lines:
        watch = subprocess.Popen(command, stdout=lines)
        try:
            yield found
        finally:
            watch.terminate()
            watch.wait()
        lines.seek(0)
        for epoch, _, rest in (line.strip().partition(" ") for line in lines):
            found[int(epoch)] = rest


def _kill(group: Group, down: RecordEnd) -> None:
    before = restarts(group.namespace, "g1-0")
    signal_to(group.namespace, "g1-0", "KILL")
    down("g1-0", Ending.KILLED)
    until(lambda: restarts(group.namespace, "g1-0") > before, "it is started again")


def _renew(group: Group, down: RecordEnd, how: Ending = Ending.KILLED) -> None:
    """Recreate the pod. After a kill the process may be too young to stop in order."""
    (old,) = (p["metadata"]["uid"] for p in group.pods() if p["metadata"]["name"] == "g1-0")
    kubectl("delete", "pod", "g1-0", "-n", group.namespace)
    down("g1-0", how)

    def new() -> bool:
        found = {p["metadata"]["name"]: p["metadata"]["uid"] for p in group.pods()}
        return bool(found.get("g1-0", old) != old)

    until(new, "its pod is another one")
