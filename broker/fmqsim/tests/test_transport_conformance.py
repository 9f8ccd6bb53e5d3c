"""The transport port's conformance suite, run with the simulated adapter."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fmqport.tests.test_call_context_conformance import *  # noqa: F403
from fmqport.tests.test_transport_conformance import *  # noqa: F403
from fmqport.tests.test_transport_ends_conformance import *  # noqa: F403
from fmqport.tests.transport_kit import Node
from fmqsim.adapters.transport import SimTransport
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.network import Network
from fmqsim.tests.conftest import a_process


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    node = Node(SimTransport(Network(loop), a_process()))
    before = asyncio.all_tasks()
    yield node
    await node.close()
    await asyncio.sleep(1)
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}, "a task was left behind"
    assert not loop.problems
