"""The simulated ZooKeeper is as harsh as a real one may be: lagging followers, ended sessions.

The suite shared with a real one cannot require that: a real one may be quick. A simulated one that
always was would make every seed green. These tests use the wire, below a client like kazoo.
"""

import asyncio

import pytest

from fmqadapters.zookeeper.session_core import Request, Verb
from fmqadapters.zookeeper.watches import Watch, Watches
from fmqport.coordination import SessionState
from fmqsim.adapters.coordination import SimCoordination, SimLink
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.zookeeper import Break, Ensemble
from fmqsim.engine.zookeeper_servers import Server, Session
from fmqsim.engine.zookeeper_tree import Tree, Txn
from fmqsim.engine.zookeeper_wire import Connection
from fmqsim.tests.conftest import a_process

SOON = 0.02  # a dial, a request: a few hops, and the lag of a follower
SEEDS = range(8)


class Raw(SimLink):
    """A client without kazoo's thread: it acts on request and keeps what it receives."""

    def __init__(self, ensemble: Ensemble, name: str = "raw") -> None:
        self.asked_ms = 2000
        self.route = ensemble.route(name)
        self.received: list[object] = []
        self.connection: Connection | None = None
        self._dials = 0

    async def dial(self, server: Server, session: int = 0, zxid: int = 0) -> None:
        self._dials += 1
        self.route.dial(self, self._dials, server, session, zxid)
        await asyncio.sleep(SOON)

    @property
    def there(self) -> Connection:
        assert self.connection is not None
        return self.connection

    @property
    def session(self) -> Session:
        return self.there.session

    def ask(self, verb: Verb, path: str, *, number: int = 1, watch: Watch | None = None) -> None:
        self.there.ask(number, Request(verb, path, ephemeral=verb is Verb.CREATE, watch=watch))

    # ---- received messages
    def connected(self, attempt: int, connection: Connection) -> None:
        self.connection = connection
        self.received.append("connected")

    def refused(self, attempt: int) -> None:
        self.received.append("refused")

    def expired(self, attempt: int) -> None:
        self.received.append("expired")

    def dropped(self, connection: Connection) -> None:
        self.received.append("dropped")

    def ponged(self, connection: Connection) -> None:
        self.received.append("ponged")

    def answered(
        self, connection: Connection, number: int, value: object, error: Exception | None, zxid: int
    ) -> None:
        self.received.append(number)

    def fired(self, connection: Connection, watch: Watch) -> None:
        self.received.append("fired")


@pytest.fixture
async def ensemble() -> Ensemble:
    """An ensemble led by server 0."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return Ensemble(loop)


def a_watch(path: str) -> Watch:
    return Watch(Watches(), path, lambda: None)


def has(server: Server, path: str) -> bool:
    return path in server.tree.nodes


async def at(ensemble: Ensemble, when: float) -> None:
    await asyncio.sleep(when - ensemble.loop.now)


# ---- servers


async def test_a_follower_has_it_later_than_the_leader(ensemble: Ensemble) -> None:
    leader, *followers = ensemble.servers
    behind: set[int] = set()
    for number in range(20):
        ensemble.put(f"/{number}", b"")
        while not all(has(server, f"/{number}") for server in ensemble.servers):
            if has(leader, f"/{number}"):
                behind |= {f.number for f in followers if not has(f, f"/{number}")}
            await asyncio.sleep(0.0001)
    assert behind == {1, 2}


async def test_elected_leader_starts_with_all_committed_writes(ensemble: Ensemble) -> None:
    ensemble.cut_off(1, 1000)
    ensemble.cut_off(2, 1000)
    ensemble.put("/a", b"")
    await asyncio.sleep(SOON)
    ensemble.stop_server(0)
    await asyncio.sleep(2)
    assert ensemble.leader in ensemble.servers[1:]
    assert all(has(server, "/a") for server in ensemble.servers[1:])


async def test_returning_server_has_each_committed_write_once(
    ensemble: Ensemble,
) -> None:
    server = ensemble.servers[1]
    ensemble.stop_server(1)
    ensemble.put("/a", b"0")
    await asyncio.sleep(SOON)
    ensemble.start_server(1)
    assert has(server, "/a")
    ensemble.put("/a", b"1")  # in flight to it, though reported on another path
    ensemble.stop_server(1)
    ensemble.start_server(1)
    ensemble.put("/a/b", b"")
    assert not has(server, "/a/b")
    assert not server.tree.nodes["/a"].children
    await asyncio.sleep(SOON)
    assert server.tree.nodes["/a"].version == ensemble.truth.nodes["/a"].version == 1
    assert list(server.tree.nodes["/a"].children) == ["b"]


def test_a_snapshot_does_not_change_with_the_tree() -> None:
    tree = Tree()
    copy = tree.copy()
    tree.apply(Txn(1, Verb.CREATE, ("/a",)))
    assert (tree.read(Request(Verb.LIST, "/")), copy.read(Request(Verb.LIST, "/"))) == (["a"], [])


# ---- sessions


async def test_leader_learns_a_followers_client_at_the_next_half_tick(
    ensemble: Ensemble,
) -> None:
    clients = [Raw(ensemble, f"of{number}") for number in (1, 2)]
    for number, client in enumerate(clients, 1):
        await client.dial(ensemble.servers[number])
    await at(ensemble, 1.01)
    for client in clients:
        client.there.ping()
    await at(ensemble, 1.05)
    assert [client.received for client in clients] == [["connected", "ponged"]] * 2
    ensemble.stop_server(2)  # its knowledge is lost
    await at(ensemble, 2.5)
    assert [client.session.over for client in clients] == [False, True]
    await at(ensemble, 3.5)
    assert [client.session.over for client in clients] == [True, True]


async def test_client_of_an_isolated_follower_loses_its_session(ensemble: Ensemble) -> None:
    client = Raw(ensemble)
    await client.dial(ensemble.servers[1])
    ensemble.cut_off(1, 5)
    for _ in range(10):
        client.there.ping()
        await asyncio.sleep(0.3)
    assert client.received == ["connected", *["ponged"] * 10], (
        "it answers, and no other server knows"
    )
    assert client.session.over
    await at(ensemble, 6)
    assert client.received[-1] == "dropped"
    assert not ensemble.loop.problems


async def test_ended_session_writes_nothing_even_at_an_unaware_server(
    ensemble: Ensemble,
) -> None:
    """An ephemeral of a dead session would exist for ever."""
    client = Raw(ensemble)
    await client.dial(ensemble.servers[1])
    ensemble.servers[1].applies_at = 1.0  # that is how slow it is
    ensemble.expire(client.session.number)
    client.ask(Verb.CREATE, "/e")
    await at(ensemble, 3)
    assert ensemble.peek("/e") is None
    assert client.received == ["connected", "dropped"]
    assert not ensemble.loop.problems


async def test_moved_session_is_known_and_drops_its_old_connection(
    ensemble: Ensemble,
) -> None:
    old, new = Raw(ensemble), Raw(ensemble)
    await old.dial(ensemble.servers[1])
    await at(ensemble, 1.01)
    await new.dial(ensemble.servers[2], old.session.number)
    assert (old.received, new.received) == (["connected", "dropped"], ["connected"])
    assert new.session is old.session
    old.ask(Verb.CREATE, "/late")
    await at(ensemble, 2.5)
    assert ensemble.peek("/late") is None
    assert not new.session.over, "it has its whole time from when it moved"


# ---- connections


async def test_client_ahead_of_a_server_is_refused(ensemble: Ensemble) -> None:
    client, server = Raw(ensemble), ensemble.servers[1]
    ensemble.put("/a", b"")
    await asyncio.sleep(SOON)
    await client.dial(server, zxid=server.tree.zxid + 1)
    await client.dial(server, zxid=server.tree.zxid)
    assert client.received == ["refused", "connected"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_reconnecting_client_sees_no_older_data(ensemble: Ensemble, seed: int) -> None:
    """A slow server is not isolated: it would accept the client."""
    ensemble.random.seed(seed)
    session = SimCoordination(ensemble, a_process(), 2000)
    await session.start(10)
    (here,) = (server for server in ensemble.servers if server.connections)
    other = next(s for s in ensemble.servers if s not in (here, ensemble.leader))
    other.applies_at = 1000.0
    await session.create("/a", b"")
    ensemble.route("127.0.0.1").reset()
    if here is not ensemble.leader:
        ensemble.stop_server(here.number)
    await asyncio.sleep(3)
    assert session.state is SessionState.CONNECTED
    assert not other.connections
    assert await session.get("/a") is not None


async def test_isolated_follower_takes_no_client_and_forwards_nothing(
    ensemble: Ensemble,
) -> None:
    inside, outside = Raw(ensemble, "inside"), Raw(ensemble, "outside")
    await inside.dial(ensemble.servers[1])
    await outside.dial(ensemble.servers[2])
    ensemble.cut_off(1, 1.0)
    await outside.dial(ensemble.servers[1], outside.session.number)
    inside.ask(Verb.CREATE, "/a")
    await asyncio.sleep(0.9)
    assert ensemble.peek("/a") is None
    assert (inside.received, outside.received) == (["connected"], ["connected"])
    await asyncio.sleep(0.2)
    assert ensemble.peek("/a") is not None
    assert (inside.received, outside.received) == (
        ["connected", 1],
        ["connected", "dropped", "connected"],
    )


async def test_watch_fires_once_and_only_if_it_was_set(
    ensemble: Ensemble,
) -> None:
    client = Raw(ensemble)
    await client.dial(ensemble.servers[1])
    client.ask(Verb.WATCH_CHILDREN, "/a", watch=a_watch("/a"))
    client.ask(Verb.WATCH, "/b", number=2, watch=a_watch("/b"))
    await asyncio.sleep(SOON)
    for path in ("/a/child", "/b", "/b"):
        ensemble.put(path, b"")
        await asyncio.sleep(SOON)
    assert client.received == ["connected", 1, 2, "fired"]


async def test_held_data_arrives_in_order_both_ways(ensemble: Ensemble) -> None:
    client = Raw(ensemble)
    await client.dial(ensemble.servers[0])
    for to in (True, False):
        client.received.clear()
        client.route.hold(to=to, back=not to)
        for number in range(5):
            client.ask(Verb.READ, "/", number=number)
        await asyncio.sleep(SOON)
        assert not client.received
        client.route.heal()
        await asyncio.sleep(SOON)
        assert client.received == [0, 1, 2, 3, 4]


async def test_only_the_next_write_is_broken(ensemble: Ensemble) -> None:
    client = Raw(ensemble)
    for how in Break:
        client.route.break_next = how
        for path in ("/lost", "/done"):
            await client.dial(ensemble.servers[0])
            client.received.clear()
            client.ask(Verb.DELETE, path)
            await asyncio.sleep(SOON)
            assert client.received == (["dropped"] if path == "/lost" else [1])


# ---- a client


async def test_a_wedged_client_does_not_dial(ensemble: Ensemble) -> None:
    process = a_process()
    session = SimCoordination(ensemble, process, 2000)
    await ensemble.loop.spawn(process, session.start(10))  # its duties are that process's
    process.node.wedge()
    await asyncio.sleep(2.5)
    ensemble.route("127.0.0.1").reset()
    await asyncio.sleep(1)
    dialled = any(server.connections for server in ensemble.servers)
    process.node.resume()
    await asyncio.sleep(3)
    assert not dialled
    assert session.state is SessionState.CONNECTED


async def test_the_connection_of_a_dead_client_is_closed(ensemble: Ensemble) -> None:
    process = a_process()
    session = SimCoordination(ensemble, process, 2000)
    await session.start(10)
    process.node.crash("killed")
    await asyncio.sleep(SOON)
    process.alive = True  # so that the test may end
    assert not any(server.connections for server in ensemble.servers)
    assert ensemble.session_of("127.0.0.1"), "it is not over yet"


async def test_late_write_is_done_later_and_a_lost_one_never(ensemble: Ensemble) -> None:
    raw = Raw(ensemble)
    await raw.dial(ensemble.servers[0])
    delays: list[float | None] = [1.0, 0.0, None]
    ensemble.delay_of = lambda _session, _request: delays.pop(0)
    raw.ask(Verb.CREATE, "/late")
    await asyncio.sleep(0.9)
    assert not has(ensemble.servers[0], "/late")
    await asyncio.sleep(0.2)
    assert has(ensemble.servers[0], "/late")
    assert raw.received == ["connected", 1]
    raw.ask(Verb.CREATE, "/lost", number=2)
    await asyncio.sleep(1)
    assert not has(ensemble.servers[0], "/lost")
    assert raw.received == ["connected", 1, "dropped"]
