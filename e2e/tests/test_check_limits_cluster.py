"""As `test_edges.py`, for the cluster: order, offsets, permissions, journals, restarts."""

import pytest

from e2e.checks.findings import Check
from e2e.checks.promises import Copy, promise_of
from e2e.checks.verdict import Outcome
from e2e.history.client_events import Acked, Committed, Committing, Nacked, Sent, Unsure
from e2e.history.cluster_events import (
    Ending,
    FaultKind,
    GroupSetup,
    Look,
    PhaseName,
    Refusal,
    Setup,
    Step,
)
from e2e.tests.kit import (
    FULL,
    GROUP,
    MASTER,
    MEMBER,
    READ,
    READERS,
    SLAVE,
    Kit,
    place,
    sound,
)
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode

CACHE_ALONE = AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE)
OTHER = f"{SLAVE[:-1]}2"

# ---- I6, I7


@pytest.mark.parametrize("orders", [("k0", "k0"), ("k0", "k1")])
def test_unacked_records_of_one_order_key_stored_out_of_order(orders: tuple[str, str]) -> None:
    """Only records of one order key must be in order."""
    kit = Kit()
    records = kit.send(2)
    for nth, order in enumerate(orders):
        kit.change(Sent, nth, order=order)
    for record in reversed(records):
        kit.store([record])
        kit.ends(MASTER)
        kit.add(Unsure(kit.at(), "p", record, "no answer"))
    assert kit.broken() == ({Check.I6} if orders[0] == orders[1] else set())


def test_last_message_below_the_floor_must_be_acked() -> None:
    kit = Kit()
    kit.produce(3)
    kit.deliver([0, 1, 2])
    kit.ack([0, 1])
    kit.store_floor(3)
    assert kit.broken() == {Check.I7}


def test_ack_that_fills_a_gap_also_promises_the_acks_above() -> None:
    kit = Kit()
    kit.produce(3)
    kit.deliver([0, 1, 2])
    for acked, floor in (([1, 2], 0), ([0], 3)):
        kit.ack(acked)
        kit.commit(floor)
    kit.floor_seen(1)
    assert kit.broken() == {Check.I7}


def test_ack_during_a_commit_is_stored_by_the_next_one() -> None:
    for commits, broken in ((1, set()), (2, {Check.I5})):
        kit = Kit()
        kit.produce(2)
        kit.deliver([0, 1])
        kit.ack([0])
        kit.add(Committing(kit.at(), MEMBER, READERS))
        kit.add(Acked(kit.at(), MEMBER, READERS, place(), 1))
        kit.add(Committed(kit.at(), MEMBER, READERS))
        if commits > 1:
            kit.commit(2)
        kit.deliver([1], who="m.2")
        assert kit.broken() & {Check.I5} == broken


def test_one_nack_allows_one_redelivery() -> None:
    kit = Kit()
    kit.phase(PhaseName.CALM)
    kit.produce(1)
    kit.wait(6000)
    kit.deliver([0])
    kit.add(Nacked(kit.at(), MEMBER, READERS, place(), 0))
    kit.deliver([0])
    assert kit.broken() == set()
    kit.deliver([0])
    assert kit.broken() == {Check.I12}


# ---- I8


def test_second_writer_without_reads_is_found() -> None:
    kit = Kit()
    kit.serves(MASTER, Permission.WRITE)
    kit.epoch += 1
    kit.serves(SLAVE, FULL)
    kit.wait(10)
    kit.serves(MASTER, Permission.NONE, 1)
    assert Check.I8 in kit.broken()


def test_wedged_broker_does_not_excuse_two_other_readers() -> None:
    kit = Kit(members=3)
    kit.fault(FaultKind.WEDGE, OTHER)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.serves(SLAVE, READ)
    kit.serves(MASTER, Permission.NONE)
    assert kit.broken() == {Check.I8}


def test_permission_is_unknown_between_samples_of_two_epochs() -> None:
    kit = Kit()
    kit.events = [e for e in kit.events if type(e).__name__ != "Serves"]
    looks = [(2000.0, MASTER, FULL, 1), (2020.0, SLAVE, READ, 2), (2040.0, MASTER, FULL, 3)]
    for at_ms, broker, permission, epoch in looks:
        kit.add(Look(at_ms, at_ms + 5, broker, GROUP, permission, epoch))
    assert Check.I8 not in kit.broken()


@pytest.mark.parametrize("serves", [False, True])
@pytest.mark.parametrize("kind", [FaultKind.ZOOKEEPER, FaultKind.ZOOKEEPER_DATA])
def test_restored_state_is_excused_and_service_below_it_is_not(
    kind: FaultKind, *, serves: bool
) -> None:
    """ZooKeeper's state may go back where the run put it back, and nowhere else."""
    kit = Kit()
    kit.take_over()
    kit.hand_over()
    newest = kit.epoch
    kit.serves(MASTER, Permission.NONE)
    kit.fault(kind, "zk1")
    kit.epoch = 1
    kit.state(Mode.MASTER, MASTER)
    if serves:
        kit.serves(SLAVE, READ, epoch=2)
        kit.serves(SLAVE, Permission.NONE, epoch=2)
    kit.epoch = newest + 1
    kit.state(Mode.MASTER, MASTER)
    kit.serves(MASTER, FULL)
    expected = serves or kind is FaultKind.ZOOKEEPER
    assert (Check.I8 in kit.broken()) is expected


# ---- I9


@pytest.mark.parametrize("how", [None, Ending.STOPPED, Ending.KILLED])
def test_stopped_slave_must_have_all_and_a_killed_one_may_not(how: Ending | None) -> None:
    kit = Kit()
    kit.second = Kit().writer
    kit.produce(2)
    kit.wait(1000)
    if how is not None:
        kit.end(SLAVE, how)
    assert kit.broken() == (set() if how is Ending.KILLED else {Check.I9})


@pytest.mark.parametrize(
    ("before_ms", "stops_ms", "wrong"), [(900, 0, False), (900, 500, False), (1000, 0, True)]
)
def test_slave_may_lack_batches_in_flight_when_all_stopped(
    before_ms: float, stops_ms: float, wrong: bool
) -> None:
    """One of two slaves had the last batch; the other lost it, and the retry came too late."""
    kit = Kit(members=3)
    kit.second = Kit(members=3).writer
    kit.store(kit.send(2))
    kit.ends(MASTER)
    kit.wait(before_ms)
    kit.phase(PhaseName.OVER)
    kit.wait(stops_ms)
    for broker in kit.names:
        kit.end(broker, Ending.STOPPED)
    assert (Check.I9 in kit.broken()) is wrong


def test_stopped_master_must_have_its_last_commit() -> None:
    kit = Kit(CACHE_ALONE)
    kit.produce(2)
    kit.ends(MASTER, int(kit.writer.end) + 800)
    kit.end(MASTER, Ending.STOPPED, int(kit.writer.end))
    assert Check.I9 in kit.broken()


def test_broker_refusing_to_start_may_lack_batches() -> None:
    kit = Kit()
    kit.second = Kit().writer
    kit.produce(2)
    kit.fault(FaultKind.DISK_ERROR, SLAVE)
    kit.add(Refusal(kit.at(), SLAVE, "fsync failed"))
    assert kit.broken() == set()


def test_slave_must_have_what_the_master_still_has() -> None:
    kit = Kit(CACHE_ALONE)
    kit.second = Kit().writer
    kit.produce(2)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER, 0)
    assert kit.broken() == {Check.I9}


def test_record_left_on_a_slave_only_is_lost() -> None:
    kit, other = Kit(), Kit()
    for each in (kit, other):
        each.produce(1)
    other.store(other.send(1))
    kit.second = other.writer
    records = kit.send(1)
    for name in kit.names:
        kit.ends(name, int(other.writer.end), int(kit.writer.end))
    kit.acked(records, kit.writer.headers[-1], 1)
    assert Check.I2 in kit.broken()


def test_early_ack_is_judged_by_the_changed_policy() -> None:
    kit = Kit(CACHE_ALONE)
    (first,) = (event for event in kit.events if isinstance(event, Setup))
    kit.produce(1)
    before = int(kit.writer.end)
    (group,) = first.groups
    kit.add(first._replace(at_ms=kit.at(), groups=(group._replace(policy=AckPolicy()),)))
    kit.wait(60_000)
    records = kit.send(1)
    header = kit.store(records)
    kit.ends(MASTER)
    kit.ends(SLAVE, before, before)
    kit.acked(records, header)
    kit.wait(1000)
    kit.ends(SLAVE)
    assert kit.broken() == {Check.I2}


# ---- I10


@pytest.mark.parametrize(("durable", "committed"), [(-8, 0), (0, -8)])
def test_batch_only_durable_or_only_committed_may_be_missing(durable: int, committed: int) -> None:
    kit = Kit()
    kit.produce(2)
    end = int(kit.writer.end)
    kit.ends(SLAVE)
    kit.change(type(kit.events[-1]), -1, durable_end=end + durable, commit_end=end + committed)
    kit.end(SLAVE, Ending.POWER)
    kit.up(SLAVE, end - 8)
    assert kit.broken() == set()
    kit.without(type(kit.events[-1]), -1)
    kit.up(SLAVE, end - 16)
    assert kit.broken() == {Check.I10}


def test_start_is_compared_with_the_last_ends_of_the_last_run() -> None:
    kit = Kit()
    kit.end(SLAVE, Ending.KILLED, 0)
    kit.up(SLAVE, 0)
    for _ in range(2):
        kit.produce(1)
        kit.ends(SLAVE)
    end = int(kit.writer.end)
    kit.end(SLAVE, Ending.POWER)
    kit.up(SLAVE, end - 8)
    assert kit.broken() == {Check.I10}


def test_disk_emptied_in_an_earlier_life_excuses_no_new_loss() -> None:
    kit = Kit()
    kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    kit.end(SLAVE, Ending.KILLED)
    kit.up(SLAVE, 0)
    kit.produce(2)
    end = int(kit.writer.end)
    kit.end(SLAVE, Ending.KILLED, end)
    kit.up(SLAVE, end - 8)
    assert kit.broken() == {Check.I10}


def test_journal_starting_above_its_former_end_is_found() -> None:
    kit = Kit()
    kit.produce(2)
    end = int(kit.writer.end)
    kit.end(SLAVE, Ending.KILLED, end)
    kit.up(SLAVE, end + 16)
    kit.change(type(kit.events[-1]), -1, journal_start=end + 8)
    assert kit.broken() == {Check.I10}


@pytest.mark.parametrize(("failing", "broken"), [(MASTER, {Check.I10}), (SLAVE, set())])
def test_the_disk_that_fails_must_be_its_own(failing: str, broken: set[Check]) -> None:
    for refuses in (True, False):
        kit = Kit()
        kit.fault(FaultKind.DISK_ERROR, failing)
        if refuses:
            kit.add(Refusal(kit.at(), SLAVE, "fsync failed"))
        else:
            kit.end(SLAVE, Ending.FATAL, 0)
        assert kit.broken() == broken


# ---- what is promised, and what takes it


def test_failed_fsync_loses_memory_and_keeps_cache_and_disk() -> None:
    for level, broken in (("persisted", {Check.I2}), ("received", set())):
        kit = Kit()
        header = kit.produce(1)
        kit.ends(MASTER, int(kit.writer.end) + 400)
        kit.acked(kit.send(1, level=level), header, 1)
        kit.fault(FaultKind.DISK_ERROR, MASTER)
        kit.end(MASTER, Ending.FATAL, 0)
        kit.up(MASTER, 0)
        assert kit.broken() & {Check.I2} == broken
    kit = Kit(CACHE_ALONE)
    header = kit.produce(1)
    kit.ends(MASTER, int(kit.writer.end) + 400)
    kit.acked(kit.send(1), header, 1)
    kit.end(MASTER, Ending.FATAL, 0)
    kit.up(MASTER, 0)
    assert Check.I2 in kit.broken(), "a process that ends leaves the cache"


def test_policy_decides_which_slaves_made_an_ack() -> None:
    names = tuple(f"{GROUP}-{number}" for number in range(5))
    two = frozenset(names[1:3])

    def ways(policy: AckPolicy, isr: frozenset[str]) -> set[frozenset[str]]:
        made = promise_of("replicated", GroupSetup(GROUP, MASTER, names, policy), [isr], 0, 1)
        assert made is not None
        return set(made.ways)

    majority = AckPolicy(how_many=HowMany.MAJORITY)
    assert ways(majority, two) == {two}, "of all slaves, not of those in sync"
    assert ways(majority, two - {SLAVE}) == set()
    every = AckPolicy(how_many=HowMany.ALL)
    assert ways(every, two) == {two}
    assert ways(every, frozenset()) == set(), "one at least"
    one = GroupSetup(
        GROUP,
        MASTER,
        names,
        AckPolicy(how_many=HowMany.ONE, counts=SlaveCounts.RECEIVED, flush=Flush.INTERVAL),
    )
    made = promise_of("replicated", one, [two], 0, 1)
    assert made is not None
    assert (made.master_copy, made.slave_copy) == (Copy.CACHE, Copy.MEMORY)


@pytest.mark.parametrize(("healed", "broken"), [(True, {Check.I5}), (False, set())])
def test_healed_cut_does_not_excuse_a_lagging_takeover_reader(
    healed: bool, broken: set[Check]
) -> None:
    policy = AckPolicy(counts=SlaveCounts.RECEIVED, how_many=HowMany.ONE)
    kit = Kit(policy, members=3)
    kit.fault(FaultKind.CUT, OTHER)
    if healed:
        kit.fault(FaultKind.CUT, OTHER, step=Step.HEALED)
    kit.wait(60_000)
    kit.produce(3)
    kit.consume([0, 1, 2])
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.serves(MASTER, Permission.NONE)
    kit.serves(SLAVE, READ)
    kit.deliver([1])
    assert kit.broken() & {Check.I5} == broken


def test_one_unfired_fault_makes_the_run_unknown() -> None:
    kit = sound()
    kit.fault(FaultKind.CUT, MASTER, number=3)
    kit.fault(FaultKind.KILL, MASTER, number=4, step=Step.SCHEDULED)
    verdict = kit.judge()
    assert verdict.outcome is Outcome.UNKNOWN
    assert "fault 4" in verdict.reasons[0]
