"""Waits that end together at common moments: never later than asked, never much too soon."""

from hypothesis import given
from hypothesis import strategies as st

from fmqport.wakeup_alignment import GRID_MS, together, together_s

MOMENTS = st.integers(0, 1 << 45)


@given(MOMENTS, st.integers(2 * GRID_MS, 1 << 30))
def test_long_wait_ends_at_the_last_common_moment_before_its_end(now: int, wait: int) -> None:
    end = together(now + wait, wait)
    assert end % GRID_MS == 0
    assert now + wait - GRID_MS < end <= now + wait
    assert end - now > wait / 2
    assert together_s(now, wait) == (end - now) / 1000


@given(MOMENTS, st.integers(0, 2 * GRID_MS - 1))
def test_a_short_wait_lasts_as_long_as_asked(now: int, wait: int) -> None:
    assert together(now + wait, wait) == now + wait


def test_timer_started_after_a_common_moment_keeps_its_pace() -> None:
    """Otherwise each heartbeat would come a little sooner than the one before."""
    now, ends = 1_000, []
    for _ in range(5):
        now = together(now + 3 + 500, 500)
        ends.append(now)
    assert ends == [1_500, 2_000, 2_500, 3_000, 3_500]
