"""One history for each way to break a promise: its check must find it, and no other."""

import pytest

import e2e.tests.breaks_clients
import e2e.tests.breaks_cluster
import e2e.tests.breaks_liveness
import e2e.tests.breaks_ordered
import e2e.tests.breaks_sought  # noqa: F401
from e2e.checks.findings import Check
from e2e.checks.verdict import Limits, Outcome
from e2e.history.client_events import Committed, Seeking
from e2e.history.cluster_events import FaultKind, Step
from e2e.tests.breaks import BREAKS, Break
from e2e.tests.kit import (
    ANY,
    MASTER,
    NONE,
    READERS,
    SLAVE,
    Kit,
    place,
    sound,
)


@pytest.mark.parametrize(("checks", "build"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_broken_history_then_only_its_check_finds_it(checks: set[Check], build: Break) -> None:
    kit = build()
    kit.events.sort(key=lambda event: event.at_ms)
    verdict = kit.judge()
    assert verdict.outcome is Outcome.BROKEN
    assert {finding.check for finding in verdict.findings} == checks, str(verdict)
    assert all(finding.text for finding in verdict.findings)


def test_every_check_has_a_history_that_breaks_it() -> None:
    assert set().union(*(checks for _, checks, _ in BREAKS)) == set(Check)


def test_a_fault_that_never_fired_makes_a_run_unknown() -> None:
    kit = sound()
    kit.fault(FaultKind.KILL, MASTER, number=4, step=Step.SCHEDULED)
    verdict = kit.judge(ANY)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "fault 4 (kill of g1-0) never fired" in verdict.reasons[0]
    kit.fault(FaultKind.KILL, MASTER, number=4)
    assert kit.judge(ANY).outcome is Outcome.OK


def test_a_finding_outweighs_what_is_missing() -> None:
    kit = Kit()
    kit.send(1)
    assert kit.judge(Limits()).outcome is Outcome.BROKEN


def test_a_commit_that_failed_confirms_nothing() -> None:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.change(Committed, 0, reason="timed out")
    kit.deliver([0], who="m.2")
    assert kit.broken() == set()
    kit.change(Committed, 0, reason="stale", stale=True)
    kit.commit()
    assert kit.broken() == set()


def test_a_seek_without_an_answer_blurs_what_follows() -> None:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.add(Seeking(kit.at(), "s", READERS, place(), 0))
    kit.add(Seeking(kit.at(), "s", READERS, place(), 1))
    kit.deliver([1], who="m.2")
    kit.deliver([0], who="m.2")
    assert kit.broken() == set()


def test_none_is_not_served() -> None:
    kit = Kit()
    kit.serves(SLAVE, NONE)
    assert kit.broken() == set()
