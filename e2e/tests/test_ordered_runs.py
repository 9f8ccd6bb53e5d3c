"""Sound histories of ordered topics, and what excuses a gap."""

from dataclasses import replace

import pytest

from e2e.checks.ordered_sought import StoreTimes, too_early
from e2e.checks.verdict import Outcome
from e2e.history.client_events import OrderedDelivered, OrderedSought, OrderedStored
from e2e.history.cluster_events import FaultKind
from e2e.tests.breaks_ordered import CHAIN, Chain, emptied, filled_again, sound_chains, switched
from e2e.tests.breaks_sought import FUTURE, LATER, SEEKERS, moved
from e2e.tests.kit import ANY, MASTER, SLAVE, sound


@pytest.mark.parametrize("number", range(len(sound_chains())))
def test_sound_chain_has_no_findings(number: int) -> None:
    verdict = sound_chains()[number].judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)
    assert verdict.counts["acknowledged in order"] == 4
    assert verdict.counts["segments"] == 2


@pytest.mark.parametrize(
    ("to_ms", "came"),
    [(0, [1001, 1002, 1003, 1004]), (LATER, [1003, 1004]), (FUTURE, [1004])],
)
def test_group_moved_to_a_time_gets_what_was_stored_then(to_ms: int, came: list[int]) -> None:
    verdict = moved(to_ms, came).judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)
    assert verdict.counts["seeks to times"] == 1


def test_readers_moved_into_an_open_segment_show_nothing_before() -> None:
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001, 1002])
    chain.store("copier", 1, [1001])
    chain.store("copier", 2, [1002], sequence=2)
    chain.hand_on(3, 2)
    chain.open("deputy", 1001, -1, accepts=True)
    chain.kit.add(OrderedSought(chain.kit.at(), chain.kit.at(), SEEKERS, CHAIN, 0))
    chain.send("deputy", [1003])
    chain.store("deputy", 3, [1003])
    for segment, record in ((1, 1001), (2, 1002), (3, 1003)):
        chain.deliver(segment, [record])
        if segment > 1:
            chain.deliver(segment, [record], readers=SEEKERS)
    assert "deputy was active" not in str(chain.end().judge(ANY))


def test_clock_set_then_store_times_show_nothing() -> None:
    kit = moved(LATER, [1004])
    kit.fault(FaultKind.CLOCK, MASTER)
    assert kit.judge(ANY).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("copy_ms", "segment", "early"), [(500, 2, False), (1000, 2, True), (500, 1, True)]
)
def test_first_record_is_too_early_unless_its_place_was_given(
    copy_ms: int, segment: int, early: bool
) -> None:
    """Record 1 lies before it in its segment: a copy of an earlier segment is delivered there."""
    stored = {
        record: OrderedStored(1.0, "copier", CHAIN, record, 0, at, record, "g1", offset)
        for record, at, offset in ((1, segment, 10), (2, segment, 11))
    }
    times = StoreTimes(
        of_record={1: copy_ms, 2: 1000},
        of_place={("g1", 0, 10): 1000, ("g1", 0, 11): 1000},
    )
    sought = OrderedSought(2.0, 3.0, SEEKERS, CHAIN, 60_000)
    first = OrderedDelivered(4.0, "o1", SEEKERS, CHAIN, 0, segment, "g1", 11, 2)
    assert bool(too_early(sought, first, stored, times)) is early


def test_all_disks_of_a_group_lost_then_its_records_are_excused() -> None:
    for delivered in ([(2, [1003, 1004])], [(1, [1001]), (2, [1003, 1004])], []):
        verdict = emptied(switched(delivered), MASTER, SLAVE).judge(ANY)
        assert verdict.outcome is Outcome.OK, str(verdict)


def test_all_disks_lost_then_a_record_without_an_ack_is_excused() -> None:
    for brokers, outcome in (((MASTER, SLAVE), Outcome.OK), ((MASTER,), Outcome.BROKEN)):
        chain = Chain()
        chain.open("copier")
        chain.send("copier", [1001, 1002, 1003])
        chain.store("copier", 2, [1003], sequence=3)
        chain.deliver(1, [1001])
        chain.deliver(2, [1003])
        assert emptied(chain.end(), *brokers).judge(ANY).outcome is outcome


def test_disks_lost_in_turn_and_filled_then_nothing_is_excused() -> None:
    for number in range(len(sound_chains())):
        kit = emptied(filled_again(sound_chains()[number], SLAVE), MASTER)
        assert kit.judge(ANY).outcome is Outcome.OK  # as all came
    kit = emptied(filled_again(switched([(2, [1003, 1004])]), SLAVE), MASTER)
    assert kit.judge(ANY).outcome is Outcome.BROKEN


def test_disk_lost_after_a_delivery_excuses_another_place_once() -> None:
    for kept, lost, outcome in (
        (False, True, Outcome.OK),
        (False, False, Outcome.BROKEN),
        (True, True, Outcome.BROKEN),
    ):
        chain = Chain()
        chain.open("copier")
        chain.send("copier", [1001, 1002, 1003])
        chain.store("copier", 1, [1001, 1002])
        if kept:
            chain.append([1003])
        chain.deliver(1, [1001, 1002, 1003])
        if lost:
            emptied(chain.kit, SLAVE)
        chain.store("copier", 2, [1003], sequence=3)
        chain.deliver(2, [1003])
        assert chain.end().judge(ANY).outcome is outcome


def test_run_with_few_ordered_records_or_segments_shows_nothing() -> None:
    kit = sound_chains()[0]
    enough = replace(ANY, ordered_records=4, segments=2)
    assert kit.judge(enough).outcome is Outcome.OK
    for lacking in (replace(enough, ordered_records=5), replace(enough, segments=3)):
        verdict = kit.judge(lacking)
        assert verdict.outcome is Outcome.UNKNOWN
        (reason,) = verdict.reasons
        assert reason.startswith("only ")


def test_ordered_traffic_that_never_came_shows_nothing() -> None:
    assert sound().judge(replace(ANY, segments=1)).outcome is Outcome.UNKNOWN
