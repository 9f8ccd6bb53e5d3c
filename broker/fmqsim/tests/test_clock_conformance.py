"""The clock port's conformance suite, run with the simulated adapter."""

import asyncio

import pytest

from fmqport.clock import Clock
from fmqport.tests.test_clock_conformance import *  # noqa: F403
from fmqsim.adapters.clock import SimClock
from fmqsim.engine.loop import SimLoop
from fmqsim.tests.conftest import a_process


@pytest.fixture  # type: ignore[no-redef]
async def clock() -> Clock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return SimClock(loop, a_process())
