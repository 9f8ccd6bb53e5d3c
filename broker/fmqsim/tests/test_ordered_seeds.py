"""Seeds with an ordered topic: its segments are opened, read and handed on, in one order."""

import pytest

from e2e.checks.verdict import ORDERED, Outcome
from fmqsim.report.run import Result, forked, simulate
from fmqsim.scenario.scene import Focus

SEEDS = (
    (1, "senders"),
    (3, "senders"),
    (109181080, "seeks to times"),
    (109181082, "lowered ends"),
)
"""Cheap ones, with what happens in them."""


@pytest.mark.parametrize(("seed", "happens"), SEEDS)
def test_ordered_topic_keeps_its_order_over_segments_and_senders(seed: int, happens: str) -> None:
    def run(seed: int) -> Result:
        return simulate(seed, focus=Focus(ordered=True, seek_times=True))

    (result,) = forked([seed], 1, run)
    assert result.outcome is Outcome.OK, result.story or result.reasons
    assert result.counts["segments"] >= ORDERED.segments
    assert result.counts["senders"] >= 2
    assert result.counts[happens]
