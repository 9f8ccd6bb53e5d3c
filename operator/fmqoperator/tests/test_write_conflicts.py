"""An object that is overwritten again and again is left alone, and reported; others are applied."""

from typing import Any

import pytest

from fmqoperator.core.observation import HASH
from fmqoperator.core.write_conflicts import MOST, REPEAT_AFTER_S, Contests, words

KEY = ("uid", "StatefulSet", "g1")


def made(mark: str, replicas: int = 2) -> dict[str, Any]:
    meta = {"name": "g1", "annotations": {HASH: mark}}
    return {"kind": "StatefulSet", "metadata": meta, "spec": {"replicas": replicas}}


def tries(contests: Contests, count: int, begin_s: float = 0.0, mark: str = "a") -> list[bool]:
    """Return whether it was made, each second."""
    return [attempt(contests, mark, begin_s + at) for at in range(count)]


def attempt(contests: Contests, mark: str, now_s: float) -> bool:
    if contests.is_lost(KEY, made(mark), now_s):
        return False
    contests.made(KEY, made(mark), now_s)
    return True


def test_repeated_writes_end_after_the_allowed_tries() -> None:
    contests = Contests()
    assert tries(contests, 20) == [at <= MOST for at in range(20)]
    assert tries(contests, 20, REPEAT_AFTER_S + MOST) == [at == 0 for at in range(20)], (
        "one try more"
    )


def test_object_that_stayed_as_made_may_be_made_again() -> None:
    contests = Contests()
    tries(contests, 20)
    assert all(tries(contests, MOST, 3 * REPEAT_AFTER_S))


def test_occasional_manual_edit_is_reverted_each_time() -> None:
    contests = Contests()
    pause_s = REPEAT_AFTER_S / (MOST - 1)
    assert all(attempt(contests, "a", at * pause_s) for at in range(50))


def test_new_desired_object_is_made_at_once() -> None:
    """A Service follows a master that moves to and fro."""
    contests = Contests()
    assert all(attempt(contests, "ab"[at % 2], at) for at in range(50))
    tries(contests, 20, 100)
    assert tries(contests, 1, 120, "b") == [True]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (made("of another"), "another FMQ operator, of another version or with other options"),
        (made("a", 7), "spec.replicas was changed by another writer (a webhook, an autoscaler?)"),
    ],
)
def test_conflict_message_names_the_likely_writer(there: dict[str, Any], expected: str) -> None:
    assert expected in words(made("a"), there)
    assert words(made("a"), there).startswith(
        "StatefulSet g1 is changed by another writer again and again"
    )
