"""The master's volume is lost: what is told, and how the group gets whole again by the runbook."""

import pytest

from e2e.events import Ending, FaultKind
from e2e.kind.groups import Group
from e2e.kind.story import Report, story
from e2e.kind.tools import cordoned, get, kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]


def test_the_masters_volume_is_lost(pair: Group, report: Report) -> None:
    """A new broker under its name gets all from the slave, which serves the reads meanwhile."""
    space, epoch = pair.namespace, pair.status["epoch"]
    volume = get("pvc", "data-g1-0", "-n", space)["spec"]["volumeName"]
    with story(pair, report, "the master's volume lost", FaultKind.DISK_EMPTY) as told:
        with cordoned():  # there is no new volume before somebody has read what is wrong
            told.fired("g1-0")
            kubectl("delete", "pvc", "data-g1-0", "-n", space, "--wait=false")
            kubectl("delete", "pod", "g1-0", "-n", space, "--force", "--grace-period=0")
            told.down("g1-0", Ending.KILLED)
            until(lambda: get("pv", volume) is None, "the volume is gone")
            until(lambda: pair.status["epoch"] > epoch, "the slave has taken over")
            until(lambda: pair.condition("StorageReady")["status"] == "False", "it is told")
            assert "g1-0" in pair.condition("StorageReady")["message"]
            until(lambda: pair.status["access"] == "READ", "the slave serves the reads")
            report["the master's volume lost: kubectl get bg"] = pair.row()
        told.healed()
    assert pair.status["master"] == "g1-0"
    assert get("pvc", "data-g1-0", "-n", space)["spec"]["volumeName"] != volume
    assert {"VolumeGoes", "NoVolume"} & set(pair.events()), pair.events()
