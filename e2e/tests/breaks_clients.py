"""Histories in which clients see what they must not: checks I1 to I6."""

from e2e.checks.findings import Check
from e2e.history.client_events import Delivered, Failed, Sent, Stored, Unsure
from e2e.history.cluster_events import Ending, FaultKind, Setup
from e2e.tests.breaks import breaks
from e2e.tests.kit import (
    MASTER,
    MEMBER,
    READERS,
    SLAVE,
    Kit,
    place,
)
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.zk.group_state import Mode

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
def one_offset_acked_for_two_records() -> Kit:
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
    kit.acked(kit.send(1), header, 2)
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
    kit.acked(kit.send(1), header, 2)
    return kit


def _acked_before(short: str, level: str = "replicated", asked_ago: float = 0) -> Kit:
    """The broker `short` has the batch only a second after the ack."""
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1, level=level)
    header = kit.store(records)
    kit.acked(records, header)
    for name in kit.names:
        kit.ends(name, before if name == short else -1, before, asked_ago)
    kit.wait(1000)
    for name in kit.names:
        kit.ends(name, asked_ago=asked_ago)
    return kit


@breaks(Check.I2)
def acked_before_a_slave_had_it() -> Kit:
    return _acked_before(SLAVE)


@breaks(Check.I2)
def acked_before_a_slave_had_it_as_samples_show() -> Kit:
    return _acked_before(SLAVE, asked_ago=4)


@breaks(Check.I2)
def acked_before_the_master_had_it_on_disk() -> Kit:
    return _acked_before(MASTER, "persisted")


@breaks(Check.I2)
def acked_before_all_had_it() -> Kit:
    return _acked_before(SLAVE, "all")


@breaks(Check.I2)
def acked_and_then_the_slave_died_without_it() -> Kit:
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1)
    kit.acked(records, kit.store(records))
    kit.ends(MASTER)
    kit.end(SLAVE, Ending.KILLED, before)
    kit.up(SLAVE)
    kit.ends(SLAVE)
    return kit


@breaks(Check.I2)
def acked_a_moment_before_a_slave_had_it() -> Kit:
    kit = Kit()
    kit.produce(1)
    records = kit.send(1)
    header = kit.store(records)
    kit.ends(MASTER)
    kit.acked(records, header)
    kit.ends(SLAVE)
    return kit


@breaks(Check.I2)
def acked_too_early_in_the_term_that_stored_it_again() -> Kit:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    kit.produce(1)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    kit.epoch += 1
    kit.writer.open_epoch(kit.epoch, MASTER)
    kit.state(Mode.MASTER, MASTER)
    records = kit.send(1)
    kit.acked(records, kit.store(records))
    kit.ends(MASTER)
    return kit


@breaks(Check.I2)
def acked_while_no_slave_was_in_sync() -> Kit:
    kit = Kit()
    kit.state(Mode.MASTER, MASTER, isr=())
    kit.wait(1000)
    kit.produce(1)
    return kit


@breaks(Check.I2)
def deleted_though_nothing_may_be() -> Kit:
    kit = Kit()
    kit.produce(1)
    kit.writer.roll()
    kit.deleted_below = kit.writer.last_base
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


@breaks(Check.I4)
def delivered_before_anybody_committed_it() -> Kit:
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1)
    header = kit.store(records)
    kit.deliver([1])
    for name in kit.names:
        kit.ends(name, -1, before)
    kit.wait(1000)
    for name in kit.names:
        kit.ends(name)
    kit.acked(records, header)
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
def stored_out_of_key_order() -> Kit:
    kit = Kit()
    records = kit.send(3)
    kit.acked([records[1]], kit.store([records[1]]))
    kit.acked([records[0]], kit.store([records[0]]))
    kit.acked([records[2]], kit.store([records[2]]))
    return kit


@breaks(Check.I6)
def delivered_in_another_order_than_its_key_s_and_deleted_since() -> Kit:
    """No ack named their offsets, and only their deliveries are left."""
    kit = Kit()
    kit.change(Setup, 0, retention_bytes=1 << 16)
    records = kit.send(2)
    for record in reversed(records):
        kit.store([record])
        kit.ends(MASTER)
        kit.add(Unsure(kit.at(), "p", record, "no answer"))
    kit.consume([0, 1])
    kit.writer.roll()
    kit.deleted_below = kit.writer.last_base
    return kit
