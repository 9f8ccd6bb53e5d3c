"""Which group the directories belong to that are checked together."""

from pathlib import Path

import pytest

from fmqcore.journal.journal_identity import INCARNATIONS
from fmqspark.tests.kit import alike, check, rows, write

GOOD = b"fmq/g1\ngrant_ms=2000\n0123456789abcdef\n"


def test_directories_of_one_group_have_no_finding(a: Path, b: Path) -> None:
    for directory in (a, b):
        (directory / INCARNATIONS).write_bytes(GOOD)
    assert (check(a, b).findings, check(a).findings) == ([], [])


@pytest.mark.parametrize("others", [1, 2])
def test_directories_of_two_groups_then_the_minority_is_found(
    tmp_path: Path, a: Path, b: Path, others: int
) -> None:
    """The minority is reported; of two both are, as neither is known to be right."""
    more = [b, write(tmp_path / "c")][:others]
    for directory in more:
        (directory / INCARNATIONS).write_bytes(GOOD)
    (a / INCARNATIONS).write_bytes(GOOD.replace(b"g1", b"g3"))
    outcome = check(a, *more)
    reported = {Path(f.replica).name: f.sentence for f in outcome.findings}
    assert reported["a"] == "it is of group fmq/g3 (cluster/group), others here are of fmq/g1"
    assert set(reported) == ({"a"} if others == 2 else {"a", "b"})
    assert {f.code for f in outcome.findings} == {"M001"}
    assert outcome.exit_code == 2


def test_journals_of_two_groups_are_not_two_copies(tmp_path: Path, a: Path) -> None:
    """As R001 the finding would advise a person to move one of them away."""
    others = [write(tmp_path / name, alike(300)) for name in ("b", "c")]
    (a / INCARNATIONS).write_bytes(GOOD.replace(b"g1", b"g3"))
    (others[0] / INCARNATIONS).write_bytes(GOOD)
    outcome = check(a, *others[:1])
    assert {(f.code, Path(f.replica).name) for f in outcome.findings} == {
        ("M001", "a"), ("M001", "b"),
    }  # fmt: skip
    assert {name for name, _, _ in rows(outcome, "not compared")} == {"a", "b"}
    (others[1] / INCARNATIONS).write_bytes(GOOD)
    outcome = check(a, *others)
    assert {f.code for f in outcome.findings if Path(f.replica).name == "a"} == {"M001"}
    assert {name for name, _, _ in rows(outcome, "not compared")} == {"a"}


@pytest.mark.parametrize("named", [True, False])
def test_unknown_group_is_recognised_by_content(tmp_path: Path, a: Path, named: bool) -> None:
    b = write(tmp_path / "b", alike(300))
    if named:
        (a / INCARNATIONS).write_bytes(GOOD)
    assert {f.code for f in check(a, b).findings} & {"R001", "R002"}


@pytest.mark.parametrize(("bad", "exit_code"), [(b"nonsense\n", 1), (b"/\n", 2)])
def test_incarnations_content_that_no_broker_writes(a: Path, bad: bytes, exit_code: int) -> None:
    (a / INCARNATIONS).write_bytes(bad)
    outcome = check(a)
    assert [(f.code, f.file) for f in outcome.findings] == [("M001", INCARNATIONS)]
    assert outcome.exit_code == exit_code


def test_unreadable_incarnations_file_is_not_ok(a: Path) -> None:
    (a / INCARNATIONS).mkdir()
    outcome = check(a)
    assert [(c.file, c.state) for c in outcome.coverage if c.state == "unread"] == [
        (INCARNATIONS, "unread")
    ]
    assert outcome.exit_code == 3
