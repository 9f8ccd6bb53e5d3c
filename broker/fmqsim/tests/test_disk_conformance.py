"""The disk port's conformance suite, run with the simulated adapter."""

import asyncio

import pytest

from fmqport.tests.test_disk_conformance import *  # noqa: F403
from fmqport.tests.test_disk_conformance import MakeDisk
from fmqsim.adapters.disk import Storage
from fmqsim.engine.loop import SimLoop
from fmqsim.tests.conftest import a_process


@pytest.fixture  # type: ignore[no-redef]
async def maker() -> MakeDisk:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    storage, process = Storage(loop, "/sim/deep/data"), a_process()
    return lambda: storage.disk(process)
