"""Sound histories of ordered topics, and what excuses a gap."""

import pytest

from e2e.checks.verdict import Outcome
from e2e.tests.breaks_ordered import (
    an_acknowledged_record_that_no_segment_delivers,
    emptied,
    sound_chains,
)
from e2e.tests.kit import ANY


@pytest.mark.parametrize("number", range(len(sound_chains())))
def test_sound_chain_has_no_findings(number: int) -> None:
    verdict = sound_chains()[number].judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)
    assert verdict.counts["acknowledged in order"] == 4
    assert verdict.counts["segments"] == 2


def test_emptied_disk_then_a_gap_is_excused() -> None:
    verdict = emptied(an_acknowledged_record_that_no_segment_delivers()).judge(ANY)
    assert verdict.outcome is Outcome.OK, str(verdict)
