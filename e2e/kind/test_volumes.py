"""Volumes: one is lost and the runbook repairs the group; and when they are deleted."""

import pytest

from e2e.history.cluster_events import Ending, FaultKind
from e2e.kind.conftest import SYSTEM
from e2e.kind.groups import Group, Json
from e2e.kind.story import Report, story
from e2e.kind.tools import cordoned, get, kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]


def test_the_masters_volume_is_lost(pair: Group, report: Report) -> None:
    """A new broker of that name copies all from the slave, which serves the reads meanwhile."""
    space, epoch = pair.namespace, pair.status["epoch"]
    volume = get("pvc", "data-g1-0", "-n", space)["spec"]["volumeName"]
    with story(pair, report, "the master's volume lost", FaultKind.DISK_EMPTY) as recorder:
        with cordoned():  # no new volume before the test has read the reported fault
            recorder.fired("g1-0")
            kubectl("delete", "pvc", "data-g1-0", "-n", space, "--wait=false")
            kubectl("delete", "pod", "g1-0", "-n", space, "--force", "--grace-period=0")
            recorder.down("g1-0", Ending.KILLED)
            until(lambda: get("pv", volume) is None, "the volume is gone")
            until(lambda: pair.status["epoch"] > epoch, "the slave has taken over")
            until(lambda: pair.condition("StorageReady")["status"] == "False", "it is reported")
            assert "g1-0" in pair.condition("StorageReady")["message"]
            until(lambda: pair.status["access"] == "READ", "the slave serves the reads")
            report["the master's volume lost: kubectl get bg"] = pair.row()
        recorder.healed()
    assert pair.status["master"] == "g1-0"
    assert get("pvc", "data-g1-0", "-n", space)["spec"]["volumeName"] != volume
    assert {"VolumeGoes", "NoVolume"} & set(pair.events()), pair.events()


def test_volumes_go_with_the_group_and_not_with_its_stateful_set(
    pair: Group, report: Report
) -> None:
    """A deleted StatefulSet is recreated; deleting the group needs no operator."""
    space = pair.namespace
    pair.spec["storage"]["onDelete"] = "Delete"
    pair.apply()
    pair.wait_ready()
    pair.in_pod("fmq topic create kept --queues 2 && seq 50 | fmq produce kept")
    before, old = _claims(pair), _uids(pair.pods())
    kubectl("delete", "statefulset", "g1", "-n", space, "--timeout=60s")
    until(lambda: get("statefulset", "g1", "-n", space), "it is recreated")
    until(lambda: len(_uids(pair.pods()) - old) == 2, "so are its pods")
    report["StatefulSet deleted → Ready"] = f"{pair.wait_ready():.1f} s"
    assert _claims(pair) == before
    output = pair.in_pod("fmq consume kept -g later --from earliest -e")
    assert set(range(1, 51)) <= {int(line) for line in output.split() if line.isdigit()}
    kubectl("scale", "deployment/fmq-operator", "-n", SYSTEM, "--replicas=0")
    try:
        until(lambda: not _operators(), "no operator is left")
        kubectl("delete", "brokergroup", "g1", "-n", space, "--timeout=30s")
        until(lambda: not _claims(pair), "its volumes are gone", 240)
    finally:
        kubectl("scale", "deployment/fmq-operator", "-n", SYSTEM, "--replicas=2")


def _claims(group: Group) -> dict[str, str]:
    """Return the existing claims: name and uid."""
    found = get("pvc", "-n", group.namespace, "-l", f"fmq.io/group={group.name}")["items"]
    return {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in found}


def _uids(items: list[Json]) -> set[str]:
    return {item["metadata"]["uid"] for item in items}


def _operators() -> list[str]:
    found = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")["items"]
    return [pod["metadata"]["name"] for pod in found]
