"""Shared by the coordination conformance suites: a harness per adapter, and waiting."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqdev.proxy import Link, Proxies
from fmqport.coordination import Coordination


class Harness(Protocol):
    """Makes sessions on one empty tree, each with its own network, and injects faults."""

    async def session(self) -> Coordination: ...

    async def expire(self, session: Coordination) -> None: ...

    def cut(self, session: Coordination) -> None: ...

    def hold(self, session: Coordination) -> None: ...

    def resume(self, session: Coordination) -> None: ...

    async def wedge(self, seconds: float) -> None:
        """Stall the event loop of every session for that long."""
        ...

    async def close(self) -> None: ...


class ZooKeeperHarness:
    """The real adapter, each session through a link that can be cut."""

    def __init__(self, address: str, proxies: Proxies) -> None:
        self._server, _, self._root = address.partition("/")
        self._proxies = proxies
        self._links: dict[Coordination, Link] = {}

    async def session(self) -> Coordination:
        link = self._proxies.link(self._server)
        made = ZooKeeperSession(f"{link.address}/{self._root}", timeout_ms=2000)
        self._links[made] = link
        await made.start(30)
        return made

    async def expire(self, session: Coordination) -> None:
        assert isinstance(session, ZooKeeperSession)
        await session.expire()

    def cut(self, session: Coordination) -> None:
        self._links[session].cut()

    def hold(self, session: Coordination) -> None:
        self._links[session].hold()

    def resume(self, session: Coordination) -> None:
        self._links[session].resume()

    async def wedge(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for

    async def close(self) -> None:
        for session in self._links:
            await session.close()


async def until(condition: Callable[[], object], within_s: float = 30) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


class Calls:
    """Count calls of a watch, and wait for the next."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    async def more_than(self, before: int) -> None:
        await until(lambda: self.count > before)
