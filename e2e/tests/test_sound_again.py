"""Consumers who rightly get again what somebody was done with, and those who do not (check I5)."""

import pytest

from e2e.checks.findings import Check
from e2e.events import Committed, Committing, Ending, Fault, FaultKind, Step
from e2e.tests.kit import MASTER, MEMBER, NONE, READERS, SLAVE, Kit
from fmqcore.cluster import Mode
from fmqcore.policy import AckPolicy, HowMany


def test_what_only_the_master_had_may_come_again_when_another_reads() -> None:
    kit = Kit(AckPolicy(how_many=HowMany.NONE))
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.take_over()
    kit.deliver([1, 2])
    assert kit.broken() == set()


def test_what_a_wedged_reader_had_stored_last_may_come_again_however_late() -> None:
    """It serves no more from when its lease ends, and its master is back long after."""
    kit = Kit(AckPolicy(how_many=HowMany.ONE))
    kit.produce(3)
    kit.take_over()
    kit.consume([0, 1, 2])
    kit.fault(FaultKind.WEDGE, SLAVE)
    kit.serves(SLAVE, NONE)
    kit.wait(30_000)
    kit.come_back()
    kit.deliver([1, 2])
    assert kit.broken() == set()


def test_what_a_reader_stored_long_before_it_was_wedged_does_not_come_again() -> None:
    kit = Kit(AckPolicy(how_many=HowMany.ONE))
    kit.produce(3)
    kit.take_over()
    kit.consume([0, 1, 2])
    kit.wait(30_000)
    kit.fault(FaultKind.WEDGE, SLAVE)
    kit.serves(SLAVE, NONE)
    kit.come_back()
    kit.deliver([1, 2])
    assert kit.broken() == {Check.I5}


@pytest.mark.parametrize("seen", [True, False])
def test_what_a_lost_reader_stored_last_may_come_again_though_its_heir_was_seen_late(
    seen: bool,
) -> None:
    """States are looked at now and then: that another claimed shows in its hand-over alone."""
    kit = Kit(members=3)
    other = f"{SLAVE[:-1]}2"
    kit.produce(3)
    kit.take_over()
    kit.consume([0, 1, 2])
    kit.end(SLAVE, Ending.POWER, int(kit.writer.end))
    kit.epoch += 1
    if seen:
        kit.state(Mode.SLAVE_CONSUME, other)
    kit.epoch += 1
    kit.state(Mode.HANDOVER, other)
    kit.come_back()
    kit.deliver([1, 2])
    assert kit.broken() == set()


@pytest.mark.parametrize(("detail", "broken"), [("pause client", set()), ("kill client", {"I5"})])
def test_who_stood_still_wakes_with_what_another_is_done_with(
    detail: str, broken: set[str]
) -> None:
    kit = Kit()
    kit.produce(1)
    kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, "m", Step.FIRED, detail))
    kit.consume([0], who="other")
    kit.commit(1, who="other")
    kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, "m", Step.HEALED, detail))
    kit.deliver([0])
    assert {c.name for c in kit.broken()} == broken


@pytest.mark.parametrize(
    ("waits", "lost", "later_ms", "broken"),
    [
        (True, FaultKind.POWER, 100, set()),
        (True, FaultKind.PAUSE, 100, set()),  # another took over from it meanwhile
        (False, FaultKind.POWER, 100, {"I5"}),  # it would have taken it before
        (True, None, 100, {"I5"}),  # it cannot have had it from another reader
        (True, FaultKind.POWER, 10_000, {"I5"}),  # by then it knows that the reader is gone
        (True, FaultKind.PAUSE, 10_000, {"I5"}),
    ],
)
def test_who_waits_in_a_commit_goes_on_with_what_the_lost_reader_gave_it(
    waits: bool, lost: FaultKind | None, later_ms: float, broken: set[str]
) -> None:
    kit = Kit()
    kit.produce(1)
    if waits:
        kit.add(Committing(kit.at(), MEMBER, READERS))
    if lost:
        kit.fault(lost, MASTER)
    if lost is FaultKind.POWER:
        kit.end(MASTER, Ending.POWER, int(kit.writer.end))
        kit.up(MASTER)
    kit.consume([0], who="other")
    kit.wait(later_ms)
    if waits:
        kit.add(Committed(kit.at(), MEMBER, READERS))
    kit.deliver([0])
    assert {c.name for c in kit.broken()} == broken
