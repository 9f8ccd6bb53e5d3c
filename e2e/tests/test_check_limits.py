"""Where each rule of the checks ends: what is just beyond it is found, what is within is not."""

from collections.abc import Callable

import pytest

from e2e.checks.findings import Check
from e2e.checks.verdict import Outcome
from e2e.history.client_events import Delivered, Left, Sent, Stored, Unsure
from e2e.history.cluster_events import (
    Ending,
    Ends,
    Fault,
    FaultKind,
    Look,
    PhaseName,
    Setup,
    State,
    Step,
)
from e2e.tests.kit import (
    GROUP,
    MASTER,
    MEMBER,
    NONE,
    READ,
    READERS,
    SLAVE,
    Kit,
    place,
)
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.zk.group_state import Mode

CACHE_ALONE = AckPolicy(flush=Flush.OS_CACHE, how_many=HowMany.NONE)

# ---- I1 to I4


def test_two_records_acked_at_one_lost_offset_are_found() -> None:
    kit = Kit()
    header = kit.produce(1)
    for record in kit.send(2):
        kit.acked([record], header, 1)
    assert Check.I1 in kit.broken()


def test_the_first_message_of_a_queue_is_missed_as_any_other() -> None:
    kit = Kit()
    (record,) = kit.send(1)
    kit.add(Stored(kit.at(), "p", record, place(), 0))
    assert kit.broken() == {Check.I2}
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 0, record, 1, "k"))
    assert kit.broken() == {Check.I2, Check.I4}


def test_delivery_before_its_send_is_a_phantom() -> None:
    kit = Kit()
    kit.produce(1)
    kit.deliver([0])
    late = next(e for e in kit.events if isinstance(e, Delivered)).at_ms + 1
    kit.change(Sent, 0, at_ms=late)
    assert Check.I3 in kit.broken()


@pytest.mark.parametrize("level", ["one_way", "received"])
def test_delivered_record_must_stay_at_any_ack_level(level: str) -> None:
    """A reader shows only what its policy has made safe."""
    kit = Kit()
    kit.produce(1)
    (record,) = kit.send(1, level=level)
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, record, 1, "k"))
    kit.add(Unsure(kit.at(), "p", record, "no answer"))
    kit.fault(FaultKind.KILL, MASTER)
    assert kit.broken() == {Check.I4}
    kit.produce(1)  # its offset is reused
    assert kit.broken() == {Check.I1}


def test_loss_of_a_former_master_is_no_excuse() -> None:
    kit = Kit(CACHE_ALONE)
    kit.epoch += 1
    kit.add(State(kit.at(), GROUP, Mode.MASTER, kit.epoch, SLAVE, SLAVE, (MASTER,)))
    kit.wait(5000)
    header = kit.produce(1)
    kit.acked(kit.send(1), header, 1)
    kit.fault(FaultKind.DISK_EMPTY, MASTER)
    assert Check.I2 in kit.broken()


def test_master_elected_after_the_ack_did_not_give_it() -> None:
    """An exactly known change of master is not seen late."""
    kit = Kit(CACHE_ALONE)
    header = kit.produce(1)
    kit.acked(kit.send(1), header, 1)
    kit.epoch += 1
    kit.add(State(kit.at(), GROUP, Mode.MASTER, kit.epoch, SLAVE, SLAVE, (MASTER,)))
    kit.fault(FaultKind.DISK_EMPTY, SLAVE)
    assert Check.I2 in kit.broken()


# ---- acked or delivered too early


def _short(kit: Kit, broker: str, asked_ago: float = 0, *, durable: int, commit: int = -1) -> None:
    """The whole journal is there, but durable only up to `durable`."""
    end, now = int(kit.writer.end), kit.at()
    commit = end if commit < 0 else commit
    kit.add(Ends(now - asked_ago, now, broker, GROUP, 0, end, durable, commit))


@pytest.mark.parametrize("asked_ago", [0, 4])
def test_ack_persisted_before_fsync_is_found(asked_ago: float) -> None:
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1, level="persisted")
    header = kit.store(records)
    _short(kit, MASTER, asked_ago, durable=before)
    kit.acked(records, header)
    kit.wait(100)
    _short(kit, MASTER, asked_ago, durable=before)
    kit.wait(3000)
    kit.ends(MASTER, asked_ago=asked_ago)
    assert kit.broken() == {Check.I2}


def test_delivery_above_the_commit_end_is_found() -> None:
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1)
    header = kit.store(records)
    for name in kit.names:
        kit.ends(name, -1, before)
    kit.deliver([1])
    kit.wait(3000)
    for name in kit.names:
        kit.ends(name)
    kit.acked(records, header)
    assert kit.broken() == {Check.I4}


def test_early_ack_is_found_with_samples_far_apart() -> None:
    kit = Kit()
    kit.produce(1)
    before = int(kit.writer.end)
    records = kit.send(1)
    kit.acked(records, kit.store(records))
    kit.ends(MASTER, asked_ago=4)
    kit.wait(1000)
    kit.ends(SLAVE, before, before, asked_ago=4)
    assert kit.broken() >= {Check.I2}


def test_early_ack_is_found_by_the_durable_end_at_exit() -> None:
    kit = Kit(AckPolicy(flush=Flush.FSYNC))
    kit.produce(1)
    before = int(kit.writer.end)
    kit.ends(SLAVE, asked_ago=4)
    records = kit.send(1, level="all")
    kit.acked(records, kit.store(records))
    kit.end(SLAVE, Ending.KILLED, before)
    assert kit.broken() == {Check.I2}


def test_record_stored_again_does_not_date_its_first_ack() -> None:
    kit = Kit(CACHE_ALONE)
    header = kit.produce(1)
    records = kit.send(1)
    kit.ends(MASTER)
    kit.acked(records, header, 1)
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER, 0)
    kit.epoch += 1
    kit.writer.open_epoch(kit.epoch, MASTER)
    kit.state(Mode.MASTER, MASTER)
    kit.store(records)
    kit.ends(MASTER)
    assert Check.I2 not in kit.broken()


# ---- I5


def test_duplicate_is_found_after_retention_deleted_one() -> None:
    kit = Kit()
    kit.change(Setup, 0, retention_bytes=1)
    records = kit.send(1)
    kit.store(records)
    kit.ends(MASTER)
    kit.deliver([0])
    kit.writer.roll()
    kit.deleted_below = kit.writer.last_base
    header = kit.store(records)
    for name in kit.names:
        kit.ends(name)
    kit.acked(records, header)
    assert kit.broken() == {Check.I5}


def _slept(
    asleep: str, *, confirmed_late_ms: float = 0, wakes_ms: float = 0, stands_ms: float = 5000
) -> Kit:
    """`m.2` holds a message, `m.1` finishes it, and `m.2` delivers it."""
    kit = Kit()
    kit.produce(1)
    kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, asleep, Step.FIRED, "pause client"))
    kit.wait(stands_ms)
    if confirmed_late_ms:
        kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, asleep, Step.HEALED, "pause client"))
        kit.wait(confirmed_late_ms)
    kit.consume([0], who="n.1")
    if not confirmed_late_ms:
        kit.add(Fault(kit.at(), 7, FaultKind.CLIENT, asleep, Step.HEALED, "pause client"))
    kit.wait(wakes_ms)
    kit.deliver([0], who="m.2")
    return kit


def test_paused_client_may_deliver_once_just_after_waking() -> None:
    assert _slept("m").broken() == set()
    assert _slept("m", wakes_ms=5000).broken() == {Check.I5}
    assert _slept("m", confirmed_late_ms=100).broken() == {Check.I5}
    assert _slept("other").broken() == {Check.I5}


def test_loss_after_the_redelivery_is_no_excuse() -> None:
    """The power takes the whole journal, before or after the redelivery."""
    for late, broken in ((False, set()), (True, {Check.I5})):
        kit = Kit(CACHE_ALONE)
        kit.produce(3)
        kit.consume([0, 1, 2])
        if late:
            kit.deliver([2], who="m.2")
        kit.fault(FaultKind.POWER, MASTER)
        kit.end(MASTER, Ending.POWER, 0)
        kit.up(MASTER, 0)
        if not late:
            kit.deliver([2], who="m.2")
        assert kit.broken() & {Check.I5} == broken


# ---- I11


@pytest.mark.parametrize(
    ("phases", "broken"),
    [
        ([("healed", 1), ("whole", 70), ("over", 0)], set()),
        ([("healed", 50), ("healed", 50), ("whole", 0)], set()),
        ([("healed", 1), ("whole", 1), ("healed", 70), ("whole", 0)], {Check.I11}),
    ],
)
def test_recovery_time_counts_from_the_last_heal(
    phases: list[tuple[str, int]], broken: set[Check]
) -> None:
    kit = Kit()
    for name, seconds in phases:
        kit.phase(PhaseName[name.upper()])
        kit.wait(seconds * 1000)
    kit.phase(PhaseName.OVER)
    assert kit.broken() == broken


def test_queue_without_any_delivery_is_found() -> None:
    kit = Kit()
    kit.produce(1)
    kit.drained()
    assert kit.broken() == {Check.I11}


def test_new_message_at_a_reused_offset_must_be_delivered() -> None:
    kit = Kit(CACHE_ALONE)
    kit.produce(1)
    (lost,) = kit.send(1)
    kit.ends(MASTER, int(kit.writer.end) + 400)
    kit.deliver([0])
    kit.add(Delivered(kit.at(), MEMBER, READERS, place(), 1, lost, 1, "k"))
    kit.ack([0, 1])
    kit.add(Unsure(kit.at(), "p", lost, "no answer"))
    kit.fault(FaultKind.POWER, MASTER)
    kit.end(MASTER, Ending.POWER, 0)
    kit.up(MASTER)
    kit.produce(1)
    kit.commit(2)
    kit.drained()
    assert kit.broken() == {Check.I11}


def test_earlier_loss_does_not_excuse_an_undelivered_message() -> None:
    kit = Kit()
    kit.fault(FaultKind.KILL, SLAVE)
    kit.end(SLAVE, Ending.KILLED, 0)
    kit.up(SLAVE)
    kit.produce(2)
    kit.consume([0])
    kit.deliver([1])
    kit.add(Left(kit.at(), MEMBER, READERS, orderly=False))
    kit.drained()
    assert kit.broken() == {Check.I11}


# ---- I12


def _master_serves_no_reader(kit: Kit) -> None:
    kit.serves(MASTER, NONE)


def _slave_serves(kit: Kit) -> None:
    kit.serves(SLAVE, READ)


def _sampled(kit: Kit) -> None:
    kit.events = [e for e in kit.events if type(e).__name__ != "Serves"]
    kit.add(Look(kit.at(), kit.now + 1, MASTER, GROUP, READ, 1))


def _starts(kit: Kit) -> None:
    kit.up(SLAVE)


@pytest.mark.parametrize("wrong", [_master_serves_no_reader, _slave_serves, _sampled, _starts])
def test_wrong_permission_in_the_calm_phase_is_found(wrong: Callable[[Kit], None]) -> None:
    kit = Kit()
    if wrong is _starts:
        kit.end(SLAVE, Ending.STOPPED, int(kit.writer.end))
    kit.phase(PhaseName.CALM)
    assert kit.judge().outcome is Outcome.OK
    wrong(kit)
    kit.wait(10)
    kit.phase(PhaseName.TROUBLE)
    assert Check.I12 in kit.broken()


# ---- excuses are one broker's own


def test_full_disk_of_another_broker_excuses_no_loss() -> None:
    for full, broken in ((SLAVE, {Check.I2}), (MASTER, set())):
        kit = Kit(CACHE_ALONE)
        header = kit.produce(1)
        kit.fault(FaultKind.DISK_FULL, full)
        kit.ends(MASTER, int(kit.writer.end) + 400)
        kit.acked(kit.send(1, level="received"), header, 1)
        kit.end(MASTER, Ending.STOPPED, 0)
        kit.up(MASTER, 0)
        assert kit.broken() & {Check.I2} == broken


def test_pause_of_another_broker_excuses_no_loss() -> None:
    for still, broken in ((SLAVE, {Check.I2}), (MASTER, set())):
        kit = Kit()
        header = kit.produce(1)
        kit.ends(MASTER, int(kit.writer.end) + 400)
        kit.acked(kit.send(1, level="received"), header, 1)
        kit.fault(FaultKind.PAUSE, still)
        kit.wait(5000)
        kit.end(MASTER, Ending.KILLED, 0)
        kit.up(MASTER, 0)
        assert kit.broken() & {Check.I2} == broken
