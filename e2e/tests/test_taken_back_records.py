"""Records that a reader showed and its master came back without (ADR 0025): allowed cases."""

import pytest

from e2e.checks.findings import Check
from e2e.history.client_events import Delivered, Unsure
from e2e.history.cluster_events import Ending, FaultKind, Setup
from e2e.tests.kit import MASTER, MEMBER, READERS, SLAVE, Kit, place
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode


def _shown_and_gone(
    lacking: bool,
    takeovers: bool = True,
    away_ms: float = 3000,
    emptied: bool = False,
    bytes_: int = 96,
) -> Kit:
    """A takeover reader shows a message that the master comes back without.

    `bytes_`: how much longer the reader's journal is than its master's.
    """
    kit = Kit()
    kit.change(Setup, 0, served_wait_ms=3000)
    kit.produce(1)
    if takeovers:
        kit.take_over()
    (shown,) = kit.send(1)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, shown, 1, "k"))
    kit.ack([1])
    kit.commit()
    kit.add(Unsure(kit.at(), "p", shown, "no answer"))
    kit.ends(SLAVE, int(kit.writer.end) + bytes_)
    kit.end(SLAVE, Ending.KILLED, int(kit.writer.end) + bytes_)
    kit.wait(away_ms)
    if emptied:
        kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    kit.up(MASTER)
    kit.epoch += 1
    kit.state(
        Mode.MASTER,
        MASTER,
        degraded=True,
        max_delivered_position=lacking * (int(kit.writer.end) + bytes_),
    )
    kit.produce(1)
    kit.up(SLAVE)
    return kit


def test_record_shown_by_a_reader_may_be_taken_back_if_reported() -> None:
    assert _shown_and_gone(lacking=True).broken() == set()
    assert "I1" in {c.name for c in _shown_and_gone(lacking=False).broken()}
    without_takeover = _shown_and_gone(lacking=True, takeovers=False)
    assert "I1" in {c.name for c in without_takeover.broken()}
    too_soon = _shown_and_gone(lacking=True, away_ms=2000)
    assert "I1" in {c.name for c in too_soon.broken()}
    emptied = _shown_and_gone(lacking=True, away_ms=2000, emptied=True)
    assert "I1" not in {c.name for c in emptied.broken()}


def test_new_record_at_a_taken_back_offset_must_be_delivered() -> None:
    kit = _shown_and_gone(lacking=True)
    kit.store_floor(2)
    kit.drained()
    assert "I11" in {c.name for c in kit.broken()}


@pytest.mark.parametrize(
    ("lacking", "away_ms", "broken"), [(True, 3000, False), (True, 2000, True), (False, 3000, True)]
)
def test_taken_back_record_need_not_be_committed_at_the_end(
    lacking: bool, away_ms: float, broken: bool
) -> None:
    """The reader saw it committed, and the journal never grew that long again."""
    kit = _shown_and_gone(lacking, away_ms=away_ms, bytes_=50_000)
    assert (Check.I9 in kit.broken()) == broken


@pytest.mark.parametrize(
    ("flush", "broken"), [(Flush.OS_CACHE, False), (Flush.FSYNC, True)], ids=["cached", "fsynced"]
)
def test_slave_may_know_a_commit_that_its_master_lost(flush: Flush, broken: bool) -> None:
    """It learns the commit end a moment later: the loss was not before the commit."""
    kit = Kit(AckPolicy(flush, counts=SlaveCounts.SENT, how_many=HowMany.NONE))
    kit.produce(1)
    kit.ends(MASTER)
    kit.end(MASTER, Ending.POWER, int(kit.writer.end))
    kit.ends(SLAVE, 50_000)
    kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    kit.up(MASTER)
    kit.produce(1)
    assert (Check.I9 in kit.broken()) == broken
