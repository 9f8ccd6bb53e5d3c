"""Batches whose checksums are right and that cannot be: told, and what is behind them is read."""

from pathlib import Path

import pytest

from fmqcore.tests.journal_writer import sample
from fmqspark.check.rows import Level
from fmqspark.tests.kit import check, codes, flip, write


def test_a_batch_that_does_not_follow_and_whose_payload_is_damaged_hides_nothing(
    tmp_path: Path,
) -> None:
    writer = sample(batches=20)
    bad = writer.data(7, 1, [b"value"], base_offset=99)
    behind = writer.data(7, 1, [b"value"], record_count=9)
    writer.data(7, 1, [b"value"], base_offset=0)
    a = write(tmp_path / "a", writer)
    flip(a, bad.position + 100)
    outcome = check(a)
    assert codes(outcome) == [
        ("J002", "a", bad.position),
        ("J004", "a", bad.position),
        ("J004", "a", behind.end),
    ]
    assert outcome.bytes_by_state()["damaged"] == bad.total_len


@pytest.mark.timeout(20)
@pytest.mark.parametrize("level", Level)
def test_j004_a_batch_without_records(tmp_path: Path, level: Level) -> None:
    writer = sample(batches=20)
    bad = writer.data(7, 1, [b"value"], record_count=0)
    writer.data(7, 2, [b"value"])
    outcome = check(write(tmp_path / "a", writer), level=level)
    [found] = outcome.findings
    assert (found.code, found.begin, found.end) == ("J004", bad.position, bad.end)
    assert outcome.bytes_by_state()["unread"] == bad.total_len
