"""Nodes: lost and back, hanging and resuming, drained. Master and slave are on one each.

They need two workers (`make e2e`): on the only node of a cluster the test could not observe.
"""

import time

import pytest

from e2e.history.cluster_events import Ending, FaultKind
from e2e.kind import hurting
from e2e.kind.groups import Group
from e2e.kind.hurting import node_hangs, node_is, node_lost, node_of
from e2e.kind.story import Report, story
from e2e.kind.tools import kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

HANGS_S = 15  # well over the session's timeout, below the cluster's limit for a lost node


@pytest.fixture(scope="module")
def apart(pair: Group) -> Group:
    """A master and a slave on different nodes."""
    if len(hurting.workers()) < 2:
        pytest.skip("needs two worker nodes: make e2e")
    assert node_of(pair, "g1-0") != node_of(pair, "g1-1")
    return pair


def test_the_masters_node_is_lost_and_comes_back(apart: Group, report: Report) -> None:
    """The slave serves the reads; what the node held comes back with it."""
    node, epoch = node_of(apart, "g1-0"), apart.status["epoch"]
    with story(apart, report, "the master's node lost", FaultKind.KILL) as recorder:
        recorder.fired("g1-0", detail=node)
        with node_lost(node):
            recorder.down("g1-0", Ending.KILLED)
            until(lambda: apart.status.get("epoch", 0) > epoch, "the slave has taken over", 120)
            until(lambda: apart.status["access"] == "READ", "it is reported", 120)
            until(lambda: apart.status["ready"] == "1/2", "its broker is not called ready")
            report["the master's node lost: kubectl get bg"] = apart.row()
            until(lambda: not node_is(node, "True"), "the cluster has noticed", 120)
        recorder.healed()
    assert apart.status["master"] == "g1-0"
    assert node_of(apart, "g1-0") == node, "its volume is there"


def test_masters_node_hangs_and_resumes(apart: Group, report: Report) -> None:
    """It wakes up with an expired lease: it serves nothing before it is master again."""
    node, epoch = node_of(apart, "g1-0"), apart.status["epoch"]
    with story(apart, report, "the master's node hangs", FaultKind.PAUSE) as recorder:
        recorder.fired("g1-0", detail=node)
        with node_hangs(node):
            until(lambda: apart.status.get("epoch", 0) > epoch, "the slave has taken over", 120)
            time.sleep(HANGS_S)
        recorder.healed()
    assert apart.status["master"] == "g1-0"


def test_the_slaves_node_hangs(apart: Group, report: Report) -> None:
    """The master continues: at once, or as soon as it has dropped that slave."""
    node, master = node_of(apart, "g1-1"), apart.status["master"]
    with story(apart, report, "the slave's node hangs", FaultKind.PAUSE) as recorder:
        recorder.fired("g1-1", detail=node)
        with node_hangs(node):
            until(lambda: apart.status["inSync"] == [], "it is not in sync any more", 120)
            assert (apart.status["master"], apart.status["mode"]) == (master, "MASTER")
            time.sleep(HANGS_S)
        recorder.healed()
    assert apart.status["inSync"] == ["g1-1"]


def test_the_masters_node_is_drained(apart: Group, report: Report) -> None:
    """`kubectl drain` waits for the budget: the slave is master before the pod is evicted."""
    master, node = apart.status["master"], node_of(apart, apart.status["master"])
    slave = next(b for b in ("g1-0", "g1-1") if b != master)
    with story(apart, report, "the master's node drained", FaultKind.STOP) as recorder:
        recorder.fired(master, detail=node)
        try:
            start_s = time.monotonic()
            drain(node)
            report["kubectl drain of the master's node"] = f"{time.monotonic() - start_s:.1f} s"
            recorder.down(master, Ending.STOPPED)
            assert (apart.status["master"], apart.status["mode"]) == (slave, "MASTER")
            report["drained: kubectl get bg"] = apart.row()
            drained = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in apart.pods()}
            assert drained[slave] not in (None, node)
            assert drained.get(master) is None, "it waits for its volume's node"
        finally:
            kubectl("uncordon", node)
        recorder.healed()
    assert "Switchover" in apart.events()
    assert not {"DrainOpen", "DrainWaits"} & set(apart.events())
    assert node_of(apart, master) == node
    assert apart.status["master"] == slave, "no switchover back was requested"


def test_a_master_whose_node_is_lost_for_good_is_replaced(apart: Group, report: Report) -> None:
    """A lost node reports nothing (its `Ready` is `Unknown`), and its pod stays for minutes: the
    promotion does not wait for that."""
    master, node = apart.status["master"], node_of(apart, apart.status["master"])
    slave = next(b for b in ("g1-0", "g1-1") if b != master)
    apart.spec["promotion"] = {"policy": "after", "afterSeconds": 30}
    apart.apply()
    apart.wait_ready()
    with story(apart, report, "the master's node lost for good", FaultKind.KILL) as recorder:
        recorder.fired(master, detail=node)
        with node_lost(node):
            recorder.down(master, Ending.KILLED)
            until(lambda: not node_is(node, "True"), "the cluster has noticed", 120)
            reason = f"{master}: its node {node} is not ready"
            until(lambda: reason in apart.condition("Degraded")["message"], "the node is named", 60)
            until(lambda: apart.status["master"] == slave, "the slave is master", 120)
            until(lambda: apart.status["mode"] == "MASTER", "it has opened its term", 60)
            assert any(pod["metadata"]["name"] == master for pod in apart.pods()), "still there"
            report["a lost node's master replaced: kubectl get bg"] = apart.row()
        recorder.healed()
    assert (apart.status["master"], apart.status["inSync"]) == (slave, [master])
    assert "Promotion" in apart.events()
    apart.spec["promotion"] = {"policy": "off"}
    apart.apply()


def drain(node: str) -> None:
    """Drain as an administrator does, who waits for budgets."""
    kubectl(
        *("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s"),
        "--pod-selector=app.kubernetes.io/name=fmq-broker",
    )
