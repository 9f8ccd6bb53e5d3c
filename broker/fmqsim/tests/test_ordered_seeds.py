"""Seeds with an ordered topic: its segments are opened, read and handed on, in one order."""

import pytest

from e2e.checks.verdict import ORDERED, Outcome
from fmqsim.report.run import Result, forked, simulate
from fmqsim.scenario.scene import Focus

SEEDS = (1, 3, 9951610938, 9951610995)
"""Cheap ones, the senders of the second are fenced; then those that failed.

A queue of many small pieces was delivered in one turn. A member that was added took the known end
of a segment back below acknowledged records.
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_ordered_topic_keeps_its_order_over_segments_and_senders(seed: int) -> None:
    def run(seed: int) -> Result:
        return simulate(seed, focus=Focus(ordered=True))

    (result,) = forked([seed], 1, run)
    assert result.outcome is Outcome.OK, result.story or result.reasons
    assert result.counts["segments"] >= ORDERED.segments
    assert result.counts["senders"] >= 2
