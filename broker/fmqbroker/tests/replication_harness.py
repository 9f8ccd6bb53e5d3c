"""Shared by the replication tests: the replicating halves of brokers, in one process.

Real journals in directories, real gRPC on loopback, the machine's clock. ZooKeeper is `Zoo`, an
in-memory compare-and-set. Terms are opened as `failover/transitions.py` opens them. `Tap` sits in a
slave's streams: it may hold, drop, change or repeat messages.
"""

import asyncio
import shutil
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmqadapters.disk.files import FileDisk
from fmqadapters.grpc import GrpcTransport
from fmqadapters.process.clock import SystemClock
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.master import MasterReplication
from fmqbroker.replication.slave import SlaveReplication
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.tests.journal_kit import Life, data, epoch, everything
from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.policy import AckPolicy
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.coordination import ConnectionLost
from fmqport.disk import Disk
from fmqport.tests.held_port import held_port
from fmqport.transport import CallContext, Connection, Method, Server, Stream
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import HAND_OVER

GENEROUS_S = 30.0
MASTER = BrokerId("g1-0")
POLICY = AckPolicy()


async def until(seen: Callable[[], object], what: str = "") -> None:
    """Wait for a condition with a generous timeout."""
    try:
        async with asyncio.timeout(GENEROUS_S):
            while not seen():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never came true: {what or seen}") from None


async def turns(count: int = 50) -> None:
    """Let all ready tasks run."""
    for _ in range(count):
        await asyncio.sleep(0.001)


class Zoo:
    """The group's nodes, and every state they ever had."""

    def __init__(self, config: GroupConfig, state: GroupState) -> None:
        self.config = config
        self.history = [state]
        self.away = False
        self.stores: list[GroupDouble] = []

    def set_state(self, state: GroupState) -> None:
        self.history.append(state)
        self.notify()

    def set_policy(self, policy: AckPolicy) -> None:
        self.config = replace(self.config, policy=policy)
        self.notify()

    def notify(self) -> None:
        for store in self.stores:
            if not store.blind:
                store.see_all()


class GroupDouble(GroupStore):
    """Stands in for `GroupStore`."""

    def __init__(self, zoo: Zoo) -> None:
        self._zoo = zoo
        self.changed = Signal()
        self._on_master = []
        self.live = {}
        self.unsettled = False
        self._maybe_isr = frozenset()
        self.blind = False  # sees no change
        self.see_all()
        zoo.stores.append(self)

    def see_all(self) -> None:
        self.config = self._zoo.config
        self.state = Versioned(self._zoo.history[-1], len(self._zoo.history))
        self.unsettled = self.unsettled and self._zoo.away
        self.changed.notify()

    def acts_as_master(self, broker: str) -> None:
        """Name the acting master in the state, seen here alone."""
        self._configured = self.config
        self._see(replace(self.state, value=replace(self.state.value, master=BrokerId(broker))))

    async def change(
        self, edit: Callable[[GroupState], GroupState | None], version: int | None = None
    ) -> GroupState | None:
        await asyncio.sleep(0.001)
        if self._zoo.away:
            self.unsettled = True
            raise ConnectionLost("ZooKeeper is away")
        after = edit(self._zoo.history[-1])
        if after is not None:
            self._zoo.set_state(after)
        self.see_all()
        return after


class Tap:
    """Controls the messages of a slave's streams."""

    def __init__(self) -> None:
        self.open = asyncio.Event()  # unset: the slave's messages are held back
        self.open.set()
        self.reading = asyncio.Event()  # unset: the slave reads nothing
        self.reading.set()
        self.change: Callable[[Any], list[Any]] = lambda message: [message]
        self.sent: list[Any] = []
        self.dials = 0
        self.newest: Callable[[], Stream | None] = lambda: None  # a weak reference

    def cut(self) -> None:
        """Tear down the newest stream, if there is one."""
        stream = self.newest()
        if stream is not None:
            stream.cancel()


class TapStream:
    def __init__(self, stream: Stream, tap: Tap) -> None:
        self._stream = stream
        self._tap = tap
        self._more: list[Any] = []
        tap.dials += 1
        tap.newest = weakref.ref(stream)

    @property
    def peer(self) -> str:
        return self._stream.peer

    async def send(self, message: Any) -> None:
        await self._tap.open.wait()
        self._tap.sent.append(message)
        await self._stream.send(message)

    async def receive(self) -> Any:
        while not self._more:
            await self._tap.reading.wait()
            message = await self._stream.receive()
            if message is None:
                return None
            self._more = self._tap.change(message)
        return self._more.pop(0)

    async def done_sending(self) -> None:
        await self._stream.done_sending()

    def cancel(self) -> None:
        self._stream.cancel()


class TapConnection:
    def __init__(self, connection: Connection, tap: Tap) -> None:
        self._connection = connection
        self._tap = tap

    @property
    def address(self) -> str:
        return self._connection.address

    async def call(self, method: Method, request: Any, timeout_s: float) -> Any:
        return await self._connection.call(method, request, timeout_s)

    async def open(self, method: Method, timeout_s: float) -> Stream:
        return TapStream(await self._connection.open(method, timeout_s), self._tap)

    async def close(self) -> None:
        await self._connection.close()


class TapTransport(GrpcTransport):
    """The real transport with a tap in its streams."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap

    def connect(self, address: str) -> Any:
        return TapConnection(super().connect(address), self._tap)


class Node:
    """One broker's journal and both halves of replication."""

    def __init__(self, zoo: Zoo, name: BrokerId, path: Path, **settings: Any) -> None:
        self.zoo = zoo
        self.name = name
        self.path = path
        self.tap = Tap()
        self.settings = BrokerSettings(
            **{
                "cluster": "c",
                "group": "g1",
                "broker": name,
                "data_dir": str(path),
                "zookeeper": "-",
                "segment_bytes": 256 * 1024,
                "checkpoint_interval_ms": 10,
                "min_free_bytes": 0,
                "heartbeat_ms": 50,
                "dead_after_ms": 3000,
                "redial_min_ms": 5,
                "redial_max_ms": 50,
                **settings,
            }
        )
        self.make_disk: Callable[[], Disk] = lambda: FileDisk(str(path))
        self.address = ""
        self.handed: list[wire.HandOverRequest] = []
        self.why_not = ""
        self.clock = SystemClock()
        self._server: Server | None = None
        self._starts = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Node":
        """Open the journal and run, as the broker does."""
        self._starts += 1
        self.address = self.address or f"127.0.0.1:{held_port(self)}"
        self.disk = self.make_disk()
        self.journal = await Journal.open(self.disk, self.settings, self.clock, Life())
        self.commit = CommitFrontier()
        self.group = GroupDouble(self.zoo)
        incarnation = f"{self.name}.{self._starts}"
        parts = (self.journal, self.commit, self.group, incarnation)
        self.master = MasterReplication(self.settings, self.clock, *parts)
        transport = TapTransport(self.tap)
        self.slave = SlaveReplication(self.settings, self.clock, transport, *parts)
        self._task = asyncio.create_task(self._run())
        handlers = {HAND_OVER: self._handed_over, **self.master.handlers}
        self._server = await GrpcTransport().serve(self.address, handlers)
        return self

    async def _handed_over(
        self, _: CallContext, request: wire.HandOverRequest
    ) -> wire.HandOverReply:
        self.handed.append(request)
        return wire.HandOverReply(installed=not self.why_not, reason=self.why_not)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.journal.run())
            tasks.create_task(self.master.run())
            tasks.create_task(self.slave.run())

    async def stop(self, *, crash: bool = False) -> None:
        """Stop; a crash leaves the directory as it is."""
        if self._task is None:
            return
        task, self._task = self._task, None
        if self._server is not None:
            await self._server.close(0)
        task.cancel()
        (failed,) = await asyncio.gather(task, return_exceptions=True)
        if not crash:
            await self.journal.close()
        await self.disk.close()
        self.zoo.stores.remove(self.group)
        assert isinstance(failed, asyncio.CancelledError), repr(failed)

    async def open_term(self) -> None:
        """Open a term as `failover/transitions.py` does: EPOCH, durable, compare-and-set, open."""
        state = self.zoo.history[-1]
        number = Epoch(max(state.epoch, self.journal.epoch) + 1)
        self.master.close_writes()
        self.journal.append(epoch(number))
        await self.journal.wait_durable(self.journal.end)
        stands = replace(state, mode=Mode.MASTER, epoch=number, master=self.name, reader=self.name)
        await self.group.change(lambda _: stands)
        self.master.open_for(number)

    def produce(self, count: int = 10, size: int = 1000) -> Position:
        """Append `count` batches and return the end of the last."""
        ends = [self.journal.append(data(b"x" * size, queue=i % 3)).end for i in range(count)]
        return ends[-1]

    async def reaches(self, end: int) -> None:
        """Wait until the journal ends at that position."""
        await until(lambda: self.journal.end == end, f"{self.name} ends at {end}")

    async def bytes(self, start: int | None = None) -> bytes:
        """Return all stored bytes."""
        return await everything(self.journal, start)

    def save(self) -> Path:
        """Copy the directory as it is on the disk now: what a power loss may leave."""
        copy = self.path.with_name(f"{self.path.name}.saved")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.path, copy, ignore=shutil.ignore_patterns("*.tmp", "lock"))
        return copy

    def put_back(self, copy: Path | None) -> None:
        """Restore that copy while stopped (None: an empty disk)."""
        shutil.rmtree(self.path)
        if copy is None:
            self.path.mkdir()
        else:
            shutil.copytree(copy, self.path)


class Cluster:
    """A master and its slaves."""

    def __init__(self, path: Path, slaves: int, policy: AckPolicy, **settings: Any) -> None:
        members = tuple(
            Member(BrokerId(f"g1-{n}"), "127.0.0.1:1", zone="here" if n != 2 else "there")
            for n in range(slaves + 1)
        )
        config = GroupConfig(GroupName("g1"), MASTER, members, policy)
        self.zoo = Zoo(config, GroupState())
        self.nodes = [Node(self.zoo, m.id, path / m.id, **settings) for m in members]
        self.master, self.slaves = self.nodes[0], self.nodes[1:]

    def addressed(self) -> None:
        """Configure the address at which the master really listens."""
        members = tuple(
            replace(m, address=node.address or m.address)
            for m, node in zip(self.zoo.config.members, self.nodes, strict=True)
        )
        self.zoo.config = replace(self.zoo.config, members=members)
        self.zoo.notify()

    @property
    def isr(self) -> set[str]:
        return set(self.zoo.history[-1].isr)

    async def in_sync(self, count: int | None = None) -> None:
        """Wait until that many slaves are in sync."""
        wanted = len(self.slaves) if count is None else count
        await until(lambda: len(self.isr) == wanted, f"{wanted} in sync")

    async def committed(self, end: int | None = None) -> None:
        """Wait until the master's commit end has reached that position."""
        wanted = self.master.journal.end if end is None else end
        await until(lambda: self.master.commit.commit_end >= wanted, f"committed to {wanted}")

    async def acked(self, slave: Node, end: int) -> None:
        """Wait until the slave has acknowledged receipt up to that position."""
        links = self.master.master.links
        await until(lambda: links[slave.name].received_end >= end, f"{slave.name} acks {end}")

    async def equal(self, *slaves: Node) -> None:
        """R1: wait until every slave holds the master's bytes."""
        for slave in slaves or tuple(self.slaves):
            await slave.reaches(self.master.journal.end)
            start = max(slave.journal.journal_start, self.master.journal.journal_start)
            assert await slave.bytes(start) == await self.master.bytes(start)


@asynccontextmanager
async def cluster(
    path: Path,
    slaves: int = 1,
    policy: AckPolicy = POLICY,
    *,
    in_sync: bool = True,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """Run a serving cluster with its slaves in sync; stop it at the end."""
    made = Cluster(path, slaves, policy, **settings)
    try:
        await made.master.start()
        made.addressed()
        for slave in made.slaves:
            await slave.start()
        if in_sync:
            await made.master.open_term()
            await made.in_sync()
        yield made
    finally:
        for node in reversed(made.nodes):
            node.tap.open.set()
            node.tap.reading.set()
            await node.stop()
