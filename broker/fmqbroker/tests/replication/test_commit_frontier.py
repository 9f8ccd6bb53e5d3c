"""The commit frontier: it never falls, and each move wakes whoever waits for it, once."""

import pytest

from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqcore.ids import Position


@pytest.mark.parametrize(
    ("commit_end", "all_end", "after", "notified"),
    [
        (80, 60, (80, 60), 0),
        (81, 60, (81, 60), 1),
        (80, 61, (80, 61), 1),
        (81, 61, (81, 61), 1),
        (70, 50, (80, 60), 0),  # R4
        (90, 50, (90, 60), 1),
        (70, 70, (80, 70), 1),
    ],
)
def test_each_end_moves_forward_by_itself(
    commit_end: int, all_end: int, after: tuple[int, int], notified: int
) -> None:
    commit = CommitFrontier()
    assert (commit.commit_end, commit.all_end, commit.failed_below) == (0, 0, 0)
    commit.advance(Position(80), Position(60))
    count = commit.changed.count
    commit.advance(Position(commit_end), Position(all_end))
    assert (commit.commit_end, commit.all_end) == after
    assert commit.changed.count == count + notified


def test_a_refusal_and_its_end_wake_those_who_wait_for_either() -> None:
    commit = CommitFrontier()
    commit.accept()
    assert (commit.policy_changed.count, commit.changed.count) == (0, 0), "it was met already"
    commit.refuse("no slave is in sync", Position(9))
    assert (commit.unwritable_reason, commit.failed_below) == ("no slave is in sync", 9)
    assert (commit.policy_changed.count, commit.changed.count) == (1, 1)
    commit.accept()
    assert (commit.unwritable_reason, commit.failed_below) == (None, 9)
    assert (commit.policy_changed.count, commit.changed.count) == (2, 2)
