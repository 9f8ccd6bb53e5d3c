"""The fixture of the transport's conformance suite: `node`, once for each adapter."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fmqport.tests.transport_kit import ADAPTERS, Node


@pytest.fixture(params=sorted(ADAPTERS))
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    node = Node(ADAPTERS[request.param]())
    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        yield node
        await node.close()
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}, "a task was left behind"
