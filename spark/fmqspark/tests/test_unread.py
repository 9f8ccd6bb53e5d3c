"""What cannot be read takes no finding away, and hides no more than itself."""

from pathlib import Path

import pytest

from fmqcore.batch import BatchHeader
from fmqcore.consume.sidefile import NAME as SIDE_JOURNAL
from fmqcore.journal.resume import RESUME
from fmqcore.journal.segments import MIN_SEGMENT, index_name
from fmqcore.words import Position
from fmqspark.check.rows import Level
from fmqspark.tests.kit import check, codes, flip, journal

BASES = sorted(journal().segments)
SEALED = [h for h in journal().headers if BASES[1] <= h.position < BASES[2]]
LAST = [h for h in journal().headers if h.position >= BASES[-1]]


@pytest.mark.parametrize("level", [Level.STANDARD, Level.DEEP])
@pytest.mark.parametrize(
    ("name", "victim"),
    [
        (index_name(Position(MIN_SEGMENT)), SEALED[5]),
        (RESUME, LAST[1]),
        (SIDE_JOURNAL, LAST[1]),
    ],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_a_small_file_that_cannot_be_read_is_all_that_is_not(
    a: Path, name: str, victim: BatchHeader, level: Level, damaged: bool
) -> None:
    (a / name).unlink(missing_ok=True)
    (a / name).mkdir()
    if damaged:
        flip(a, victim.position + 64)
    outcome = check(a, level=level)
    assert codes(outcome) == ([("J001", "a", victim.position)] if damaged else [])
    assert outcome.exit_code == (2 if damaged else 3)
    unread = [(c.file, c.bytes, c.why) for c in outcome.coverage if c.state == "unread"]
    assert (name, 0, "Is a directory") in unread
    assert sum(c.bytes for c in outcome.coverage) == len(BASES) * MIN_SEGMENT
