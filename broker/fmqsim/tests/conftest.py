"""Fixtures of the conformance suites for simulated adapters: a loop with virtual time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node, Process


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"simulated": SimLoop}


def a_process(name: str = "127.0.0.1") -> Process:
    """A process that does nothing, on a node of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)

    async def main(process: Process) -> None:
        await loop.create_future()

    return Node(loop, name).start(main)
