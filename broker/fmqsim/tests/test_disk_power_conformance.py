"""A disk's content after a power cut: the real disk's suite, for many seeds."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fmqport.disk import Disk
from fmqport.tests.test_disk_power_conformance import *  # noqa: F403
from fmqport.tests.test_disk_power_conformance import Machine
from fmqsim.adapters.disk import Storage
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node, Process

SEEDS = range(25)


class SimMachine:
    """A node with a storage."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        loop.random.seed(seed)
        self._loop = loop
        self._node = Node(loop, "machine")
        self._storage = Storage(loop, "/sim/data")

    async def disk(self) -> Disk:
        async def main(process: Process) -> None:
            await self._loop.create_future()

        disk = self._storage.disk(self._node.start(main))
        await disk.lock("me")
        return disk

    async def cut_power(self) -> None:
        # Work in flight may be at any point.
        await asyncio.sleep(self._loop.random.choice((0, 0.0001, 0.0005, 0.001)))
        self._node.crash("power")
        self._storage.cut_power()


@pytest.fixture(params=SEEDS)  # type: ignore[no-redef]
async def machine(request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    yield SimMachine(loop, request.param)
    for process in loop.graveyard:
        process.alive = True  # the runner wants to cancel what never ended
