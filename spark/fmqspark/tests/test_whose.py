"""Whose directories they are that are checked together."""

from pathlib import Path

import pytest

from fmqcore.journal.incarnations import INCARNATIONS
from fmqspark.tests.kit import check, write

GOOD = b"fmq/g1\ngrant_ms=2000\n0123456789abcdef\n"


def test_of_one_group(a: Path, b: Path) -> None:
    for directory in (a, b):
        (directory / INCARNATIONS).write_bytes(GOOD)
    assert (check(a, b).findings, check(a).findings) == ([], [])


@pytest.mark.parametrize("others", [1, 2])
def test_of_two_groups(tmp_path: Path, a: Path, b: Path, others: int) -> None:
    """Who is in the minority is told; of two both are, as nobody knows."""
    more = [b, write(tmp_path / "c")][:others]
    for directory in more:
        (directory / INCARNATIONS).write_bytes(GOOD)
    (a / INCARNATIONS).write_bytes(GOOD.replace(b"g1", b"g3"))
    outcome = check(a, *more)
    told = {Path(f.replica).name: f.sentence for f in outcome.findings}
    assert told["a"] == "it is of group fmq/g3 (cluster/group), others here are of fmq/g1"
    assert set(told) == ({"a"} if others == 2 else {"a", "b"})
    assert {f.code for f in outcome.findings} == {"M001"}
    assert outcome.exit_code == 2


@pytest.mark.parametrize(("bad", "exit_code"), [(b"nonsense\n", 1), (b"/\n", 2)])
def test_what_no_broker_writes(a: Path, bad: bytes, exit_code: int) -> None:
    (a / INCARNATIONS).write_bytes(bad)
    outcome = check(a)
    assert [(f.code, f.file) for f in outcome.findings] == [("M001", INCARNATIONS)]
    assert outcome.exit_code == exit_code


def test_what_cannot_be_read_is_not_ok(a: Path) -> None:
    (a / INCARNATIONS).mkdir()
    outcome = check(a)
    assert [(c.file, c.state) for c in outcome.coverage if c.state == "unread"] == [
        (INCARNATIONS, "unread")
    ]
    assert outcome.exit_code == 3
