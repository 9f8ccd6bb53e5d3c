"""Requirements on every adapter of the clock port."""

import asyncio

import pytest

from fmqadapters.process.clock import SystemClock
from fmqport.clock import Clock


@pytest.fixture(params=[SystemClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


async def test_monotonic_time_never_goes_back(clock: Clock) -> None:
    seen = []
    for _ in range(200):
        seen.append(clock.monotonic_ns())
        await clock.sleep(0)
    assert seen == sorted(seen)


async def test_both_units_are_one_clock(clock: Clock) -> None:
    before, between, after = clock.monotonic_ns(), clock.monotonic_ms(), clock.monotonic_ns()
    assert before // 1_000_000 <= between <= after // 1_000_000


async def test_sleep_takes_its_time_on_that_clock_and_lets_others_work(clock: Clock) -> None:
    worked = 0

    async def work() -> None:
        nonlocal worked
        while True:
            worked += 1
            await clock.sleep(0)

    other = asyncio.create_task(work())
    before = clock.monotonic_ms()
    await clock.sleep(0.02)
    assert clock.monotonic_ms() - before >= 19
    other.cancel()
    assert worked > 0


async def test_wall_time_is_milliseconds_since_1970(clock: Clock) -> None:
    assert 1_577_836_800_000 < clock.wall_ms() < 4_102_444_800_000  # 2020 to 2100


async def test_chance_stays_within_its_bounds(clock: Clock) -> None:
    drawn = [clock.uniform(2.0, 3.0) for _ in range(1000)]
    assert all(2.0 <= number <= 3.0 for number in drawn)
    assert len(set(drawn)) > 900
    ids = [clock.random_id() for _ in range(1000)]
    assert all(0 < number < 2**63 for number in ids)
    assert len(set(ids)) == 1000
