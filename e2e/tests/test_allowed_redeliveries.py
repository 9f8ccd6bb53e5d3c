"""Redelivery of finished messages: where the checks allow it, and where not (check I5)."""

import pytest

from e2e.checks.findings import Check
from e2e.history.cluster_events import Ending, Fault, FaultKind, Step
from e2e.tests.kit import MASTER, NONE, SLAVE, Kit
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_state import Mode


def test_ack_only_on_the_master_may_be_lost_at_a_takeover() -> None:
    kit = Kit(AckPolicy(how_many=HowMany.NONE))
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.take_over()
    kit.deliver([1, 2])
    assert kit.broken() == set()


def test_last_acks_of_a_wedged_reader_may_be_lost_however_late() -> None:
    """It stops serving when its lease expires, and its master is back long after."""
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


def test_old_acks_of_a_wedged_reader_must_survive() -> None:
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
def test_lost_readers_last_acks_may_go_if_successor_seen_late(
    seen: bool,
) -> None:
    """States are polled: only the hand-over shows that another broker claimed."""
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
def test_paused_client_may_show_what_another_client_acked(detail: str, broken: set[str]) -> None:
    kit = Kit()
    kit.produce(1)
    kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, "m", Step.FIRED, detail))
    kit.consume([0], who="other")
    kit.commit(1, who="other")
    kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, "m", Step.HEALED, detail))
    kit.deliver([0])
    assert {c.name for c in kit.broken()} == broken


@pytest.mark.parametrize(
    ("epoch", "later_ms", "broken"),
    [
        (1, 100, set()),
        (2, 100, {"I5"}),  # the copy is from a reader that knew of the ack
        (0, 100, {"I5"}),  # the copy's reader is unknown
        (1, 10_000, {"I5"}),  # by then it knows that the reader is gone
    ],
)
def test_client_of_a_replaced_reader_may_show_its_buffer(
    epoch: int, later_ms: float, broken: set[str]
) -> None:
    kit = Kit()
    kit.produce(1)
    kit.fault(FaultKind.PAUSE, MASTER)
    kit.ends(SLAVE)
    kit.take_over()
    kit.consume([0], who="other")
    kit.wait(later_ms)
    kit.deliver([0], epoch=epoch)
    assert {c.name for c in kit.broken() & {Check.I5}} == broken


def test_client_does_not_show_again_what_it_acked_itself() -> None:
    """A client cannot know only what another one acked."""
    kit = Kit()
    kit.produce(1)
    kit.deliver([0])
    kit.ack([0])
    kit.fault(FaultKind.PAUSE, MASTER)
    kit.ends(SLAVE)
    kit.take_over()
    kit.deliver([0], epoch=1)
    assert kit.broken() == {Check.I5}
