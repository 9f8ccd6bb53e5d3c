"""ZooKeeper without a quorum for a minute: masters serve on, and the cluster recovers by itself."""

import time

import pytest

from e2e.history.cluster_events import FaultKind
from e2e.kind.conftest import SYSTEM
from e2e.kind.groups import Group
from e2e.kind.story import Report, story
from e2e.kind.tools import get, kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

OUTAGE_S = 60


def test_zookeeper_has_no_quorum_for_a_minute(pair: Group, report: Report) -> None:
    count = get("statefulset", "fmq-zookeeper", "-n", SYSTEM)["spec"]["replicas"]
    with story(pair, report, "ZooKeeper without a quorum", FaultKind.ZOOKEEPER) as recorder:
        recorder.fired("g1-0", "g1-1")
        try:
            _scale(count // 2)
            until(
                lambda: pair.condition("ZooKeeperConnected")["status"] == "False", "it is reported"
            )
            condition = pair.condition("ZooKeeperConnected")
            assert (
                condition["reason"] == "Unreachable" and "fmq-zookeeper-0" in condition["message"]
            ), condition
            time.sleep(OUTAGE_S)
            assert pair.status["access"] == "FULL", "the master reports it itself"
            assert pair.condition("WriteAvailable")["status"] == "True"
            report["no quorum: kubectl get bg"] = pair.row()
        finally:
            _scale(count)
            recorder.healed()
        until(lambda: pair.condition("ZooKeeperConnected")["status"] == "True", "it is reported")
    events = pair.events()
    assert "ZooKeeperAway" in events and "ZooKeeperBack" in events, events


def _scale(count: int) -> None:
    kubectl("scale", "statefulset/fmq-zookeeper", "-n", SYSTEM, f"--replicas={count}")
