"""Sound histories of ordered topics, and what excuses a gap."""

from dataclasses import replace

import pytest

from e2e.checks.verdict import Outcome
from e2e.tests.breaks_ordered import (
    an_acknowledged_record_that_no_segment_delivers,
    emptied,
    sound_chains,
)
from e2e.tests.kit import ANY, sound


@pytest.mark.parametrize("number", range(len(sound_chains())))
def test_sound_chain_has_no_findings(number: int) -> None:
    verdict = sound_chains()[number].judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)
    assert verdict.counts["acknowledged in order"] == 4
    assert verdict.counts["segments"] == 2


def test_emptied_disk_then_a_gap_is_excused() -> None:
    verdict = emptied(an_acknowledged_record_that_no_segment_delivers()).judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)


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
