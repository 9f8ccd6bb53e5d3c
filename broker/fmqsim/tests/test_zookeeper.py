"""The simulated ZooKeeper beyond the shared suite: faults on demand, at exact times."""

import asyncio

import pytest

from fmqadapters.zookeeper.session_core import Verb
from fmqport.coordination import ConnectionLost, Coordination, SessionState, Write
from fmqport.sequential_nodes import create_once, find_own
from fmqsim.adapters.coordination import SimCoordination
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process
from fmqsim.engine.zookeeper import Break, Ensemble
from fmqsim.tests.conftest import a_process

SEEDS = range(8)


class World:
    """An ensemble and clients."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        loop.random.seed(seed)
        self.loop = loop
        self.ensemble = Ensemble(loop)

    async def client(self, name: str, timeout_ms: int = 2000) -> tuple[Coordination, Process]:
        process = a_process(name)
        session = SimCoordination(self.ensemble, process, timeout_ms)
        await session.start(10)
        return session, process

    def server_of(self, session: Coordination) -> int:
        (number,) = {
            server.number
            for server in self.ensemble.servers
            for connection in server.connections
            if connection.session.number == session.session_id
        }
        return number

    async def client_at_a_follower(self) -> Coordination:
        for number in range(100):
            session, _ = await self.client(f"follower{number}")
            if self.ensemble.servers[self.server_of(session)] is not self.ensemble.leader:
                return session
        raise AssertionError("no session is at a follower")


@pytest.fixture(params=SEEDS)
async def world(request: pytest.FixtureRequest) -> World:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return World(loop, request.param)


@pytest.mark.parametrize("in_one_go", [False, True])
async def test_isolated_follower_reads_old_data_and_sync_waits(
    world: World, in_one_go: bool
) -> None:
    writer, _ = await world.client("writer")
    await writer.create("/a", b"old")
    session = await world.client_at_a_follower()
    await session.sync("/a")
    world.ensemble.cut_off(world.server_of(session), 1.0)
    cut_at = world.loop.now
    world.ensemble.put("/a", b"new")
    await asyncio.sleep(0.3)
    node = await session.get("/a")
    assert node is not None
    assert node.data == b"old"
    if in_one_go:
        node = await session.get("/a", synced=True)
    else:
        await session.sync("/a")
        node = await session.get("/a")
    assert node is not None
    assert node.data == b"new"
    assert world.loop.now >= cut_at + 1.0


async def test_session_ends_at_its_timeout_and_not_before(world: World) -> None:
    session, process = await world.client("one", 2000)
    watcher, _ = await world.client("two")
    await session.create("/e", b"", ephemeral=True)
    await session.sync("/")
    last = world.loop.now
    process.node.crash("killed")
    while await watcher.get("/e") is not None:
        await asyncio.sleep(0.01)
    assert last + 1.99 <= world.loop.now <= last + 2.5
    process.alive = True


async def test_paused_machine_loses_its_session_and_learns_it_later(world: World) -> None:
    session, process = await world.client("one", 2000)
    watcher, _ = await world.client("two")
    await session.create("/e", b"", ephemeral=True)
    states: list[SessionState] = []
    session.on_state(states.append)
    first = session.session_id
    process.node.pause()
    await asyncio.sleep(3)
    assert await watcher.get("/e") is None
    assert (states, session.session_id) == ([], first)
    process.node.resume()
    await asyncio.sleep(3)
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    assert session.session_id not in (0, first)


async def test_session_gets_its_full_timeout_after_a_lost_quorum(
    world: World,
) -> None:
    session, process = await world.client("one", 2000)
    watcher, _ = await world.client("two")
    await session.create("/e", b"", ephemeral=True)
    session_id = session.session_id
    world.ensemble.lose_quorum(60)
    await asyncio.sleep(0.01)
    assert session.state is SessionState.SUSPENDED
    with pytest.raises(ConnectionLost):
        await session.get("/e")
    await asyncio.sleep(58)
    process.node.crash("killed")
    while watcher.state is not SessionState.CONNECTED:
        await asyncio.sleep(0.01)
    assert await watcher.get("/e") is not None
    assert session_id in world.ensemble.sessions
    await asyncio.sleep(3)
    await watcher.sync("/")
    assert await watcher.get("/e") is None
    process.alive = True


async def test_a_write_whose_answer_is_lost_is_done(world: World) -> None:
    session, process = await world.client("one")
    await session.create("/a", b"old")
    route = world.ensemble.route(process.node.name)
    route.break_next = Break.AFTER
    with pytest.raises(ConnectionLost):
        await session.set("/a", b"new", 0)
    assert (world.ensemble.peek("/a"), route.broken) == (b"new", 1)


async def test_a_write_that_is_lost_is_not_done(world: World) -> None:
    session, process = await world.client("one")
    await session.create("/a", b"old")
    route = world.ensemble.route(process.node.name)
    route.break_next = Break.BEFORE
    with pytest.raises(ConnectionLost):
        await session.set("/a", b"new", 0)
    await asyncio.sleep(1)
    assert (world.ensemble.peek("/a"), route.broken) == (b"old", 1)
    assert session.state is SessionState.CONNECTED


@pytest.mark.parametrize(("how", "data"), [(Break.BEFORE, b"old"), (Break.AFTER, b"new")])
async def test_transaction_breaks_before_or_after_all_its_writes(
    world: World, how: Break, data: bytes
) -> None:
    session, process = await world.client("one")
    for path in ("/a", "/b"):
        await session.create(path, b"old")
    world.ensemble.route(process.node.name).break_next = how
    with pytest.raises(ConnectionLost):
        await session.set_all([Write("/a", b"new", 0), Write("/b", b"new", 0)])
    await asyncio.sleep(1)
    for server in world.ensemble.servers:
        assert [server.tree.nodes[path].data for path in ("/a", "/b")] == [data, data]


@pytest.mark.parametrize("how", Break)
async def test_sequential_node_without_an_answer_is_found(world: World, how: Break) -> None:
    session, process = await world.client("one")
    await session.create("/line", b"")
    world.ensemble.route(process.node.name).break_next = how
    with pytest.raises(ConnectionLost):
        await session.create_sequential("/line/token-", b"")
    await asyncio.sleep(1)
    made = sorted(world.ensemble.truth.nodes["/line"].children)
    assert made == (["token-0000000000"] if how is Break.AFTER else [])
    assert await create_once(session, "/line/token-", b"") == "token-0000000000"
    assert list(world.ensemble.truth.nodes["/line"].children) == ["token-0000000000"]


async def test_own_node_is_found_at_a_server_that_lags(world: World) -> None:
    """The new connection may be to a server that has not applied the unanswered create."""
    session = await world.client_at_a_follower()
    await session.create("/line", b"")
    await session.sync("/line")
    world.ensemble.cut_off(world.server_of(session), 1.0)
    made = ("/line/token-0000000000",)
    world.ensemble.commit(Verb.CREATE, made, owner=session.session_id)
    assert await session.children("/line") == []
    assert await find_own(session, "/line/token-") == "token-0000000000"


async def test_a_leader_dies_and_the_sessions_live_on(world: World) -> None:
    session, _ = await world.client("one")
    await session.create("/e", b"", ephemeral=True)
    session_id = session.session_id
    leader = world.ensemble.leader
    assert leader is not None
    world.ensemble.stop_server(leader.number)
    await asyncio.sleep(3)
    assert world.ensemble.leader not in (None, leader)
    assert (session.state, session.session_id) == (SessionState.CONNECTED, session_id)
    world.ensemble.start_server(leader.number)
    await session.create("/a", b"")
    await asyncio.sleep(0.1)
    assert all("/a" in server.tree.nodes for server in world.ensemble.servers)


async def test_one_way_silence_is_noticed_after_two_thirds_timeout(world: World) -> None:
    for to in (True, False):
        session, process = await world.client(f"to={to}", 3000)
        since = world.loop.now
        world.ensemble.route(process.node.name).hold(to=to, back=not to)
        while session.state is SessionState.CONNECTED:
            await asyncio.sleep(0.01)
        assert world.loop.now - since <= 2.0 + 0.5  # kazoo's jitter is up to 0.4 s


async def test_a_watch_may_come_long_after_the_change(world: World) -> None:
    session, _ = await world.client("one")
    calls: list[float] = []
    session.watch("/a", lambda: calls.append(world.loop.now))
    await asyncio.sleep(0.1)
    assert len(calls) == 1
    world.ensemble.late_watch_s = (2.0, 2.0)
    world.ensemble.put("/a", b"")
    changed = world.loop.now
    await asyncio.sleep(3)
    assert changed + 2.0 <= calls[1] < changed + 2.1


async def test_a_client_does_not_go_back_to_a_server_that_knows_less(world: World) -> None:
    session = await world.client_at_a_follower()
    here = world.server_of(session)
    leader = world.ensemble.leader
    assert leader is not None
    (third,) = {0, 1, 2} - {here, leader.number}
    world.ensemble.cut_off(third, 1000.0)
    await session.create("/a", b"")
    world.ensemble.stop_server(here)
    await asyncio.sleep(3)
    assert world.server_of(session) == leader.number
    assert await session.get("/a") is not None
