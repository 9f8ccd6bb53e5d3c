"""How far an excuse reaches: what it must not cover, beside what it must (checks I2, I4, I5)."""

import pytest

from e2e.checks.findings import Check
from e2e.history.client_events import Acked, Committed, Committing, Delivered, Unsure
from e2e.history.cluster_events import Ending, Fault, FaultKind, Look, Setup, State, Step
from e2e.tests.kit import FULL, GROUP, MASTER, MEMBER, NONE, READ, READERS, SLAVE, Kit, place
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode

CACHE_ALONE = AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE)
OTHER = f"{SLAVE[:-1]}2"


def _gone(kept: int) -> set[Check]:
    """A record is acked, the power fails, and the journal comes back with `kept` less."""
    kit = Kit(CACHE_ALONE)
    header = kit.produce(1)
    records = kit.send(1)
    end = int(kit.writer.end) + 400
    kit.ends(MASTER, end, int(kit.writer.end))
    kit.acked(records, header, 1)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER, end + kept)
    return kit.broken()


def test_broker_back_with_its_whole_journal_excuses_no_loss() -> None:
    assert _gone(-8) == set()
    assert _gone(0) == {Check.I2}


@pytest.mark.parametrize("power", ["", "before it came again", "after that"])
def test_ack_lost_after_the_redelivery_is_no_excuse(power: str) -> None:
    kit = Kit(CACHE_ALONE)
    kit.produce(3)
    kit.consume([0, 1, 2])

    def cut() -> None:
        kit.fault(FaultKind.POWER, MASTER)
        kit.end(MASTER, Ending.POWER, 0)
        kit.up(MASTER, int(kit.writer.end) - 8)

    if power == "before it came again":
        cut()
    kit.deliver([2], who="m.2")
    if power == "after that":
        cut()
    assert (Check.I5 in kit.broken()) is (power != "before it came again")


@pytest.mark.parametrize("lost", [True, False])
def test_lost_record_resent_to_its_offset_may_be_delivered_again(
    lost: bool,
) -> None:
    """Its producer had no answer yet; the member that acked the first copy sees the second."""
    kit = Kit(CACHE_ALONE)
    kit.produce(1)
    (record,) = kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 400)
    first = Delivered(kit.at(), MEMBER, READERS, place(), 1, record, 1, "k")
    kit.add(first)
    if lost:
        kit.fault(FaultKind.POWER, MASTER)
        kit.end(MASTER, Ending.POWER, 0)
        kit.up(MASTER)
    kit.add(Acked(kit.at(), MEMBER, READERS, place(), 1))  # it may not know yet
    header = kit.store([record])
    kit.add(first._replace(at_ms=kit.at()))
    kit.acked([record], header)
    assert (Check.I5 in kit.broken()) is not lost


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(("lost", "broken"), [(True, set()), (False, {Check.I7})])
def test_ack_of_an_already_lost_message_promises_nothing(
    lost: bool, broken: set[Check], seen: bool
) -> None:
    """The member acks to the next reader, which answers OK; one message below is still there."""
    kit = Kit(CACHE_ALONE)
    kit.produce(2)
    kit.deliver([0, 1])
    (record,) = kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 400)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 2, record, 1, "k"))
    kit.add(Unsure(kit.at(), "p", record, "no answer"))
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    kit.wait(5000)
    kit.ack([0, 1, 2])
    kit.commit(2 if lost else 1)
    if seen:
        kit.floor_seen(2 if lost else 1)
    assert kit.broken() == broken


@pytest.mark.parametrize("power", ["before it was seen", "after that"])
def test_later_loss_does_not_excuse_an_earlier_floor(power: str) -> None:
    kit = Kit(CACHE_ALONE)
    kit.produce(2)
    kit.deliver([0, 1])
    (record,) = kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 400)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 2, record, 1, "k"))
    kit.add(Unsure(kit.at(), "p", record, "no answer"))
    kit.ack([0, 1, 2])
    kit.commit(2)
    if power == "after that":
        kit.floor_seen(2)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    if power == "before it was seen":
        kit.floor_seen(2)
    assert kit.broken() == ({Check.I7} if power == "after that" else set())


def test_second_record_at_a_reused_offset_must_stay_too() -> None:
    """The power took the first record at offset 1; no fault took the second."""
    kit = Kit(CACHE_ALONE)
    kit.produce(1)
    for nth in (1, 2):
        (record,) = kit.send(1)
        kit.ends(MASTER, int(kit.writer.end) + 400, int(kit.writer.end))
        kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, record, 1, "k"))
        kit.add(Unsure(kit.at(), "p", record, "no answer"))
        if nth == 1:
            kit.fault(FaultKind.POWER, MASTER)
            kit.end(MASTER, Ending.POWER, 0)
            kit.up(MASTER)
    assert kit.broken() == {Check.I4}


@pytest.mark.parametrize("wide", [MASTER, SLAVE])
def test_in_sync_set_counts_only_for_its_own_masters_acks(wide: str) -> None:
    """The mastership moved; one of the two masters had `OTHER` in sync, too."""
    kit = Kit(members=3)
    kit.state(Mode.MASTER, MASTER, isr=(SLAVE, OTHER) if wide == MASTER else (SLAVE,))
    header = kit.produce(1)
    records = kit.send(1)
    kit.epoch += 1
    isr = (MASTER, OTHER) if wide == SLAVE else (MASTER,)
    kit.add(State(kit.at(), GROUP, Mode.MASTER, kit.epoch, SLAVE, SLAVE, isr))
    kit.acked(records, header, 1)
    for number, broker in enumerate((MASTER, OTHER), 1):
        kit.fault(FaultKind.DISK_EMPTY, broker, number)
    assert kit.broken() == (set() if wide == MASTER else {Check.I2})


def _taken_over(has_it: bool, counts: SlaveCounts = SlaveCounts.SENT) -> Kit:
    """An ack is confirmed, the master dies, a slave takes over and delivers the message again."""
    kit = Kit(AckPolicy(counts=counts, how_many=HowMany.ONE), members=3)
    kit.produce(3)
    kit.consume([0, 1, 2])
    if has_it:
        kit.ends(SLAVE)
    kit.take_over()
    kit.deliver([1])
    return kit


def test_takeover_reader_with_the_ack_must_keep_it_by_any_policy() -> None:
    assert _taken_over(has_it=False).broken() == set()
    assert _taken_over(has_it=True).broken() == {Check.I5}


@pytest.mark.parametrize(
    ("emptied", "whole_again", "broken"),
    [
        ("before", False, set()),
        ("before", True, {Check.I5}),  # it had copied everything again, and took over later
        ("after", False, {Check.I5}),  # it took over with it
    ],
)
def test_takeover_reader_emptied_at_another_time_has_no_excuse(
    emptied: str, whole_again: bool, broken: set[Check]
) -> None:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    if emptied == "before":
        kit.fault(FaultKind.DISK_EMPTY, SLAVE)
        kit.end(SLAVE, Ending.KILLED)
        kit.up(SLAVE, 0)
    if whole_again:
        kit.ends(SLAVE)
    kit.take_over()
    kit.deliver([1])
    if emptied == "after":
        kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    assert kit.broken() == broken


@pytest.mark.parametrize(("reason", "broken"), [("", True), ("waits", False), ("stands", False)])
def test_waiting_or_paused_client_may_see_a_taken_back_record(reason: str, broken: bool) -> None:
    """A takeover reader showed it; when a client delivers it, the master is back without it (ADR
    0025).
    """
    kit = Kit()
    kit.change(Setup, 0, served_wait_ms=3000)
    kit.produce(1)
    kit.take_over()
    (shown,) = kit.send(1)
    if reason == "waits":
        kit.add(Committing(kit.at(), MEMBER, READERS))
    if reason == "stands":
        kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, "m", Step.FIRED, "pause client"))
    kit.add(Unsure(kit.at(), "p", shown, "no answer"))
    kit.end(SLAVE, Ending.KILLED, int(kit.writer.end) + 96)
    kit.wait(3000)
    kit.up(MASTER)
    kit.epoch += 1
    kit.state(Mode.MASTER, MASTER, degraded=True, max_delivered_position=int(kit.writer.end) + 96)
    kit.produce(1)
    kit.wait(1000)
    if reason == "waits":
        kit.add(Committed(kit.at(), MEMBER, READERS, "not in time"))
    if reason == "stands":
        kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, "m", Step.HEALED, "pause client"))
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, shown, 1, "k"))
    kit.up(SLAVE)
    assert (Check.I1 in kit.broken()) is broken


def test_new_master_seen_late_may_have_given_the_ack() -> None:
    """The mastership moved between two looks; the ack was the new master's."""
    for late_ms, broken in ((100, set()), (5000, {Check.I2})):
        kit = Kit(CACHE_ALONE)
        header = kit.produce(1)
        records = kit.send(1)
        kit.add(Look(kit.at(), kit.now + 1, MASTER, GROUP, FULL, 1))
        kit.acked(records, header, 1)
        kit.wait(late_ms)
        kit.epoch += 1
        kit.add(State(kit.at(), GROUP, Mode.MASTER, kit.epoch, SLAVE, SLAVE, (MASTER,)))
        kit.fault(FaultKind.DISK_EMPTY, SLAVE)
        assert {c for c in kit.broken() if c is Check.I2} == broken


def _read_by_a_slave() -> Kit:
    """A slave that has three records serves the reads."""
    kit = Kit()
    kit.produce(3)
    kit.ends(SLAVE)
    kit.take_over()
    return kit


def _lose_and_hand_over(kit: Kit, kind: FaultKind, waits_ms: float) -> None:
    """The reader ends, claims again and hands over; then the second record comes again."""
    kit.wait(waits_ms)
    kit.fault(kind, SLAVE)
    kit.end(SLAVE, Ending.KILLED)
    kit.serves(SLAVE, NONE)
    kit.up(SLAVE, 0 if kind is FaultKind.DISK_EMPTY else None)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.hand_over()
    kit.deliver([1])


@pytest.mark.parametrize(
    ("kind", "waits_ms", "broken"),
    [
        (FaultKind.DISK_EMPTY, 10, set()),
        (FaultKind.KILL, 10, {Check.I5}),  # the stored ack is on its disk
        (FaultKind.DISK_DAMAGE, 10, {Check.I5}),  # in another file
        (FaultKind.DISK_EMPTY, 60_000, {Check.I5}),  # it has long been in the group's state
    ],
)
def test_emptied_reader_may_claim_again_and_hand_over_less(
    kind: FaultKind, waits_ms: float, broken: set[Check]
) -> None:
    kit = _read_by_a_slave()
    kit.consume([0, 1, 2])
    _lose_and_hand_over(kit, kind, waits_ms)
    assert kit.broken() == broken


@pytest.mark.parametrize(
    ("kind", "waits_ms", "broken"),
    [
        (FaultKind.DISK_EMPTY, 10, set()),
        (FaultKind.KILL, 10, {Check.I5}),
        (FaultKind.DISK_EMPTY, 60_000, {Check.I5}),
    ],
)
def test_unreported_ack_may_be_lost_with_its_reader_too(
    kind: FaultKind, waits_ms: float, broken: set[Check]
) -> None:
    """Its member does not repeat it, so the reader has stored it before it was lost."""
    kit = _read_by_a_slave()
    kit.deliver([0, 1, 2])
    kit.ack([0, 1, 2])
    _lose_and_hand_over(kit, kind, waits_ms)
    assert kit.broken() == broken


def test_reader_lost_before_an_ack_does_not_excuse_it() -> None:
    """The first ack was lost with the reader; the second went to a master that lost nothing."""
    kit = _read_by_a_slave()
    kit.deliver([0, 1, 2])
    kit.ack([0, 1, 2])
    _lose_and_hand_over(kit, FaultKind.DISK_EMPTY, 10)
    assert kit.broken() == set()
    kit.ack([1])
    kit.wait(3_600_000)
    kit.deliver([1])
    assert kit.broken() == {Check.I5}


@pytest.mark.parametrize(("served_ms", "broken"), [(10, set()), (20_000, {Check.I5})])
def test_reader_back_from_no_zookeeper_gets_time_to_checkpoint(
    served_ms: float, broken: set[Check]
) -> None:
    """It serves again for a moment, and another broker reads from then on."""
    kit = Kit(members=3)
    kit.produce(3)
    for slave in (SLAVE, OTHER):
        kit.ends(slave)
    kit.take_over()
    kit.consume([0, 1, 2])
    kit.serves(SLAVE, NONE)  # its lease has expired
    kit.wait(60_000)
    kit.serves(SLAVE, READ)
    kit.wait(served_ms)
    kit.fault(FaultKind.POWER, SLAVE)
    kit.end(SLAVE, Ending.POWER, int(kit.writer.end))
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, OTHER)
    kit.serves(OTHER, READ)
    kit.deliver([1])
    assert kit.broken() == broken


def test_commit_after_the_disk_loss_must_survive() -> None:
    kit = Kit()
    kit.produce(3)
    kit.ends(SLAVE)
    kit.take_over()
    kit.deliver([0, 1, 2])
    kit.ack([0, 1, 2])
    kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    kit.end(SLAVE, Ending.KILLED)
    kit.serves(SLAVE, NONE)
    kit.up(SLAVE, 0)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.serves(SLAVE, READ)
    kit.wait(30_000)
    kit.commit(3)  # confirmed again, and stored in this incarnation
    kit.wait(60_000)
    kit.hand_over()
    kit.deliver([1])
    assert kit.broken() == {Check.I5}


@pytest.mark.parametrize("emptied", [True, False])
def test_handed_over_progress_is_only_as_safe_as_the_policy(emptied: bool) -> None:
    """A reader handed over, lost its disk, and its master died again: its progress is empty."""
    kit = Kit()
    kit.produce(3)
    kit.ends(SLAVE)
    kit.take_over()
    kit.consume([0, 1, 2])
    kit.hand_over()
    kit.wait(60_000)
    if emptied:
        kit.fault(FaultKind.DISK_EMPTY, SLAVE)
        kit.end(SLAVE, Ending.KILLED)
        kit.up(SLAVE, 0)
    kit.take_over()
    kit.deliver([1])
    assert kit.broken() == (set() if emptied else {Check.I5})
