"""The scenarios' watch reports every violation and nothing else."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.checks.findings import Check
from e2e.history.client_events import Acked, Committed, Committing, Delivered, Place
from e2e.history.cluster_events import Floor, GroupSetup, Look, Setup
from e2e.history.events import Event
from fmqbroker.tests.scenario_watch import READERS, TOPIC, ScenarioWatch
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy

NONE, READ, WRITE, FULL = Permission.NONE, Permission.READ, Permission.WRITE, Permission.FULL
Sample = tuple[str, Permission, int]
PLACE = Place(TOPIC, "g", 0)


def violations(*events: Event) -> list[Check]:
    cluster: Any = SimpleNamespace(brokers={}, groups=None)
    setup = Setup(0.0, (GroupSetup("g", "a", ("a", "b"), AckPolicy()),))
    watch = ScenarioWatch(cluster, setup)
    for event in events:
        watch.history.add(event)
    return sorted({finding.check for finding in watch.violations()}, key=lambda c: c.name)


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ([("a", FULL, 1), ("b", READ, 2), ("a", FULL, 1)], True),
        ([("a", READ, 1), ("b", NONE, 1), ("c", READ, 2), ("a", READ, 1)], True),
        ([("a", WRITE, 1), ("b", WRITE, 1), ("a", FULL, 1)], True),
        ([("a", FULL, 1), ("b", READ, 2), ("a", FULL, 3)], False),  # a came back meanwhile
        ([("a", FULL, 1), ("b", READ, 2), ("a", NONE, 1)], False),  # it may have ended before
        ([("a", WRITE, 1), ("b", READ, 1), ("a", WRITE, 1)], False),
        ([("a", FULL, 1), ("b", NONE, 1), ("a", FULL, 1), ("b", READ, 2)], False),
    ],
)
def test_scenario_watch_reports_two_brokers_at_once(samples: list[Sample], found: bool) -> None:
    times = count(1.0)
    looks = [
        Look(at, at + 0.5, b, "g", p, e) for (b, p, e), at in zip(samples, times, strict=False)
    ]
    assert violations(*looks) == ([Check.I8] if found else [])


@pytest.mark.parametrize(("committed", "found"), [(1, True), (2, False)])
def test_scenario_watch_reports_reads_before_the_offsets(committed: int, found: bool) -> None:
    consumed: list[Event] = []
    for offset in range(2):
        who = (float(offset + 1), "reader.1", READERS, PLACE, offset)
        consumed += [Delivered(*who, record=offset), Acked(*who)]
    stored: list[Event] = [
        Committing(4.0, "reader.1", READERS),
        Committed(5.0, "reader.1", READERS),
    ]
    look = Floor(6.0, 7.0, "b", READERS, PLACE, committed)
    assert violations(*consumed, *stored, look) == ([Check.I7] if found else [])
