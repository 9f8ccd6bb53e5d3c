"""Brokers that die: the process alone, and both pods at once."""

import pytest

from e2e.history.cluster_events import Ending, FaultKind
from e2e.kind.groups import Group
from e2e.kind.hurting import restarts, signal_to
from e2e.kind.story import Report, story
from e2e.kind.tools import kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]


def test_kill_9_of_the_masters_process(pair: Group, report: Report) -> None:
    """The pod stays and its container is restarted; the slave serves the reads meanwhile."""
    before, epoch = restarts(pair.namespace, "g1-0"), pair.status["epoch"]
    with story(pair, report, "kill -9 of the broker", FaultKind.KILL) as recorder:
        recorder.fired("g1-0")
        signal_to(pair.namespace, "g1-0", "KILL")
        recorder.down("g1-0", Ending.KILLED)
        until(lambda: restarts(pair.namespace, "g1-0") > before, "it is started again")
        recorder.healed()
        until(lambda: pair.status["epoch"] > epoch, "the group has seen it")
    assert pair.status["master"] == "g1-0"
    assert pair.status["lastTransition"]["epoch"] == pair.status["epoch"]


def test_both_pods_at_once(pair: Group, report: Report) -> None:
    """No broker is left to serve: acknowledged messages are on both volumes, and come back."""
    old = {pod["metadata"]["uid"] for pod in pair.pods()}
    with story(pair, report, "both pods deleted", FaultKind.STOP) as recorder:
        recorder.fired("g1-0", "g1-1")
        kubectl("delete", "pod", "g1-0", "g1-1", "-n", pair.namespace)
        recorder.down("g1-0", Ending.STOPPED)
        recorder.down("g1-1", Ending.STOPPED)
        recorder.healed()
        until(lambda: not old & {pod["metadata"]["uid"] for pod in pair.pods()}, "both are new")
    assert "EpochOpened" in pair.events()


def test_both_pods_killed_at_once(pair: Group, report: Report) -> None:
    """The same without an orderly stop."""
    old = {pod["metadata"]["uid"] for pod in pair.pods()}
    with story(pair, report, "both pods killed", FaultKind.KILL) as recorder:
        recorder.fired("g1-0", "g1-1")
        both = ("g1-0", "g1-1")
        kubectl("delete", "pod", *both, "-n", pair.namespace, "--force", "--grace-period=0")
        recorder.down("g1-0", Ending.KILLED)
        recorder.down("g1-1", Ending.KILLED)
        recorder.healed()
        until(lambda: not old & {pod["metadata"]["uid"] for pod in pair.pods()}, "both are new")
