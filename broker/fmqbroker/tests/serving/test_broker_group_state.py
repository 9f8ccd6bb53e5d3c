"""The group store on a real ZooKeeper: cache, compare-and-set, lost answers, live nodes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.tests.failover_harness import (
    CLUSTER,
    GENEROUS_S,
    GROUP,
    ROOT,
    M,
    S,
    until,
)
from fmqbroker.tests.zookeeper_proxy import Proxy
from fmqcore.errors import NotFound, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.zk.group_config import GroupConfig, Member, config_to_json
from fmqcore.zk.group_state import GroupState, Mode, state_from_json, state_to_json
from fmqcore.zk.live_broker import LiveBroker, live_to_json
from fmqport.coordination import ConnectionLost, SessionState

pytestmark = pytest.mark.processes

CONFIG = GroupConfig(GroupName(GROUP), M, (Member(M, "h:1"), Member(S, "h:2")))


def live(broker: BrokerId, incarnation: str, end: int = 0) -> LiveBroker:
    return LiveBroker(broker, incarnation, "h:1", Epoch(1), Position(end))


@asynccontextmanager
async def session_of(address: str) -> AsyncIterator[ZooKeeperSession]:
    session = ZooKeeperSession(
        address, timeout_ms=10_000
    )  # none ends here because the machine is busy
    await session.start(GENEROUS_S)
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def store_of(session: Any, me: BrokerId = M) -> AsyncIterator[GroupStore]:
    store = GroupStore(session, SystemClock(), CLUSTER, GROUP, me)
    await store.load()
    running = asyncio.create_task(store.run())
    try:
        yield store
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def admin(zookeeper: str) -> AsyncIterator[ZooKeeperSession]:
    async with session_of(zookeeper) as session:
        await session.create(f"{ROOT}/config", config_to_json(CONFIG), make_parents=True)
        yield session


async def test_a_group_that_is_not_configured(zookeeper: str) -> None:
    async with session_of(zookeeper) as session:
        store = GroupStore(session, SystemClock(), CLUSTER, GROUP, M)
        with pytest.raises(NotFound, match="/fmq/c/groups/g1/config"):
            await store.load()


async def test_writes_of_other_brokers_are_seen(zookeeper: str, admin: ZooKeeperSession) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        assert store.config == CONFIG
        assert (store.state.value, store.state.version) == (GroupState(), -1)
        written = GroupState(Mode.MASTER, Epoch(1), M, M, frozenset({S}))
        await admin.create(f"{ROOT}/state", state_to_json(written))
        await until(lambda: store.state.value == written)
        strict = replace(CONFIG, strict_takeover=True)
        await admin.set(f"{ROOT}/config", config_to_json(strict), -1)
        await until(lambda: store.config == strict)
        async with store_of(admin, S) as other:
            await other.announce(live(S, "a", 7))
            await until(lambda: store.live.get(S) == live(S, "a", 7))
            await other.withdraw()
            await until(lambda: S not in store.live)


async def test_each_change_is_applied_once(zookeeper: str, admin: ZooKeeperSession) -> None:
    def one_more(state: GroupState) -> GroupState:
        return replace(state, epoch=Epoch(state.epoch + 1))

    async with session_of(zookeeper) as session, store_of(session) as a, store_of(admin, S) as b:
        changes = [store.change(one_more) for store in (a, b) for _ in range(20)]
        made = await asyncio.gather(*changes)
        assert sorted(m.epoch for m in made if m is not None) == list(range(1, 41))
        assert len({m.write_token for m in made if m is not None}) == 40
        await until(lambda: a.state.value.epoch == b.state.value.epoch == 40)


async def test_change_applies_to_its_version_or_fails(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        first = await store.change(lambda s: replace(s, reason="first"), -1)
        assert first is not None
        version = store.state.version
        assert await store.change(lambda s: replace(s, reason="second"), version) is not None
        assert await store.change(lambda s: replace(s, reason="late"), version) is None
        assert await store.change(lambda s: None) is None
        assert store.state.value.reason == "second"


class Lossy:
    """A session whose writes get no answer: applied or not, as configured."""

    def __init__(self, session: ZooKeeperSession, *, done: bool, reads: bool) -> None:
        self._session = session
        self.done = done
        self.reads = reads
        self.lossy = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def set(self, path: str, data: bytes, version: int) -> int:
        if not self.lossy:
            return await self._session.set(path, data, version)
        if self.done:
            await self._session.set(path, data, version)
        raise ConnectionLost("no answer")

    async def get(self, path: str, *, synced: bool = False) -> Any:
        if self.lossy and not self.reads and self.sent:
            raise ConnectionLost("no answer")
        return await self._session.get(path, synced=synced)

    sent = False


@pytest.mark.parametrize("done", [True, False])
async def test_a_change_without_an_answer_is_settled_by_its_token(
    admin: ZooKeeperSession, done: bool
) -> None:
    async with store_of(admin) as store:
        await store.change(lambda s: replace(s, reason="first"))
    lossy = Lossy(admin, done=done, reads=True)
    store = GroupStore(lossy, SystemClock(), CLUSTER, GROUP, M)
    await store.load()
    changing = asyncio.create_task(store.change(lambda s: replace(s, reason=f"{s.reason}+")))
    if not done:  # tried again until it is answered
        await until(lambda: store.unsettled)
        lossy.lossy = False
    made = await changing
    assert made is not None
    assert made.reason == "first+"  # once, not twice
    assert not store.unsettled


async def test_unsettled_change_counts_for_the_in_sync_set(
    admin: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmqbroker.serving.broker_group_state._SETTLE_S", 0.3)
    async with store_of(admin) as store:
        await store.change(lambda s: replace(s, isr=frozenset({S})))
    lossy = Lossy(admin, done=True, reads=False)
    store = GroupStore(lossy, SystemClock(), CLUSTER, GROUP, M)
    await store.load()

    def grow(state: GroupState) -> GroupState:
        lossy.sent = True
        return replace(state, isr=frozenset({BrokerId("g1-2")}))

    with pytest.raises(ConnectionLost, match="may or may not stand"):
        await store.change(grow)
    assert store.unsettled
    assert store.widest_isr == {S, "g1-2"}
    lossy.lossy = False
    await store.prove()  # a synced read that started afterwards
    assert not store.unsettled
    assert store.widest_isr == {"g1-2"}


async def test_a_read_before_a_change_is_sent_does_not_settle_it(
    admin: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease is renewed between the change's own read and its write, which gets no answer."""
    monkeypatch.setattr("fmqbroker.serving.broker_group_state._SETTLE_S", 0.3)

    class Silent(Lossy):
        async def set(self, path: str, data: bytes, version: int) -> int:
            self.sent = True
            return await super().set(path, data, version)

    async with store_of(admin) as store:
        await store.change(lambda s: replace(s, isr=frozenset({S})))
    store = GroupStore(Silent(admin, done=True, reads=False), SystemClock(), CLUSTER, GROUP, M)
    await store.load()
    wider = frozenset({S, BrokerId("g1-2")})
    change = asyncio.create_task(store.change(lambda s: replace(s, isr=wider)))
    renewal = asyncio.create_task(store.prove())
    with pytest.raises(ConnectionLost, match="may or may not stand"):
        await change
    await renewal
    assert store.unsettled
    assert store.widest_isr == wider


async def test_undecodable_state_keeps_the_last_known(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        await store.announce(live(M, "a"))
        good = await store.change(lambda s: replace(s, mode=Mode.MASTER, epoch=Epoch(4), master=M))
        assert store.changeable
        await admin.set(f"{ROOT}/state", b"{not json", -1)
        await admin.set(f"{ROOT}/config", b'{"group": 1}', -1)
        await admin.create(f"{ROOT}/live/{S}", b"\xff", ephemeral=True)
        await until(lambda: S in store.live and not store.changeable)
        assert store.state.value == good
        assert store.config == CONFIG
        with pytest.raises(Unavailable, match="does not decode, so it is not overwritten"):
            await store.change(lambda s: replace(s, reason="over it"))
        assert await admin.get(f"{ROOT}/state") is not None

        assert good is not None
        repaired = replace(good, reason="repaired by hand")
        await admin.set(f"{ROOT}/state", state_to_json(repaired), -1)
        await until(lambda: store.changeable)
        assert store.state.value == repaired


async def test_vanished_state_is_kept_and_recreated(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        await store.change(lambda s: replace(s, epoch=Epoch(4)))
        await admin.delete(f"{ROOT}/state")
        await until(lambda: store.state.version == -1)
        assert store.state.value.epoch == 4
        await store.change(lambda s: replace(s, epoch=Epoch(s.epoch + 1)))
        node = await admin.get(f"{ROOT}/state")
        assert node is not None
        assert state_from_json(node.data).epoch == 5


class Between:
    """A session that runs a callback right after the state was read."""

    def __init__(self, session: ZooKeeperSession, happens: Callable[[], Awaitable[object]]) -> None:
        self._session = session
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def get(self, path: str, *, synced: bool = False) -> Any:
        node = await self._session.get(path, synced=synced)
        if path.endswith("/state"):
            await self._happens()
        return node


async def test_a_look_shows_live_nodes_that_are_newer_than_its_state(
    admin: ZooKeeperSession,
) -> None:
    """A reader that leaves during the look is not taken for live under the state read before."""
    await admin.create(f"{ROOT}/live/{S}", live_to_json(live(S, "a")), make_parents=True)
    store = GroupStore(
        Between(admin, lambda: admin.delete(f"{ROOT}/live/{S}")), SystemClock(), CLUSTER, GROUP, M
    )
    await store.load()
    assert S not in store.live


# ---- live nodes


async def test_live_node_is_recreated_after_expiry(zookeeper: str, admin: ZooKeeperSession) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        assert store.standing == 0
        await store.announce(live(M, "a"))
        first, session_id = store.standing, session.session_id
        assert first
        await store.announce(live(M, "a", 9))  # another end: the same node
        assert store.standing == first
        assert (await store.prove()).standing == first
        await session.expire()
        await until(lambda: session.session_id not in (0, session_id) and store.standing)
        assert store.standing == first + 1
        node = await admin.get(f"{ROOT}/live/{M}")
        assert node is not None
        assert node.owner == session.session_id
        assert store.live[M].end == 9


async def test_time_without_zookeeper_counts_from_the_first_loss(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        assert store.disconnected_ms == 0
        store._on_session(SessionState.SUSPENDED)
        since_ms = store.disconnected_ms = store.disconnected_ms - 1_000
        assert since_ms > 0
        store._on_session(SessionState.LOST)
        assert store.disconnected_ms == since_ms
        store._on_session(SessionState.CONNECTED)
        assert store.disconnected_ms == 0


async def test_a_node_from_before_a_restart_is_replaced(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    async with store_of(admin) as before:
        await before.announce(live(M, "before"))
    async with session_of(zookeeper) as session, store_of(session) as store:
        store.replaces(frozenset({"before"}))
        await store.announce(live(M, "after"))
        assert store.standing
        await until(lambda: store.live.get(M) == live(M, "after"))


async def test_removed_live_node_is_recreated(zookeeper: str, admin: ZooKeeperSession) -> None:
    async with session_of(zookeeper) as session, store_of(session) as store:
        await store.announce(live(M, "a"))
        first = store.standing
        await until(lambda: M in store.live)
        await admin.delete(f"{ROOT}/live/{M}")
        await until(lambda: store.standing > first, "it stands again, with another number")
        assert await admin.get(f"{ROOT}/live/{M}") is not None


async def test_a_second_process_does_not_take_the_name(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    """Two started at the same moment: the first to announce itself has the name."""
    async with session_of(zookeeper) as session, store_of(session) as store:
        await store.announce(live(M, "a"))
        async with store_of(admin) as twin:
            await twin.announce(live(M, "b"))
            assert twin.superseded
            assert (store.superseded, store.standing) == (False, 1)
            await store.withdraw()  # and gives it back
            await until(lambda: twin.standing and not twin.superseded)


async def test_another_that_took_the_name_is_noticed(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    """The other was started with the knowledge that this broker is dead."""
    async with session_of(zookeeper) as session, store_of(session) as store:
        await store.announce(live(M, "a"))
        async with store_of(admin) as twin:
            twin.replaces(frozenset({"a"}))
            await twin.announce(live(M, "b"))
            await until(lambda: store.superseded)
            assert store.standing == 0


async def test_live_node_content_is_repaired_after_a_lost_answer(
    admin: ZooKeeperSession,
) -> None:
    """The session continued: the node stands, with its previous content."""
    lossy = Lossy(admin, done=False, reads=True)
    store = GroupStore(lossy, SystemClock(), CLUSTER, GROUP, M)
    await store.load()
    running = asyncio.create_task(store.run())
    await store.announce(live(M, "a"))
    await store.announce(live(M, "a", 9))
    assert store.live.get(M) != live(M, "a", 9)
    lossy.lossy = False
    await until(lambda: store.live.get(M) == live(M, "a", 9))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_proof_counts_only_while_the_live_node_stands(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    proxy = Proxy(zookeeper)
    try:
        async with session_of(await proxy.mend()) as session, store_of(session) as store:
            assert (await store.prove()).standing == 0
            await store.announce(live(M, "a"))
            before = SystemClock().monotonic_ms()
            proof = await store.prove()
            assert proof.standing == store.standing
            assert proof.sent_ms >= before
            await proxy.cut()
            await until(lambda: not store.connected)
            assert store.standing == 0
            with pytest.raises(Unavailable):
                await store.prove()
            await proxy.mend()
            await until(lambda: store.standing == proof.standing, "the same session, the same node")
    finally:
        await proxy.cut()
