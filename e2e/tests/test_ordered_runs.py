"""Sound histories of ordered topics, and what excuses a gap."""

from dataclasses import replace

import pytest

from e2e.checks.verdict import Outcome
from e2e.tests.breaks_ordered import Chain, emptied, filled_again, sound_chains, switched
from e2e.tests.kit import ANY, MASTER, SLAVE, sound


@pytest.mark.parametrize("number", range(len(sound_chains())))
def test_sound_chain_has_no_findings(number: int) -> None:
    verdict = sound_chains()[number].judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)
    assert verdict.counts["acknowledged in order"] == 4
    assert verdict.counts["segments"] == 2


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
