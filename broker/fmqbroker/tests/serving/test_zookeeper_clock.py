"""ZooKeeper's clock, as its nodes show it, confirms a broker's or does not (ADR 0070)."""

from dataclasses import replace
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.runtime.steady_clock import SteadyClock
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.tests.failover_harness import CLUSTER, GROUP, M
from fmqbroker.tests.serving.test_broker_group_state import admin, session_of, store_of
from fmqcore.ids import Epoch, Position
from fmqcore.zk.live_broker import LiveBroker
from fmqport.coordination import Node

pytestmark = pytest.mark.processes

__all__ = ["admin"]
DAY_MS = 24 * 3600 * 1000
LIVE = LiveBroker(M, "i", "h:1", Epoch(1), Position(8))


class Wrong(SystemClock):
    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS])
@pytest.mark.usefixtures("admin")
async def test_new_live_node_shows_zookeepers_time(zookeeper: str, ahead_ms: int) -> None:
    clock = SteadyClock(Wrong(ahead_ms))
    clock.note_newest(clock.wall_ms() + DAY_MS)
    async with session_of(zookeeper) as session:
        store = GroupStore(session, clock, CLUSTER, GROUP, M)
        await store.load()
        assert not clock.may_correct
        await store.announce(LIVE)
        assert clock.may_correct is (ahead_ms == 0)


class Later:
    """A session in which the nodes of one name were written a day later."""

    def __init__(self, session: ZooKeeperSession, name: str) -> None:
        self._session = session
        self._name = name

    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        node = await self._session.get(path, synced=synced)
        later = node is not None and path.endswith(self._name)
        return replace(node, modified_ms=node.modified_ms + DAY_MS) if node and later else node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("name", ["config", "state", "neither"])
async def test_nodes_of_the_future_confirm_nothing(
    zookeeper: str, admin: ZooKeeperSession, name: str
) -> None:
    """Once seen they count for good: the state is soon written again with the time of now."""
    async with store_of(admin) as store:
        await store.change(lambda s: s)
    clock = SteadyClock(Wrong(0))
    clock.note_newest(clock.wall_ms() + DAY_MS)
    async with session_of(zookeeper) as session:
        store = GroupStore(Later(session, name), clock, CLUSTER, GROUP, M)
        await store.load()
        await store.announce(LIVE)
        assert clock.may_correct is (name == "neither")
