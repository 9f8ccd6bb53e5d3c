"""Histories in which a cluster does what it must not: checks I7 to I10."""

from e2e.checks.findings import Check
from e2e.history.cluster_events import Ending, FaultKind, Look, Refusal, Step
from e2e.tests.breaks import breaks
from e2e.tests.kit import (
    FULL,
    GROUP,
    MASTER,
    NONE,
    READ,
    SLAVE,
    Kit,
)
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.zk.group_state import Mode

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
def committed_offset_passes_unacknowledged_messages() -> Kit:
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


@breaks(Check.I9)
def all_lack_what_was_committed_and_no_fault_took_it() -> Kit:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    kit.produce(2)
    kit.fault(FaultKind.KILL, MASTER)
    kit.ends(MASTER, int(kit.writer.end) + 800)
    kit.end(MASTER, Ending.KILLED, int(kit.writer.end))
    kit.up(MASTER)
    return kit


@breaks(Check.I9)
def a_replica_that_was_given_all_again_lacks_what_was_committed_later() -> Kit:
    kit = Kit()
    kit.second = Kit().writer
    kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    kit.end(SLAVE, Ending.KILLED)
    kit.up(SLAVE, 0)
    kit.ends(SLAVE)
    kit.produce(2)
    return kit


@breaks(Check.I9)
def a_journal_is_unreadable_and_its_disk_was_emptied_since() -> Kit:
    kit = Kit()
    kit.produce(2)
    for kind in (FaultKind.DISK_DAMAGE, FaultKind.DISK_EMPTY):
        kit.fault(kind, SLAVE)
    kit.end(SLAVE, Ending.KILLED)
    kit.up(SLAVE, 0)
    kit.ends(SLAVE)
    kit.trouble = {SLAVE: "a payload does not match its checksum"}
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


@breaks(Check.I10)
def a_restart_without_what_was_durable_after_a_start_that_broke_off() -> Kit:
    """Durable, not committed: the end of the last full run counts, not that of a killed start."""
    kit = Kit()
    kit.produce(2)
    kit.ends(SLAVE, commit_end=int(kit.writer.end) - 8)
    kit.end(SLAVE, Ending.KILLED, int(kit.writer.end))
    kit.end(SLAVE, Ending.KILLED)
    kit.up(SLAVE, int(kit.writer.end) - 8)
    return kit


@breaks(Check.I10)
def a_broker_refuses_long_after_its_disk_was_emptied() -> Kit:
    kit = Kit()
    kit.fault(FaultKind.DISK_DAMAGE, SLAVE, number=1)
    kit.fault(FaultKind.DISK_EMPTY, SLAVE, number=1)
    kit.ends(SLAVE)
    kit.add(Refusal(kit.at(), SLAVE, "damage at position 96"))
    return kit


@breaks(Check.I10)
def a_broker_refuses_and_another_s_disk_was_hurt() -> Kit:
    kit = Kit()
    kit.fault(FaultKind.DISK_DAMAGE, MASTER)
    kit.add(Refusal(kit.at(), SLAVE, "damage at position 96"))
    return kit


@breaks(Check.I10)
def a_broker_ends_itself_in_another_life_than_its_disk_failed_in() -> Kit:
    kit = Kit()
    kit.fault(FaultKind.DISK_ERROR, SLAVE)
    kit.end(SLAVE, Ending.FATAL, 0)
    kit.fault(FaultKind.DISK_ERROR, SLAVE, step=Step.HEALED)
    kit.fault(FaultKind.POWER, SLAVE, number=2)
    kit.up(SLAVE)
    kit.end(SLAVE, Ending.FATAL, 0)
    kit.up(SLAVE)
    return kit
