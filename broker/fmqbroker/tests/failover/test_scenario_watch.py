"""The scenarios' watch reports every violation and nothing else."""

import pytest

from fmqbroker.tests.scenario_watch import Sample, Watch
from fmqcore.ids import Permission

NONE, READ, WRITE, FULL = Permission.NONE, Permission.READ, Permission.WRITE, Permission.FULL
Look = tuple[str, Permission, int]


def violations(*looks: Look) -> int:
    watch = Watch([])
    history: list[Sample] = []
    for broker, permission, epoch in looks:
        history.append(Sample(broker, permission, epoch, "", ""))
        watch._two_at_once(history)
    return len(watch.violations)


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        ([("a", FULL, 1), ("b", READ, 2), ("a", FULL, 1)], 1),
        ([("a", READ, 1), ("b", NONE, 1), ("c", READ, 2), ("a", READ, 1)], 1),
        ([("a", WRITE, 1), ("b", WRITE, 1), ("a", FULL, 1)], 1),
        ([("a", FULL, 1), ("b", READ, 2), ("a", FULL, 3)], 0),  # a came back meanwhile
        ([("a", FULL, 1), ("b", READ, 2), ("a", NONE, 1)], 0),  # it may have ended before
        ([("a", WRITE, 1), ("b", READ, 1), ("a", WRITE, 1)], 0),
        ([("a", FULL, 1), ("b", NONE, 1), ("a", FULL, 1), ("b", READ, 2)], 0),
    ],
)
def test_scenario_watch_reports_two_brokers_at_once(looks: list[Look], found: int) -> None:
    assert violations(*looks) == found
