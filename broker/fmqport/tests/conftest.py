"""The fixture of the transport's conformance suite: `node`, once for each adapter."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fmqport.tests.transport_kit import ADAPTERS, Node


@pytest.fixture(params=sorted(ADAPTERS))
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    node = Node(ADAPTERS[request.param]())
    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        yield node
        await node.close()
    left = await _left(before)
    assert not left, "a task was left behind"


async def _left(before: "set[asyncio.Task[Any]]") -> "set[asyncio.Task[Any]]":
    """Tasks that are new and do not end: an adapter's own may take a few turns to."""
    left: set[asyncio.Task[Any]] = set()
    for _ in range(500):
        left = asyncio.all_tasks() - before
        left.discard(asyncio.current_task())
        if not left:
            break
        await asyncio.sleep(0.01)
    return left
