"""Sound runs: no check may find anything."""

from dataclasses import replace

import pytest

from e2e.checks.findings import Check
from e2e.checks.verdict import Limits, Outcome
from e2e.history.client_events import Delivered, Left, Nacked, Seeking, Skipped, Sought, Unsure
from e2e.history.cluster_events import Ending, FaultKind, PhaseName, Refusal, Setup, Step
from e2e.tests.kit import ANY, MASTER, MEMBER, NONE, READ, READERS, SLAVE, Kit, place, sound
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.zk.group_state import Mode


def test_a_sound_run_has_no_finding() -> None:
    verdict = sound().judge(Limits(acked_records=10, acked_batches=4, reader_changes=2))
    assert verdict.outcome is Outcome.OK, verdict
    assert verdict.counts["acknowledged"] == 10
    assert verdict.counts["batches acknowledged"] == 4
    assert verdict.counts["changes of reader"] == 2


def test_too_few_events_then_unknown_with_reasons() -> None:
    verdict = sound().judge(Limits(acked_records=11, acked_batches=5, reader_changes=3))
    assert verdict.outcome is Outcome.UNKNOWN
    assert len(verdict.reasons) == 3


def test_an_unknown_outcome_may_be_there_or_not() -> None:
    kit = Kit()
    there, gone = kit.send(2), kit.send(2)
    kit.store(there)
    for record in there + gone:
        kit.add(Unsure(kit.at(), "p", record, "no answer"))
    kit.consume([0, 1])
    kit.drained()
    assert kit.judge().outcome is Outcome.OK


def test_unacked_messages_may_be_redelivered() -> None:
    kit = Kit()
    kit.produce(3)
    kit.deliver([0, 1, 2])
    kit.add(Left(kit.at(), MEMBER, READERS, orderly=False))
    kit.consume([0, 1, 2], who="m.2")
    kit.drained()
    verdict = kit.judge()
    assert verdict.outcome is Outcome.OK, verdict
    assert verdict.counts["delivered again"] == 3


def test_nacked_message_may_be_redelivered_in_the_calm_phase() -> None:
    kit = Kit()
    kit.phase(PhaseName.CALM)
    kit.produce(3)
    kit.deliver([0, 1, 2])
    kit.add(Nacked(kit.at(), MEMBER, READERS, place(), 1))
    kit.deliver([1])
    kit.ack([0, 1, 2])
    kit.commit(3)
    kit.drained()
    verdict = kit.judge()
    assert verdict.outcome is Outcome.OK, verdict
    assert verdict.counts["delivered again"] == 0


def test_seek_voids_earlier_acks() -> None:
    kit = Kit()
    kit.produce(4)
    kit.consume([0, 1, 2])
    kit.add(Seeking(kit.at(), "s", READERS, place(), 1))
    kit.deliver([3])  # was on its way
    kit.ack([3])
    kit.add(Sought(kit.at(), "s", READERS, place()))
    kit.commit()
    kit.store_floor(1)
    kit.floor_seen(1)
    kit.consume([1, 2, 3])
    kit.drained()
    assert kit.judge().outcome is Outcome.OK, kit.judge()


def test_wedged_broker_counts_as_not_serving() -> None:
    kit = Kit()
    kit.fault(FaultKind.WEDGE, MASTER)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    kit.serves(SLAVE, READ)
    kit.serves(MASTER, NONE)
    kit.wait(100)
    kit.fault(FaultKind.WEDGE, MASTER, step=Step.HEALED)
    assert kit.broken() == set()


def test_an_offset_whose_record_may_be_lost_is_free_again() -> None:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    header = kit.produce(1)
    lost, kept = kit.send(1), kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 800)
    kit.acked(lost, header, 1)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    header = kit.store(kept)
    kit.ends(MASTER)
    kit.acked(kept, header)
    assert kit.broken() == set()


def test_received_acks_may_be_lost_by_a_kill() -> None:
    kit = Kit()
    records = kit.send(2, level="received")
    header = kit.store([9])  # takes their place once they are lost
    kit.acked(records, header, 5)
    kit.fault(FaultKind.KILL, MASTER)
    kit.end(MASTER, Ending.KILLED)
    kit.up(MASTER, 0)
    kit.events = [e for e in kit.events if getattr(e, "record", 0) != 9]
    assert {f.check.name for f in kit.judge().findings} == {"I3"}, "only the stranger"


def test_power_loss_everywhere_may_lose_cached_copies() -> None:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE))
    records = kit.send(2)
    kit.acked(records, kit.writer.headers[0], 5 - kit.writer.headers[0].base_offset)
    for broker in (MASTER, SLAVE):
        kit.fault(FaultKind.POWER, broker, number=1 + (broker == SLAVE))
        kit.end(broker, Ending.POWER, 0)
    findings = kit.judge().findings
    assert [f.check.name for f in findings] == ["I2", "I2"], "the slave had it on its disk"
    kit.fault(FaultKind.DISK_EMPTY, SLAVE, number=3)
    assert kit.judge(ANY).outcome is Outcome.OK, kit.judge()


def test_another_message_at_a_lost_offset_is_no_duplicate() -> None:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    kit.produce(1)
    lost, kept = kit.send(1), kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 800)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, lost[0], 1, "k"))
    kit.ack([1])
    kit.add(Unsure(kit.at(), "p", lost[0], "no answer"))
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    header = kit.store(kept)
    kit.ends(MASTER)
    kit.acked(kept, header)
    kit.deliver([1])
    assert kit.broken() == set()


def _lost_and_stored_again(again_is_the_same: bool) -> Kit:
    """Acked and delivered at offset 1; all is lost; the master's next term reuses that offset."""
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    header = kit.produce(1)
    (lost,) = kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 800)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, lost, 1, "k"))
    if not again_is_the_same:
        kit.acked([lost], header, 1)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    kit.epoch += 1
    kit.writer.open_epoch(kit.epoch, MASTER)
    kit.state(Mode.MASTER, MASTER)
    again = [lost] if again_is_the_same else kit.send(1)
    header = kit.store(again)
    kit.ends(MASTER)
    kit.acked(again, header)
    return kit


def test_lost_message_stored_again_gives_no_early_ack() -> None:
    assert _lost_and_stored_again(again_is_the_same=False).broken() == set()
    assert _lost_and_stored_again(again_is_the_same=True).broken() == set()


def _stored_again_below(lost: bool, deleted: bool) -> set[Check]:
    """A message is acked at a later offset than the next message of the same order gets."""
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    kit.change(Setup, 0, retention_bytes=1 << 16)
    header = kit.produce(1)
    (first,) = kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 800, int(kit.writer.end))
    kit.acked([first], header, 5)  # the records between are lost, too
    if lost:
        kit.fault(FaultKind.POWER, MASTER)
        kit.end(MASTER, Ending.POWER, 0)
        kit.up(MASTER)
    later = kit.send(1)
    header = kit.store(later)
    kit.ends(MASTER)
    kit.acked(later, header)
    if deleted:
        more = kit.send(6)
        kit.store(more)
        for record in more:
            kit.add(Unsure(kit.at(), "p", record, "no answer"))
        kit.writer.roll()
        kit.deleted_below = kit.writer.last_base
    return kit.broken()


def test_lost_message_has_no_place_in_the_order() -> None:
    assert _stored_again_below(lost=True, deleted=False) == set()
    assert _stored_again_below(lost=True, deleted=True) == set()
    assert _stored_again_below(lost=False, deleted=True) == {Check.I6}
    assert _stored_again_below(lost=False, deleted=False) == {Check.I2}


def test_cached_commit_may_be_lost_with_the_power() -> None:
    kit = Kit(AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE))
    kit.produce(2)
    kit.ends(MASTER, int(kit.writer.end) + 800)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, int(kit.writer.end))
    kit.up(MASTER)
    assert kit.broken() == set()


def test_a_broker_may_refuse_while_its_disk_fails() -> None:
    kit = Kit()
    kit.fault(FaultKind.DISK_ERROR, SLAVE)
    kit.add(Refusal(kit.at(), SLAVE, "input/output error"))
    assert kit.broken() == set()
    kit.fault(FaultKind.DISK_ERROR, SLAVE, step=Step.HEALED)
    kit.add(Refusal(kit.at(), SLAVE, "damage at position 96"))
    assert {c.name for c in kit.broken()} == {"I10"}


def test_late_ack_of_a_delivery_before_a_seek_is_void() -> None:
    kit = Kit()
    kit.produce(4)
    kit.deliver([0, 1, 2, 3])
    kit.add(Seeking(kit.at(), "s", READERS, place(), 0))
    kit.deliver([0, 1])
    kit.ack([2, 3])
    kit.commit()
    kit.add(Sought(kit.at(), "s", READERS, place()))
    kit.deliver([2, 3])
    kit.ack([0, 1, 2, 3])
    kit.commit(4)
    assert kit.broken() == set()


def test_level_all_means_the_members_at_ack_time() -> None:
    kit = Kit(AckPolicy(how_many=HowMany.ALL, strict=True), members=3)
    kit.produce(1)
    (setup,) = next(e for e in kit.events if isinstance(e, Setup)).groups
    kit.add(Setup(kit.at(), (setup._replace(members=setup.members[:2]),), 100, 0))
    kit.state(Mode.MASTER, MASTER, isr=(SLAVE,))
    kit.end(kit.names[2], Ending.STOPPED, int(kit.writer.end))
    kit.wait(3000)
    records = kit.send(1)
    header = kit.store(records)
    for name in kit.names[:2]:
        kit.ends(name)
    kit.acked(records, header)
    kit.wait(3000)
    kit.add(Setup(kit.at(), (setup,), 100, 0))
    kit.up(kit.names[2])
    assert kit.broken() == set()
    kit.without(Setup, 1)
    assert {c.name for c in kit.broken()} == {"I2"}, "all three were asked"


def test_ends_of_a_just_ended_broker_are_not_guessed() -> None:
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1)
    kit.acked(records, kit.store(records))
    kit.ends(MASTER, asked_ago=4)
    kit.end(SLAVE, Ending.KILLED)
    kit.up(SLAVE, before)
    kit.ends(SLAVE, before, asked_ago=4)
    kit.wait(1000)
    kit.ends(SLAVE, asked_ago=4)
    assert {c.name for c in kit.broken()} == set()


def test_messages_within_retention_limits_may_be_deleted() -> None:
    kit = Kit()
    kit.produce(1)
    kit.writer.roll()
    kit.deleted_below = kit.writer.last_base
    kit.change(Setup, 0, retention_bytes=1 << 16)
    assert kit.broken() == set()
    kit.change(Setup, 0, retention_bytes=1 << 20)
    assert {c.name for c in kit.broken()} == {"I2"}, "more must be left than that"


def test_reader_may_skip_what_its_own_retention_deleted() -> None:
    """The master still has them; a broker that never read skips nothing."""
    for read in (True, False):
        kit = Kit()
        kit.produce(3)
        if read:
            kit.take_over()
        kit.deliver([0, 1, 2])
        kit.ack([0, 2])
        if read:
            kit.hand_over()
        kit.store_floor(3)
        shorter = replace(kit.journal(SLAVE), begins={place(0): 2})
        found = {finding.check for finding in kit.judge(ANY, **{SLAVE: shorter}).findings}
        assert found == (set() if read else {Check.I7})


def test_messages_deleted_by_the_readers_retention_need_not_come() -> None:
    for read in (True, False):
        kit = Kit()
        kit.produce(3)
        if read:
            kit.take_over()
        kit.deliver([2])
        kit.ack([2])
        if read:
            kit.hand_over()
        kit.store_floor(3)
        kit.drained()
        shorter = replace(kit.journal(SLAVE), begins={place(0): 2})
        found = {finding.check for finding in kit.judge(ANY, **{SLAVE: shorter}).findings}
        assert found == (set() if read else {Check.I11})


@pytest.mark.parametrize(("skipped", "broken"), [(2, set()), (1, {Check.I6}), (0, {Check.I6})])
def test_offsets_skipped_by_one_reader_may_come_from_the_next(
    skipped: int, broken: set[Check]
) -> None:
    """Its member was informed how many it skipped."""
    kit = Kit()
    kit.produce(5)
    kit.take_over()
    kit.deliver([0, 1])
    if skipped:
        kit.add(Skipped(kit.at(), MEMBER, READERS, place(), skipped))
    kit.deliver([4])
    kit.hand_over()
    kit.deliver([2, 3])
    assert kit.broken() == broken
