"""Requirements on every adapter of the lifecycle port, checked from outside the program."""

import signal
from collections.abc import AsyncIterator

import pytest

from fmqport.tests.lifecycle_kit import REASON, Life, RealLife


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def life(request: pytest.FixtureRequest) -> AsyncIterator[Life]:
    life = RealLife(request.param)
    yield life
    await life.close()


async def test_a_request_to_stop_is_an_event_and_the_end_is_orderly(life: Life) -> None:
    await life.begin("waits")
    await life.ask_to_stop()
    output, reason = await life.end()
    assert output == ["ready", "stopping", "cleaned up"]
    assert not reason


async def test_fatal_ends_the_process_at_once_without_clean_up(life: Life) -> None:
    await life.begin("dies")
    output, reason = await life.end()
    assert output == ["ready"]
    assert reason.endswith(f"fatal: {REASON}")
