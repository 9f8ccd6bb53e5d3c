"""The coordination port's conformance suite, run with the simulated adapter."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fmqport.coordination import Coordination
from fmqport.tests.coordination_kit import Harness
from fmqport.tests.test_coordination_conformance import *  # noqa: F403
from fmqport.tests.test_coordination_ends_conformance import *  # noqa: F403
from fmqport.tests.test_coordination_ordered_conformance import *  # noqa: F403
from fmqsim.adapters.coordination import SimCoordination
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node
from fmqsim.engine.zookeeper import Ensemble, Route
from fmqsim.tests.conftest import a_process

pytestmark: list[pytest.MarkDecorator] = []  # type: ignore[no-redef]  # no process here


class SimHarness:
    """The simulated adapter, each session on its own machine."""

    def __init__(self, loop: SimLoop) -> None:
        self.ensemble = Ensemble(loop)
        self._sessions: list[Coordination] = []
        self._nodes: list[Node] = []
        self._routes: dict[Coordination, Route] = {}

    async def session(self) -> Coordination:
        process = a_process(f"client{len(self._sessions)}")
        made = SimCoordination(self.ensemble, process, 2000)
        self._sessions.append(made)
        self._nodes.append(process.node)
        self._routes[made] = self.ensemble.route(process.node.name)
        await self.ensemble.loop.spawn(process, made.start(30))  # its tasks belong to that process
        return made

    async def expire(self, session: Coordination) -> None:
        self.ensemble.expire(session.session_id)

    def cut(self, session: Coordination) -> None:
        self._routes[session].cut()

    def hold(self, session: Coordination) -> None:
        self._routes[session].hold()

    def resume(self, session: Coordination) -> None:
        self._routes[session].heal()

    async def wedge(self, seconds: float) -> None:
        for node in self._nodes:
            node.wedge()
        await asyncio.sleep(seconds)
        for node in self._nodes:
            node.resume()

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    made = SimHarness(loop)
    yield made
    await made.close()
    assert not loop.problems
