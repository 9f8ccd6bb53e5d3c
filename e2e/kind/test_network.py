"""The network of the master's pod: cut off from ZooKeeper, from its slave, from both."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from e2e.history.cluster_events import FaultKind
from e2e.kind.conftest import SYSTEM
from e2e.kind.groups import Group
from e2e.kind.hurting import addresses, cut
from e2e.kind.story import Report, Story, story
from e2e.kind.tools import get, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

HOLDS_S = 15  # many times the session's timeout


def test_cut_off_from_zookeeper_alone(pair: Group, report: Report) -> None:
    """Its slave's grants hold: it serves on, no slave takes over, the status names the reason."""
    epoch = pair.status["epoch"]
    with story(pair, report, "master cut off from ZooKeeper", FaultKind.ZOOKEEPER) as recorder:
        with _cut_off(recorder, pair, zookeeper=True):
            until(
                lambda: pair.condition("ZooKeeperConnected")["status"] == "False",
                "it is reported",
            )
            assert "g1-0 cannot reach" in pair.condition("ZooKeeperConnected")["message"]
            time.sleep(HOLDS_S)
            assert pair.status["access"] == "FULL"
        recorder.healed()
    assert pair.status["epoch"] == epoch, "no slave took over"


def test_cut_off_from_its_slave_alone(pair: Group, report: Report) -> None:
    """It drops the slave and serves on; the slave claims nothing from a master that lives."""
    epoch = pair.status["epoch"]
    with story(pair, report, "master cut off from its slave", FaultKind.CUT) as recorder:
        with _cut_off(recorder, pair, slave=True):
            until(lambda: pair.status["inSync"] == [], "the slave is counted out", 120)
            time.sleep(HOLDS_S)
            assert (pair.status["mode"], pair.status["master"]) == ("MASTER", "g1-0")
        recorder.healed()
    assert pair.status["inSync"] == ["g1-1"]
    assert pair.status["epoch"] >= epoch


def test_cut_off_from_both(pair: Group, report: Report) -> None:
    """It fences itself; the slave serves the reads; later it returns by itself."""
    epoch = pair.status["epoch"]
    with story(pair, report, "master cut off from both", FaultKind.CUT) as recorder:
        with _cut_off(recorder, pair, zookeeper=True, slave=True):
            until(lambda: pair.status["access"] == "READ", "the slave serves the reads", 120)
            brokers = {b["broker"]: b["permission"] for b in pair.status["brokers"]}
            assert brokers == {"g1-0": "NONE", "g1-1": "READ"}
            report["cut off from both: kubectl get bg"] = pair.row()
            time.sleep(HOLDS_S)
        recorder.healed()
    assert pair.status["master"] == "g1-0"
    assert pair.status["epoch"] > epoch


@contextmanager
def _cut_off(
    recorder: Story, pair: Group, *, zookeeper: bool = False, slave: bool = False
) -> Iterator[None]:
    """Cut the master's pod off from these."""
    others: list[str] = []
    if zookeeper:
        others += addresses(SYSTEM, _servers())
    if slave:
        others += addresses(pair.namespace, ["g1-1"])
    recorder.fired("g1-0", detail=", ".join(others))
    with cut(pair.namespace, "g1-0", others):
        yield


def _servers() -> Sequence[str]:
    found = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=quickstart-zookeeper")
    return [pod["metadata"]["name"] for pod in found["items"]]
