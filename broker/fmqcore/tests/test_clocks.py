"""The certain part of the difference between two clocks."""

import pytest

from fmqcore.clocks import APART_MS, FUTURE_MS, Base, base_of, disagreement
from fmqcore.ids import BrokerId

A, B = BrokerId("g1-1"), BrokerId("g1-2")
WALL_MS = 1_750_000_000_000


def test_a_minute_is_the_limit_of_clocks_and_store_times() -> None:
    assert APART_MS == FUTURE_MS == 60_000


@pytest.mark.parametrize(
    ("peer_wall_ms", "asked_ms", "heard_ms", "base"),
    [
        (WALL_MS, 1000, 1400, Base(WALL_MS - 1400, WALL_MS - 1000)),
        (WALL_MS, 1000, 1000, Base(WALL_MS - 1000, WALL_MS - 1000)),
        (WALL_MS, 1000, 1000 + APART_MS, Base(WALL_MS - 1000 - APART_MS, WALL_MS - 1000)),
        (WALL_MS, 1000, 1001 + APART_MS, None),  # it took too long
        (WALL_MS, 1000, 999, None),  # answered before it was asked
        (0, 1000, 1400, None),  # an older version sends no time
    ],
)
def test_clock_bounds_from_an_answer(
    peer_wall_ms: int, asked_ms: int, heard_ms: int, base: Base | None
) -> None:
    assert base_of(peer_wall_ms, asked_ms, heard_ms) == base


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "now_ms", "ahead_ms"),
    [
        (100, 200, 150, 0),
        (100, 200, 100, 0),
        (100, 200, 200, 0),
        (100, 200, 90, 10),  # at least ten ahead
        (100, 200, 230, -30),
        (100, 100, 100, 0),
        (-50, -40, 0, -40),
    ],
)
def test_only_a_certain_difference_counts(
    low_ms: int, high_ms: int, now_ms: int, ahead_ms: int
) -> None:
    assert Base(low_ms, high_ms).ahead_ms(now_ms) == ahead_ms


@pytest.mark.parametrize(
    ("ahead_ms", "reason"),
    [
        ({}, None),
        ({A: 0, B: 0}, None),
        ({A: APART_MS, B: -APART_MS}, None),
        (
            {A: APART_MS + 1},
            "the clock of g1-1 is 60 s ahead of this broker's: correct the wrong clock",
        ),
        (
            {A: 0, B: -90_000},
            "the clock of g1-2 is 90 s behind this broker's: correct the wrong clock",
        ),
        (
            {A: 70_000, B: -90_000},
            "the clock of g1-2 is 90 s behind this broker's: correct the wrong clock",
        ),
    ],
)
def test_the_furthest_clock_is_named(ahead_ms: dict[BrokerId, int], reason: str | None) -> None:
    assert disagreement(ahead_ms) == reason
