"""The fixtures of the conformance suites: `node` (transport), `harness` (coordination)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fmqcore.tests.failover.patience import be_patient
from fmqdev.proxy import Proxies
from fmqport.tests.coordination_kit import Harness, ZooKeeperHarness
from fmqport.tests.transport_kit import ADAPTERS, Node

be_patient()  # some draw their examples


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
    """Return new tasks that do not end: an adapter's own may take a few turns."""
    left: set[asyncio.Task[Any]] = set()
    for _ in range(500):
        left = asyncio.all_tasks() - before
        left.discard(asyncio.current_task())
        if not left:
            break
        await asyncio.sleep(0.01)
    return left


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    with Proxies() as made:
        yield made


@pytest.fixture(params=[ZooKeeperHarness])
async def harness(
    request: pytest.FixtureRequest, zookeeper: str, proxies: Proxies
) -> AsyncIterator[Harness]:
    made = request.param(zookeeper, proxies)
    yield made
    await made.close()
