"""Seeks of a consumer group: what checks accept, and what they find."""

import pytest

from e2e.checks.findings import Check
from e2e.history.client_events import Seeking, Skipped, Sought
from e2e.history.cluster_events import Ending
from e2e.tests.kit import FULL, MASTER, MEMBER, READERS, SLAVE, Kit, place
from fmqcore.policy import AckPolicy, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode


def seeking(kit: Kit, offset: int) -> None:
    kit.add(Seeking(kit.at(), "s", READERS, place(), offset))


def sought(kit: Kit, offset: int) -> None:
    kit.add(Sought(kit.at(), "s", READERS, place(), "", offset))


def sought_at(offset: int, count: int = 6) -> Kit:
    kit = Kit()
    kit.produce(count)
    kit.consume([0, 1, 2, 3])
    seeking(kit, offset)
    sought(kit, offset)
    return kit


def test_late_deliveries_are_not_the_seek_target() -> None:
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    seeking(kit, 1)
    sought(kit, 1)
    kit.deliver([4, 5])
    kit.deliver([1, 2, 3, 4, 5])
    kit.writer.roll()
    kit.deleted_below = kit.writer.last_base
    assert Check.I6 not in kit.broken()


def test_seek_below_retention_goes_to_the_first_kept_offset() -> None:
    kit = Kit()
    kit.produce(6)
    kit.deliver([1, 2, 3, 4])
    seeking(kit, 1)
    sought(kit, 3)
    kit.deliver([3, 4])
    kit.ack([3])
    kit.deliver([4, 3])
    assert kit.broken() == set(), "3 may come once more: the seek may have been made twice"
    kit.ack([3])
    kit.deliver([3])
    assert kit.broken() == {Check.I5}


def test_seek_beyond_the_readers_journal_goes_to_its_end() -> None:
    """A takeover reader may lack the seek's target, as far as the policy allows."""
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3, 4])
    seeking(kit, 4)
    sought(kit, 2)
    kit.deliver([2, 3, 4, 5])
    kit.deliver([2, 3, 4, 5])
    assert kit.broken() == set(), "2 may come once more: the seek may have been made twice"
    kit.deliver([3, 5, 4])
    assert kit.broken() == set(), "they came before"
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3, 4])
    seeking(kit, 4)
    sought(kit, 2)
    kit.deliver([2, 4, 3])
    assert kit.broken() == {Check.I6}, "it started at 2, and order counts from there"


def test_a_seek_may_be_made_twice_before_it_is_answered() -> None:
    """Its first answer was lost; then the seek was lost with its reader, and made again."""
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    seeking(kit, 1)
    kit.deliver([1, 2, 3])
    kit.ack([1, 2, 3])
    kit.deliver([2, 3, 4])
    kit.ack([2, 3, 4])
    kit.commit()
    sought(kit, 1)
    kit.floor_seen(2)
    kit.deliver([5])
    kit.deliver([1, 2, 3, 4, 5])
    assert kit.broken() == set()


@pytest.mark.parametrize("early", [False, True])
def test_acks_after_a_seek_count_again(early: bool) -> None:
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    seeking(kit, 1)
    if early:
        kit.deliver([1])
    sought(kit, 1)
    if not early:
        kit.deliver([1])
    kit.deliver([2, 3])
    kit.ack([2, 3])
    kit.deliver([2])
    assert kit.broken() == {Check.I5}


def test_order_after_a_seek_counts_again() -> None:
    kit = sought_at(1)
    kit.deliver([1, 3, 2])
    assert kit.broken() == {Check.I6}


def test_delivery_before_the_seeks_answer_may_be_repeated() -> None:
    """The answer was late: other messages had come by then; later the member loses its session."""
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    seeking(kit, 1)
    kit.deliver([1, 2, 3])
    sought(kit, 1)
    kit.deliver([4])
    kit.deliver([3, 4, 5], who="m.2")
    assert kit.broken() == set()
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    seeking(kit, 1)
    kit.deliver([1, 2])
    sought(kit, 1)
    kit.deliver([4])
    kit.deliver([3, 4, 5], who="m.2")
    assert kit.broken() == {Check.I6}


def test_commits_after_a_seek_must_stand() -> None:
    kit = sought_at(1)
    kit.consume([1, 2, 3])
    kit.floor_seen(2)
    assert kit.broken() == {Check.I7}


@pytest.mark.parametrize("counts", [SlaveCounts.SENT, SlaveCounts.DURABLE])
def test_seek_may_be_lost_where_the_policy_lets_an_ack_be(counts: SlaveCounts) -> None:
    kit = Kit(AckPolicy(counts=counts, how_many=HowMany.ONE))
    kit.produce(6)
    kit.deliver([0, 1])
    kit.deliver([2, 3])
    before = int(kit.writer.end)
    seeking(kit, 3)
    kit.store_floor(3)
    kit.ends(MASTER)
    sought(kit, 3)
    kit.deliver([3, 4])
    kit.end(MASTER, Ending.KILLED)
    kit.end(SLAVE, Ending.KILLED)
    kit.up(SLAVE, before)
    kit.take_over()
    kit.deliver([2])
    lost = counts is SlaveCounts.SENT
    assert (Check.I6 in kit.broken()) is not lost


@pytest.mark.parametrize(("stands_at", "broken"), [(1, set()), (2, {Check.I7})])
def test_floor_is_judged_by_the_ack_of_its_own_message(stands_at: int, broken: set[Check]) -> None:
    """A reader was lost with the ack of 1; later acks, which the next confirmed, wait for it."""
    kit = Kit()
    kit.produce(4)
    kit.deliver([0, 1, 2, 3])
    kit.ack([0])
    kit.commit()
    kit.take_over()
    kit.ack([1])
    kit.commit()
    kit.end(SLAVE, Ending.KILLED)
    kit.up(MASTER)
    kit.epoch += 1
    kit.writer.open_epoch(kit.epoch, MASTER)
    kit.state(Mode.MASTER, MASTER, degraded=True)
    kit.serves(MASTER, FULL)
    kit.ack([2, 3])
    kit.commit()
    kit.floor_seen(stands_at)
    kit.store_floor(4)
    assert kit.broken() == broken


@pytest.mark.parametrize(
    ("knows", "old", "broken"),
    [(False, True, set()), (True, True, {Check.I5}), (False, False, {Check.I5})],
)
def test_seek_unknown_to_the_reader_may_return_with_the_master(
    knows: bool, old: bool, broken: set[Check]
) -> None:
    """Acks of the reader's copies are void meanwhile: a member cannot know (ADR 0021)."""
    kit = Kit(AckPolicy(how_many=HowMany.NONE))
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    had = int(kit.writer.end)
    seeking(kit, 1)
    kit.deliver([1])
    kit.store_floor(1)
    kit.ends(MASTER)
    sought(kit, 1)
    kit.ends(SLAVE, -1 if knows else had)
    kit.take_over()
    reads = kit.epoch
    kit.hand_over()
    kit.deliver([3], epoch=reads if old else kit.epoch)
    kit.ack([3])
    kit.deliver([2, 3])
    assert kit.broken() & {Check.I5} == broken


@pytest.mark.parametrize(("skipped", "broken"), [(2, set()), (1, {Check.I6}), (0, {Check.I6})])
def test_offsets_skipped_after_a_seek_may_come_from_next_reader(
    skipped: int, broken: set[Check]
) -> None:
    """The first delivery after a seek may have skipped offsets, too."""
    kit = Kit()
    kit.produce(6)
    kit.consume([0, 1, 2, 3])
    seeking(kit, 1)
    sought(kit, 3)
    if skipped:
        kit.add(Skipped(kit.at(), MEMBER, READERS, place(), skipped))
    kit.deliver([3, 4])
    kit.hand_over()
    kit.deliver([1, 2])
    assert kit.broken() == broken
