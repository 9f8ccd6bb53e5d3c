"""Planned moves of the master: requested, with the operator killed, while scaling.

Two workers with a broker each are better; one node does for all but the lost master.
"""

import os
import statistics
import time
from collections.abc import Iterator

import pytest

from e2e.history.cluster_events import Ending, FaultKind
from e2e.kind.conftest import KEEP, SYSTEM
from e2e.kind.groups import Group
from e2e.kind.hurting import node_of, restarts, signal_to, workers
from e2e.kind.story import Report, story
from e2e.kind.tools import get, kubectl, until
from fmqdev.demo.verdict import longest_pause, outages

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

SWITCHOVER = "fmq.io/switchover"
MOVES = int(os.environ.get("MOVES", "3"))


def test_a_switchover_that_was_asked_for(pair: Group, report: Report) -> None:
    """And back again, to any broker that can."""
    for title, asked in (("a planned switchover", other(pair)), ("and back again", "any")):
        before, to, pods = pair.status["master"], other(pair), _uids(pair)
        with story(pair, report, title, FaultKind.OPERATOR) as recorder:
            recorder.fired(before, detail=asked)
            annotate(pair, asked)
            until_master(pair, to)
            recorder.healed()
            last = pair.status["lastTransition"]
            assert (last["from"], last["to"]) == (f"{before} FULL", f"{to} FULL")
            assert f"in place of {before}: a switchover to {to} was requested" in last["cause"]
        assert _uids(pair) == pods, "no broker was restarted"
    assert {"Switchover", "SwitchoverDone"} <= set(pair.events())


def test_switchover_duration_is_measured_both_ways(pair: Group, report: Report) -> None:
    """There and back; MOVES=20 for the figures."""
    spans_ms: list[tuple[float, float]] = []
    title = f"planned switchover, {MOVES} times"
    with story(pair, report, title, FaultKind.OPERATOR) as recorder:
        for _ in range(MOVES):
            from_ms, to = time.monotonic() * 1000, other(pair)
            recorder.fired(pair.status["master"], detail=to)
            annotate(pair, to)
            until_master(pair, to)
            pair.wait_ready()
            spans_ms.append((from_ms, time.monotonic() * 1000))
        recorder.healed()
    away = [outages(recorder.seen, *span)[0] for span in spans_ms]
    acks = [longest_pause(recorder.acked_ms, *span) for span in spans_ms]
    for what, times_ms in (
        ("reads", [a.reads_ms for a in away]),
        ("writes", [a.writes_ms for a in away]),
        ("acks", acks),
    ):
        figures = f"{statistics.median(times_ms) / 1000:.2f}, {max(times_ms) / 1000:.2f} s"
        report[f"{title}: without {what}, median and most"] = figures
        print(f"{title}: without {what}: {[round(ms) for ms in times_ms]} ms", flush=True)


@pytest.mark.parametrize("step", ["asked", "wished", "done"])
def test_the_operator_is_killed_in_mid_switchover(pair: Group, report: Report, step: str) -> None:
    """The next active operator continues, and no mastership moves twice."""
    until(_holder, "an operator works", 60)
    before, to, epoch = pair.status["master"], other(pair), pair.status["epoch"]
    with story(pair, report, f"operator killed, switchover {step}", FaultKind.OPERATOR) as recorder:
        recorder.fired(before, detail=step)
        first = _holder()
        known = restarts(SYSTEM, first)
        annotate(pair, "any")
        if step == "wished":
            until(lambda: _wished(pair, epoch), "it is wished for", 60)
        elif step == "done":
            until_master(pair, to, asked=True)
        signal_to(SYSTEM, first, "KILL")
        until(lambda: restarts(SYSTEM, first) > known, "it was killed", 120)
        until_master(pair, to)
        recorder.healed()
    assert pair.status["master"] == to, "it stays"
    assert pair.status["epoch"] == epoch + 3, "given away, claimed, opened, once"


def test_a_master_that_is_lost_for_good_is_replaced(pair: Group, report: Report) -> None:
    """Its volume's node takes no pod: the reader becomes master; the broker returns as a slave."""
    if len(workers()) < 2:
        pytest.skip("needs two worker nodes: make e2e")
    lost, to = pair.status["master"], other(pair)
    node = node_of(pair, lost)
    pair.spec["promotion"] = {"policy": "after", "afterSeconds": 30}
    pair.apply()
    pair.wait_ready()
    with story(pair, report, "a lost master replaced after 30 s", FaultKind.STOP) as recorder:
        recorder.fired(lost, detail=node)
        kubectl("taint", "node", node, "fmq-e2e-lost=yes:NoSchedule")
        try:
            kubectl("delete", "pod", lost, "-n", pair.namespace)
            recorder.down(lost, Ending.STOPPED)
            until_master(pair, to)
            assert lost in pair.status["lastTransition"]["cause"], pair.status["lastTransition"]
            assert pair.condition("WriteAvailable")["reason"] == "NotEnoughReplicas"
            assert pair.status["access"] == "READ", "it can acknowledge nothing without a slave"
            report["lost master replaced: kubectl get bg"] = pair.row()
        finally:
            kubectl("taint", "node", node, "fmq-e2e-lost-")
        recorder.healed()
    assert (pair.status["master"], pair.status["inSync"]) == (to, [lost])
    assert "Promotion" in pair.events()


@pytest.fixture(scope="module")
def lone(installed: str, images: dict[str, str]) -> Iterator[Group]:
    """A lone master, ready."""
    namespace = f"fmq-scale-{time.time_ns() // 1_000_000_000 % 100_000}"
    made = Group("g1", namespace, installed, images["broker"])
    made.spec |= {"replicas": 1, "policy": {"howMany": "none"}}
    made.make()
    made.wait_ready()
    yield made
    if not KEEP:
        kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")


def test_scaled_up_and_down_under_traffic(lone: Group, report: Report) -> None:
    """1, 2, 3, 2: in the last step the master has to leave, and first hands over its role."""
    lone.start_traffic(90)
    for count in (2, 3):
        scale(lone, count)
        report[f"scaled to {count} → Ready"] = f"{lone.wait_ready(240):.1f} s"
    until(lambda: lone.status["inSync"] == ["g1-1", "g1-2"], "both are in sync")
    annotate(lone, "g1-2")
    until_master(lone, "g1-2")
    scale(lone, 2)
    report["scaled to 2, the master moved first → Ready"] = f"{lone.wait_ready(240):.1f} s"
    until(lambda: len(lone.pods()) == 2, "the last one has left")
    assert lone.status["master"] in ("g1-0", "g1-1")
    assert get("pvc", "data-g1-2", "-n", lone.namespace) is not None
    verdict = lone.verdict()
    assert verdict["lost"] == [] and verdict["acked"] > 100, verdict
    report["scaled 1→2→3→2: longest without reads, acks"] = (
        f"{verdict['longest_without_message_ms']}, {verdict['longest_without_ack_ms']} ms"
    )


# ---- what they do and look at


def annotate(group: Group, asked: str) -> None:
    """Annotate the group as a person does."""
    kubectl("annotate", "bg", group.name, "-n", group.namespace, f"{SWITCHOVER}={asked}")


def scale(group: Group, count: int) -> None:
    """Scale as a person does; the test's copy of the spec follows."""
    kubectl("scale", "bg", group.name, "-n", group.namespace, f"--replicas={count}")
    group.spec["replicas"] = count


def other(group: Group) -> str:
    """Return the broker of two that is not master."""
    return next(b for b in ("g1-0", "g1-1") if b != group.status["master"])


def until_master(group: Group, broker: str, *, asked: bool = False) -> None:
    """Wait until the broker is master."""
    until(lambda: _is_master(group, broker, asked=asked), f"{broker} is master")


def _wished(group: Group, epoch: int) -> bool:
    """Whether the switchover is written, or further."""
    status = group.status
    return bool(status["memory"].get("switchoverReason")) or status["epoch"] > epoch


def _is_master(group: Group, broker: str, *, asked: bool = False) -> bool:
    """Whether it serves, with or without a slave; the annotation is gone (or allowed: `asked`)."""
    found = get("brokergroup", group.name, "-n", group.namespace)
    status, notes = found["status"], found["metadata"].get("annotations") or {}
    last = status.get("lastTransition") or {}
    serves = status["mode"] == "MASTER" and last.get("to") == f"{broker} FULL"
    return serves and (asked or SWITCHOVER not in notes)


def _uids(group: Group) -> set[str]:
    return {pod["metadata"]["uid"] for pod in group.pods()}


def _holder() -> str:
    lease = get("lease", "fmq-operator", "-n", SYSTEM)
    return str((lease or {"spec": {}})["spec"].get("holderIdentity") or "")
