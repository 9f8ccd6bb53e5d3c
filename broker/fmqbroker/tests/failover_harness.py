"""Shared by the failover tests: brokers in this process on a real ZooKeeper.

Real: ZooKeeper, group store, journal on a disk, offset store, gate, lease, failover. Stand-ins:
replication (`Net.carry` copies journals and promises) and the network to ZooKeeper (`Proxy`, which
can be cut). Every permission of every broker is watched all the time: two readers fail the test.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmqadapters.disk.files import FileDisk
from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.consume.offsets.side_journal import SideDisk
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.failover.loop import Failover
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import LinkView, UpstreamView
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqbroker.serving.identity import begin
from fmqbroker.tests.zookeeper_proxy import Proxy
from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.errors import FmqError, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, Offset, Permission, Position, TopicId
from fmqcore.zk.group_config import GroupConfig, Member, config_to_json
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.tests.call_context import CALL
from fmqport.transport import TransportError
from fmqproto.v1 import replication_pb2

M, S, T = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")
CLUSTER, GROUP = "c", "g1"
ROOT = f"/fmq/{CLUSTER}/groups/{GROUP}"
SESSION_MS = 1000
GENEROUS_S = 30.0
KEY = OffsetKey("billing", TopicId(1), 0)


async def until(seen: Callable[[], object], what: str = "") -> None:
    """Wait for a condition with a generous timeout."""
    try:
        async with asyncio.timeout(GENEROUS_S):
            while not seen():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never came true: {what or seen}") from None


class Life:
    """A `Lifecycle` for one broker of the test."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    def fatal(self, reason: str) -> Any:
        raise AssertionError(reason)


class MasterSide:
    """Stands in for the master's half of replication."""

    def __init__(self) -> None:
        self.links: dict[BrokerId, LinkView] = {}
        self.reconciling = asyncio.Lock()
        self.changed = Signal()
        self.reported = Signal()
        self.epoch = Epoch(0)
        self.journal: Journal

    def open_for(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.changed.notify()

    def close_writes(self) -> None:
        self.epoch = Epoch(0)

    @property
    def successors(self) -> frozenset[BrokerId]:
        return frozenset()

    def kept_end(self) -> Position:
        return self.journal.end

    def require_on_disk(self, _: object) -> None:
        pass

    def keep_from(self) -> Position:
        return Position(0)


class SlaveSide:
    """Stands in for the slave's half."""

    def __init__(self, net: "Net", me: BrokerId) -> None:
        self.upstream = UpstreamView()
        self.changed = Signal()
        self._net = net
        self._me = me

    async def hand_over(self, epoch: Epoch, offsets: bytes, timeout_s: float) -> str:
        master = self._net.nodes.get(M)
        if master is None or not master.alive or self._me in self._net.unlinked:
            raise TransportError("the master cannot be reached")
        request = replication_pb2.HandOverRequest(
            group=GROUP, epoch=epoch, reader=self._me, offsets=offsets
        )
        try:
            async with asyncio.timeout(timeout_s):
                reply = await master.failover.on_hand_over(CALL, request)
        except TimeoutError:
            raise TransportError("time is out") from None
        return "" if reply.installed else reply.reason


class Node:
    """One broker."""

    def __init__(self, net: "Net", me: BrokerId, **changes: Any) -> None:
        self.me = me
        self.alive = False
        self.net = net
        self.proxy = net.proxies.setdefault(me, Proxy(net.zookeeper))
        self.settings = BrokerSettings(
            **{
                "cluster": CLUSTER,
                "group": GROUP,
                "broker": me,
                "data_dir": str(net.path / me),
                "zookeeper": net.zookeeper,
                "segment_bytes": 1024 * 1024,
                "session_timeout_ms": SESSION_MS,
                "grant_ms": 600,
                "claim_checks": 2,
                "claim_interval_ms": 50,
                "takeover_wait_ms": 1500,
                "takeover_checkpoint_ms": 50,
                "offsets_interval_ms": 1,
                "loop_stall_ms": 5000,
                **changes,
            }
        )
        self.life = Life()
        self.master = MasterSide()
        self.slave = SlaveSide(net, me)
        self.commit = CommitFrontier()
        self.gate = Gate(net.clock)
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def start(self) -> "Node":
        """Start; on return the group is loaded and failover runs."""
        self.net.nodes[self.me] = self
        self._task = asyncio.create_task(self._live())
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task
        return self

    async def _live(self) -> None:
        clock = self.net.clock
        disk = FileDisk(self.settings.data_dir)
        self.session = ZooKeeperSession(await self.proxy.mend(), timeout_ms=SESSION_MS)
        self.journal = await Journal.open(disk, self.settings, clock, self.life)
        self.master.journal = self.journal
        try:
            await self.session.start(GENEROUS_S)
            self.group = GroupStore(self.session, clock, CLUSTER, GROUP, self.me)
            await self.group.load()
            identity = await begin(self.me, self.group, disk, clock, self.settings.grant_ms)
            self.group.replaces(identity.earlier)
            self.incarnation = identity.incarnation
            side, settings = SideDisk(disk, self.life), self.settings
            self.offsets = OffsetStore(side, self.journal, self.commit, self.group, settings, clock)
            self.failover = Failover(
                self.gate,
                self.group,
                self.journal,
                self.commit,
                self.offsets,
                self.master,
                self.slave,
                self.settings,
                clock,
                self.life,
                identity.incarnation,
            )
            self.alive = True
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(duty)
                    for duty in (self.journal.run(), self.group.run(), self.offsets.run())
                ]
                failover = tasks.create_task(self.failover.run())
                self._ready.set()
                await failover
                for duty in duties:
                    duty.cancel()
        finally:
            self.alive = False
            await self.session.close()
            with suppress(FmqError):
                await self.journal.close()
            await disk.close()

    async def kill(self) -> None:
        """Kill as `kill -9` does: ZooKeeper is not informed, the session expires."""
        assert self._task is not None
        self.alive = False
        await self.proxy.cut()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        """Stop as SIGTERM does."""
        assert self._task is not None
        self.life.stopping.set()
        await self._task

    # ---- actions and views
    @property
    def serves(self) -> Permission:
        """Return the permission served at this moment."""
        return self.gate.permission() if self.alive else Permission.NONE

    @property
    def state(self) -> GroupState:
        """Return the group state cached here."""
        return self.group.state.value

    def produce(self, value: bytes) -> None:
        """Append one record."""
        attrs, payload = encode([value])
        draft = BatchDraft(
            BatchType.DATA, payload, crc32c(payload), TopicId(1), 0, record_count=1, attrs=attrs
        )
        self.journal.append(draft)

    async def ack(self, floor: int, version: int) -> None:
        """Store a consumer's progress."""
        assert self.serves & Permission.READ
        await self.offsets.put({KEY: OffsetEntry(version, Offset(floor))})


class Net:
    """The group: ZooKeeper, the brokers and the wire between them."""

    def __init__(self, zookeeper: str, path: Path, members: tuple[BrokerId, ...]) -> None:
        self.zookeeper = zookeeper
        self.path = path
        self.clock = SystemClock()
        self.nodes: dict[BrokerId, Node] = {}
        self.proxies: dict[BrokerId, Proxy] = {}
        self.unlinked: set[BrokerId] = set()  # slaves whose path to the master is cut
        self.keeps_isr = True
        self.faults: list[str] = []
        self.terms: list[tuple[Mode, int]] = []
        self.admin = ZooKeeperSession(zookeeper, timeout_ms=SESSION_MS)
        self.config = GroupConfig(
            GroupName(GROUP),
            M,
            tuple(Member(b, f"127.0.0.1:{i + 1}") for i, b in enumerate(members)),
        )

    async def configure(self, config: GroupConfig) -> None:
        """Write the configuration; retry while the connection breaks, as an administrator does."""
        self.config = config
        path, data = f"{ROOT}/config", config_to_json(config)
        async with asyncio.timeout(GENEROUS_S):
            while True:
                try:
                    if await self.admin.get(path) is None:
                        await self.admin.create(path, data, make_parents=True)
                    else:
                        await self.admin.set(path, data, -1)
                except Unavailable:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def permit(self, broker: BrokerId, permission: Permission) -> None:
        """Change one member's configured permission."""
        members = tuple(
            replace(m, permission=permission) if m.id == broker else m for m in self.config.members
        )
        await self.configure(replace(self.config, members=members))

    # ---- background tasks
    async def watch(self) -> None:
        """Fail on two readers at once, and record the terms seen."""
        while True:
            serving = {n.me: n.serves for n in self.nodes.values()}
            if sum(1 for p in serving.values() if p & Permission.READ) > 1:
                self.faults.append(f"two readers: {serving}")
            for node in self.nodes.values():
                seen = (node.gate.mode, int(node.gate.epoch))
                if not self.terms or seen[1] > self.terms[-1][1]:
                    self.terms.append(seen)
            await asyncio.sleep(0.001)

    async def carry(self) -> None:
        """Carry journals, ends, grants and the in-sync set, one turn every few milliseconds."""
        while True:
            await asyncio.sleep(0.01)
            master = self.nodes.get(M)
            for slave in [n for b, n in sorted(self.nodes.items()) if b != M]:
                linked = (
                    master is not None
                    and master.alive
                    and slave.alive
                    and slave.me not in self.unlinked
                )
                self._report_links(master, slave, linked=linked)
                if linked and master is not None:
                    await self._copy(master, slave)
                    await self._keep_isr(master, slave)
                elif master is not None and master.alive:
                    await self._keep_isr(master, slave)

    def _report_links(self, master: Node | None, slave: Node, *, linked: bool) -> None:
        upstream = slave.slave.upstream
        before = (upstream.connected, upstream.caught_up)
        if master is not None:
            link = master.master.links.setdefault(slave.me, LinkView())
            was = link.connected
            link.connected = linked
            link.caught_up = linked and slave.journal.durable_end >= master.journal.end
            link.heard = link.heard or (linked and slave.journal.end <= master.journal.end)
            if linked:
                self._grant(slave, link)
            if was != linked:
                master.master.changed.notify()
        upstream.connected = linked
        upstream.caught_up = linked and master is not None
        if before != (upstream.connected, upstream.caught_up):
            slave.slave.changed.notify()

    def _grant(self, slave: Node, link: LinkView) -> None:
        state = slave.group.state.value
        if slave.slave.upstream.claiming or state.mode is not Mode.MASTER:
            return
        until_ms = self.clock.monotonic_ms() + slave.settings.grant_ms
        slave.slave.upstream.promised_until_ms = until_ms
        link.lease_until_ms = until_ms

    async def _copy(self, master: Node, slave: Node) -> None:
        if master.master.epoch and slave.journal.end < master.journal.durable_end:
            data = await master.journal.read(slave.journal.end, 1 << 20)
            slave.journal.append_replica(slave.journal.end, data)
        if master.master.epoch:
            master.commit.advance(master.journal.durable_end, Position(0))

    async def _keep_isr(self, master: Node, slave: Node) -> None:
        link = master.master.links[slave.me]
        epoch = master.master.epoch
        state = master.group.state.value
        if not epoch or state.epoch != epoch or not master.group.connected or not self.keeps_isr:
            return
        wanted = state.isr | {slave.me} if link.caught_up else state.isr
        wanted = wanted if link.connected else wanted - {slave.me}
        if wanted != state.isr:
            with suppress(FmqError):
                await master.group.change(
                    lambda s: replace(s, isr=wanted) if s.epoch == epoch else None
                )
        if slave.me in master.group.state.value.isr and link.caught_up:
            slave.journal.doubts.made_whole()


@asynccontextmanager
async def group_of(
    zookeeper: str, path: Path, *members: BrokerId, **config: Any
) -> AsyncIterator[Net]:
    """Run a configured group; brokers still running at the end are killed."""
    net = Net(zookeeper, path, members)
    await net.admin.start(GENEROUS_S)
    try:
        await net.configure(replace(net.config, **config))
        background = [asyncio.create_task(net.watch()), asyncio.create_task(net.carry())]
        try:
            yield net
        finally:
            for task in background:
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            for node in list(net.nodes.values()):
                if node.alive:
                    await node.kill()
            for proxy in net.proxies.values():
                await proxy.cut()
    finally:
        await net.admin.close()
    assert not net.faults, net.faults[:3]


async def whole(net: Net, *slaves: BrokerId, **changes: Any) -> tuple[Node, ...]:
    """Start master and slaves, all in sync, with one record in the journal."""
    nodes = [await Node(net, b, **changes).start() for b in (M, *slaves)]
    await until(lambda: nodes[0].serves is Permission.FULL)
    await until(lambda: nodes[0].state.isr == set(slaves), "all are in sync")
    nodes[0].produce(b"one")
    await until(lambda: all(n.journal.durable_end == nodes[0].journal.end for n in nodes))
    links = nodes[0].master.links
    await until(lambda: all(links[b].caught_up for b in slaves), "and the master knows it")
    return tuple(nodes)
