"""One history for each way to break a promise: the check must find it, and only that check."""

from collections.abc import Callable

import pytest

from e2e.checks.findings import Check
from e2e.checks.verdict import Limits, Outcome
from e2e.events import (
    Committed,
    Delivered,
    Ending,
    Failed,
    FaultKind,
    Look,
    PhaseName,
    Refusal,
    Seeking,
    Sent,
    Step,
    Stored,
    Unsure,
)
from e2e.tests.kit import (
    ANY,
    FULL,
    GROUP,
    MASTER,
    MEMBER,
    NONE,
    READ,
    READERS,
    SLAVE,
    Kit,
    place,
    sound,
)
from fmqcore.cluster import Mode
from fmqcore.policy import AckPolicy, Flush, HowMany

Break = Callable[[], Kit]
BREAKS: list[tuple[str, set[Check], Break]] = []


def breaks(*checks: Check) -> Callable[[Break], Break]:
    """What finds it: the first is what it is about, the others cannot but see it too."""

    def take(build: Break) -> Break:
        BREAKS.append((build.__name__, set(checks), build))
        return build

    return take


# ---- I1


@breaks(Check.I1, Check.I5)
def delivered_is_not_what_was_acknowledged_there() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.change(Stored, 0, offset=1)
    kit.change(Stored, 1, offset=0)
    return kit


@breaks(Check.I1, Check.I5)
def one_offset_told_to_two_records() -> Kit:
    kit = Kit()
    kit.produce(2)
    kit.change(Stored, 1, offset=0)
    return kit


@breaks(Check.I1)
def another_key_comes_out() -> Kit:
    kit = Kit()
    kit.produce(2)
    kit.consume([0, 1])
    kit.change(Delivered, 1, key="x")
    return kit


# ---- I2


@breaks(Check.I2)
def acknowledged_and_not_there() -> Kit:
    kit = Kit()
    header = kit.produce(2)
    kit.told(kit.send(1), header, 2)
    return kit


@breaks(Check.I2)
def lost_by_the_death_of_the_master_alone() -> Kit:
    kit = acknowledged_and_not_there()
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER)
    return kit


@breaks(Check.I2)
def lost_in_caches_one_after_the_other_though_the_first_had_it_again() -> Kit:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    header = kit.produce(2)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER)
    kit.up(MASTER)
    kit.ends(MASTER)
    kit.told(kit.send(1), header, 2)
    return kit


# ---- I3


@breaks(Check.I3)
def stored_and_delivered_but_never_sent() -> Kit:
    kit = Kit()
    kit.store([77])
    kit.deliver([0])
    return kit


@breaks(Check.I3)
def stored_though_it_was_refused() -> Kit:
    kit = Kit()
    records = kit.send(1)
    kit.store(records)
    kit.add(Failed(kit.at(), "p", records[0], "not enough replicas"))
    return kit


@breaks(Check.I3)
def stored_in_another_topic() -> Kit:
    kit = Kit()
    kit.produce(1)
    kit.change(Sent, 0, topic="other")
    return kit


# ---- I4


@breaks(Check.I4)
def delivered_and_taken_back() -> Kit:
    kit = Kit()
    kit.produce(2)
    records = kit.send(1)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 2, records[0], 1, "k"))
    kit.add(Unsure(kit.at(), "p", records[0], "no answer"))
    return kit


# ---- I5


@breaks(Check.I5)
def a_retry_is_stored_twice() -> Kit:
    kit = Kit()
    kit.produce(2)
    kit.store([1, 2], queue=1)
    return kit


@breaks(Check.I5)
def acknowledged_and_delivered_again_to_the_same_member() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.deliver([0, 1, 2])
    kit.ack([0, 1, 2])
    kit.deliver([1])
    return kit


@breaks(Check.I5)
def confirmed_and_delivered_again_to_another_member() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.deliver([2], who="m.2")
    return kit


@breaks(Check.I5)
def confirmed_and_delivered_again_after_a_clean_hand_over() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.take_over()
    kit.consume([0, 1, 2])
    kit.hand_over()
    kit.deliver([2], who="m.2")
    return kit


# ---- I6


@breaks(Check.I6)
def delivered_out_of_order() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.deliver([0, 2, 1])
    return kit


@breaks(Check.I6)
def stored_out_of_the_order_of_its_key() -> Kit:
    kit = Kit()
    records = kit.send(3)
    kit.told([records[1]], kit.store([records[1]]))
    kit.told([records[0]], kit.store([records[0]]))
    kit.told([records[2]], kit.store([records[2]]))
    return kit


# ---- I7


@breaks(Check.I7)
def a_reader_knows_less_than_was_confirmed() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.floor_seen(2)
    return kit


@breaks(Check.I7)
def the_journal_ends_with_less_than_was_confirmed() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.store_floor(1, version=10_000)
    return kit


@breaks(Check.I7)
def a_hand_over_forgets_what_the_slave_confirmed() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.take_over()
    kit.deliver([0, 1, 2])
    kit.ack([0, 1, 2])
    kit.commit()
    kit.hand_over()
    kit.store_floor(1)
    return kit


@breaks(Check.I7)
def the_committed_offset_passes_what_nobody_acknowledged() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.deliver([0, 1, 2])
    kit.ack([0, 2])
    kit.store_floor(3)
    return kit


# ---- I8


@breaks(Check.I8)
def two_readers_exactly() -> Kit:
    kit = Kit()
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.serves(SLAVE, READ)
    kit.serves(MASTER, NONE)
    kit.serves(SLAVE, NONE)
    return kit


@breaks(Check.I8)
def a_reader_that_woke_up_reads_on() -> Kit:
    kit = Kit()
    kit.fault(FaultKind.WEDGE, MASTER)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.serves(SLAVE, READ)
    kit.fault(FaultKind.WEDGE, MASTER, step=Step.HEALED)
    kit.wait(100)
    kit.serves(MASTER, NONE)
    return kit


def _samples(kit: Kit, looks: list[tuple[float, float, str, int, int]]) -> Kit:
    kit.events = [e for e in kit.events if type(e).__name__ != "Serves"]
    for asked_ms, at_ms, broker, permission, epoch in looks:
        kit.add(Look(asked_ms, at_ms, broker, GROUP, FULL if permission == 3 else READ, epoch))
    return kit


@breaks(Check.I8)
def two_readers_in_samples() -> Kit:
    looks = [(2000.0, 2010.0, MASTER, 3, 1), (2020.0, 2030.0, SLAVE, 1, 2)]
    return _samples(Kit(), [*looks, (2040.0, 2050.0, MASTER, 3, 1)])


@breaks(Check.I8)
def one_epoch_served_by_two() -> Kit:
    looks = [(2000.0, 2010.0, MASTER, 3, 2), (2020.0, 2030.0, SLAVE, 1, 2)]
    return _samples(Kit(), looks)


@breaks(Check.I8)
def an_older_epoch_is_served_again() -> Kit:
    looks = [(2000.0, 2010.0, SLAVE, 1, 2), (2020.0, 2030.0, MASTER, 3, 1)]
    return _samples(Kit(), looks)


@breaks(Check.I8)
def who_reads_changes_without_an_epoch() -> Kit:
    kit = Kit()
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    return kit


@breaks(Check.I8, Check.I9)
def one_epoch_opened_by_two() -> Kit:
    kit, other = Kit(), Kit()
    kit.writer.open_epoch(2, MASTER)
    other.writer.open_epoch(2, SLAVE)
    kit.second = other.writer
    return kit


@breaks(Check.I8)
def the_epoch_falls() -> Kit:
    kit = Kit()
    kit.epoch = 0
    kit.state(Mode.MASTER, MASTER)
    return kit


# ---- I9


@breaks(Check.I9)
def replicas_differ() -> Kit:
    kit = Kit()
    kit.produce(2)
    other = Kit()
    other.store(other.send(2))
    other.store([1])
    kit.produce(1)
    kit.second = other.writer
    return kit


@breaks(Check.I9)
def replicas_differ_in_what_is_no_message() -> Kit:
    kit, other = Kit(), Kit()
    other.store_floor(1, version=1)
    other.store_floor(2, version=2)
    kit.store_floor(1, version=1)
    kit.store_floor(3, version=2)
    kit.second = other.writer
    return kit


@breaks(Check.I9)
def a_replica_lacks_what_was_committed() -> Kit:
    kit = Kit()
    kit.second = Kit().writer
    kit.produce(2)
    return kit


# ---- I10


@breaks(Check.I10)
def a_restart_without_what_was_durable() -> Kit:
    kit = Kit()
    kit.produce(2)
    kit.end(SLAVE, Ending.KILLED, int(kit.writer.end))
    kit.up(SLAVE, int(kit.writer.end) - 8)
    return kit


@breaks(Check.I10)
def a_restart_without_what_was_seen_durable_and_committed() -> Kit:
    kit = Kit()
    kit.produce(2)
    kit.ends(SLAVE)
    kit.end(SLAVE, Ending.POWER)
    kit.up(SLAVE, 0)
    return kit


@breaks(Check.I10)
def a_broker_refuses_though_no_disk_was_hurt() -> Kit:
    kit = Kit()
    kit.add(Refusal(kit.at(), SLAVE, "damage at position 96"))
    return kit


@breaks(Check.I10)
def a_broker_ends_itself() -> Kit:
    kit = Kit()
    kit.end(SLAVE, Ending.FATAL, 0)
    return kit


# ---- I11


@breaks(Check.I11)
def a_send_without_an_outcome() -> Kit:
    kit = Kit()
    kit.send(1)
    return kit


@breaks(Check.I11)
def a_message_that_never_comes() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1])
    kit.drained()
    return kit


@breaks(Check.I11)
def a_group_that_is_never_whole_again() -> Kit:
    kit = Kit()
    kit.phase(PhaseName.HEALED)
    kit.wait(70_000)
    kit.phase(PhaseName.OVER)
    return kit


@breaks(Check.I11)
def a_group_that_is_whole_too_late() -> Kit:
    kit = Kit()
    kit.phase(PhaseName.HEALED)
    kit.wait(70_000)
    kit.phase(PhaseName.WHOLE)
    return kit


# ---- I12


def _calm() -> Kit:
    kit = Kit()
    kit.phase(PhaseName.CALM)
    kit.wait(1000)
    kit.produce(3)
    return kit


@breaks(Check.I12)
def a_failover_in_the_calm() -> Kit:
    kit = _calm()
    kit.serves(MASTER, NONE)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    return kit


@breaks(Check.I12)
def a_slave_leaves_the_in_sync_set_in_the_calm() -> Kit:
    kit = _calm()
    kit.epoch += 1
    kit.state(Mode.MASTER, MASTER, isr=())
    return kit


@breaks(Check.I12)
def an_unknown_outcome_in_the_calm() -> Kit:
    kit = _calm()
    kit.add(Unsure(kit.at(), "p", kit.send(1)[0], "no answer"))
    return kit


@breaks(Check.I12)
def a_refusal_in_the_calm() -> Kit:
    kit = _calm()
    kit.add(Failed(kit.at(), "p", kit.send(1)[0], "overloaded"))
    return kit


@breaks(Check.I12)
def delivered_twice_in_the_calm() -> Kit:
    kit = _calm()
    kit.wait(6000)
    kit.deliver([0, 1, 2])
    kit.deliver([1])
    return kit


@breaks(Check.I12)
def a_restart_in_the_calm() -> Kit:
    kit = _calm()
    kit.end(SLAVE, Ending.STOPPED, int(kit.writer.end))
    kit.up(SLAVE)
    return kit


@pytest.mark.parametrize(("checks", "build"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_the_checks_find_it_and_no_other_does(checks: set[Check], build: Break) -> None:
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
    kit.change(Committed, 0, why="timed out")
    kit.deliver([0], who="m.2")
    assert kit.broken() == set()
    kit.change(Committed, 0, why="stale", stale=True)
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
