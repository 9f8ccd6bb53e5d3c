"""Coordinators and senders of several brokers: real ZooKeeper, gRPC; what journals hold by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fmqadapters.grpc.transport import GrpcTransport
from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.cluster.view import ClusterView
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.coordinator import Coordinator
from fmqbroker.ordered.group_ends import GroupEnds, GroupEndsCaller
from fmqbroker.ordered.own_duties import OwnDuties
from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.ordered.senders import Senders
from fmqbroker.runtime.notifier import Signal
from fmqbroker.serving.gate import Gate
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.copies_kit import lone_copies
from fmqcore.errors import SenderFenced, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, TopicId
from fmqcore.ordered.evidence import GroupView, Params
from fmqcore.ordered.senders import Standing
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, ChainGroup, PerQueue
from fmqcore.zk.chain_json import chain_from_json
from fmqcore.zk.group_config import GroupConfig, KeptOut, Member, config_to_json
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2
from fmqproto.v1.replication_pb2 import GroupEndsReply

C = "c"
G1, G2 = GroupName("g1"), GroupName("g2")
LEASE_MS = 200
PARAMS = Params(trouble_ms=50, margin_ms=50)


def ids_of(group: GroupName) -> tuple[BrokerId, BrokerId]:
    """Return the ids of a group's master and slave."""
    return BrokerId(f"{group}-0"), BrokerId(f"{group}-1")


def topic(number: int = 1) -> TopicConfig:
    groups = (TopicGroup(G1, 1), TopicGroup(G2, 1))
    return TopicConfig(f"changes-{number}", TopicId(number), groups, ordered=True)


def chain(of: TopicConfig, **fields: Any) -> Chain:
    """Return a new topic's chain, which prefers g1."""
    groups = (ChainGroup(G1, 2), ChainGroup(G2))
    return Chain(of.name, 1, groups, lease_ms=LEASE_MS, topic_id=of.id, **fields)


@dataclass
class Holdings:
    """What one group's journals hold, set by the test."""

    ends: PerQueue = (0,)
    held_known: bool = True
    view: GroupView = GroupView(reachable=True, takes_writes=True, members=2)
    seals: dict[int, dict[int, PerQueue]] = field(default_factory=dict)
    progress_of: dict[str, PerQueue] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)  # of the effects
    due: list[Callable[[TopicId], None]] = field(default_factory=list)
    known: Signal = field(default_factory=Signal)
    full: bool = False

    def held(self, _: Chain) -> PerQueue | None:
        return self.ends if self.held_known else None

    def durable_ends(self, _: Chain) -> PerQueue:
        return self.ends

    def is_full(self) -> bool:
        return self.full

    def own_view(self, _: Chain) -> GroupView:
        ends = self.ends if self.held_known else None
        return replace(self.view, ends=ends, full=self.full)

    def sealed_of(self, topic_id: int) -> Mapping[int, PerQueue]:
        return self.seals.get(topic_id, {})

    async def seal(self, topic_id: int, segment: int, end: PerQueue) -> None:
        await asyncio.sleep(0)
        self.order.append(f"seal {segment}")
        self.seals.setdefault(topic_id, {})[segment] = end

    def progress(self, _: Chain) -> Mapping[str, PerQueue]:
        return self.progress_of

    def expired(self, _: Chain) -> tuple[int, ...]:
        return ()

    def on_progress(self, callback: Callable[[TopicId], None]) -> None:
        self.due.append(callback)


class Caller(GroupEndsCaller):
    """It gets no answer of the groups in `cut`."""

    cut: frozenset[GroupName] = frozenset()

    async def ask(
        self, group: GroupName, chain: Chain, offsets: Mapping[int, int] | None = None
    ) -> GroupEndsReply:
        if group in self.cut:
            raise TransportError(f"the link to {group} is cut")
        return await super().ask(group, chain, offsets)


class Node:
    """The ordered parts of one broker."""

    def __init__(
        self, group: GroupName, id: BrokerId, session: ZooKeeperSession, holdings: Holdings
    ) -> None:
        self.group, self.id, self.session, self.holdings = group, id, session, holdings
        self.clock = SystemClock()
        self.gate = Gate(self.clock)
        self.view = ClusterView(session, C)
        self.chains = ChainCache(ChainNodes(session, C, self.clock), self.view, group)
        self.senders = Senders(session, C, self.clock, self.chains)
        self.transport = GrpcTransport()
        self.copies = lone_copies(self.chains, group)
        self.ends = GroupEnds(None, self.chains, holdings, self.copies)  # type: ignore[arg-type]
        self.own = OwnDuties(group, id, self.gate, self.chains, holdings, holdings, holdings)
        self.caller = Caller(self.transport, self.view, group, id, self.ends)
        parts = (group, self.clock, self.view, self.chains, self.senders, self.caller, self.own)
        self.coordinator = Coordinator(*parts, self.copies, PARAMS)
        self.address = ""

    def lead(self) -> None:
        """Serve as master."""
        self.gate.extend_lease(1 << 60)
        self.gate.count_grants(lambda: 0)
        self.gate.grant(Permission.FULL, "the test says so")

    def read(self) -> None:
        """Serve as takeover reader."""
        self.gate.adopt(replace(GroupState(), mode=Mode.SLAVE_CONSUME, reader=self.id))
        self.gate.extend_lease(1 << 60)
        self.gate.grant(Permission.READ, "the test says so")

    async def run(self) -> None:
        await self.view.load()
        await self.chains.load()
        async with asyncio.TaskGroup() as tasks:
            for part in (self.view, self.chains, self.senders, self.coordinator):
                tasks.create_task(part.run())


class Cast:
    """Two groups of two; the brokers that a test starts."""

    def __init__(self, session: ZooKeeperSession, zookeeper: str, stack: AsyncExitStack) -> None:
        self.session, self._zookeeper, self._stack = session, zookeeper, stack
        self.holdings = {G1: Holdings(), G2: Holdings(ends=(7,))}
        self.addresses: dict[BrokerId, str] = {}
        self.states = {
            g: GroupState(
                Mode.MASTER, Epoch(1), ids_of(g)[0], ids_of(g)[0], frozenset([ids_of(g)[1]])
            )
            for g in (G1, G2)
        }

    async def prepare(self) -> None:
        for group in (G1, G2):
            await self.put(layout.state_node(C, group), state_to_json(self.states[group]))
            await self.configure(group)
            for id in ids_of(group):
                await self.put(f"{layout.live_node(C, group)}/{id}", b"")

    async def put(self, node: str, data: bytes) -> None:
        found = await self.session.get(node)
        if found is None:
            await self.session.create(node, data, make_parents=True)
        else:
            await self.session.set(node, data, found.version)

    async def configure(self, group: GroupName, kept_out: KeptOut | None = None) -> None:
        members = tuple(Member(i, self.addresses.get(i, "127.0.0.1:1")) for i in ids_of(group))
        config = GroupConfig(group, ids_of(group)[0], members, kept_out=kept_out)
        await self.put(layout.config_node(C, group), config_to_json(config))

    async def change_state(self, group: GroupName, **fields: Any) -> None:
        self.states[group] = replace(self.states[group], **fields)
        await self.put(layout.state_node(C, group), state_to_json(self.states[group]))

    async def create(self, of: TopicConfig, made: Chain | None = None) -> None:
        await self.put(layout.topic_node(C, of.name), topic_to_json(of))
        await ChainNodes(self.session, C, SystemClock()).create(made or chain(of))

    async def chain(self, of: TopicConfig) -> Chain:
        node = await self.session.get(layout.chain_node(C, of.name), synced=True)
        assert node is not None
        return chain_from_json(node.data)

    async def start(self, group: GroupName, *, slave: bool = False, leads: bool = True) -> Node:
        """Start a broker; it serves as master unless it is the slave."""
        session = ZooKeeperSession(self._zookeeper, timeout_ms=10_000)
        await session.start(30)
        self._stack.push_async_callback(session.close)
        node = Node(group, ids_of(group)[slave], session, self.holdings[group])
        server = await node.transport.serve("127.0.0.1:0", node.ends.handlers)
        self._stack.push_async_callback(server.close, 0)
        self.addresses[node.id] = f"127.0.0.1:{server.port}"
        await self.configure(group)
        if leads and not slave:
            node.lead()
        running = asyncio.create_task(node.run())
        self._stack.push_async_callback(ended, running)
        return node

    async def until(self, of: TopicConfig, seen: Callable[[Chain], object], what: str) -> Chain:
        """Wait until the stored chain is so, and return it."""
        found: list[Chain] = []

        async def look() -> None:
            while not found:
                now = await self.chain(of)
                if seen(now):
                    found.append(now)
                await asyncio.sleep(0.01)

        async with asyncio.timeout(30):
            await look()
        return found[0]


async def ended(task: "asyncio.Task[None]") -> None:
    """End a task; raise what it raised before."""
    task.cancel()
    (raised,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(raised, Exception):
        raise raised


@asynccontextmanager
async def acting(zookeeper: str) -> AsyncIterator[Cast]:
    async with AsyncExitStack() as stack:
        session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
        await session.start(30)
        stack.push_async_callback(session.close)
        cast = Cast(session, zookeeper, stack)
        await cast.prepare()
        yield cast


@asynccontextmanager
async def sender(
    node: Node, of: TopicConfig, name: str = "copier", **fields: Any
) -> AsyncIterator[SenderStanding]:
    """A sender whose session is at that broker, followed until the context ends."""
    await until(lambda: of.name in node.view.topics, "the topic is known")
    opening = client_pb2.SenderOpen(topic=of.name, name=name, **fields)
    async with node.senders.standing(of, opening) as standing:
        following = asyncio.create_task(node.senders.follow(standing))
        try:
            yield standing
        finally:
            with suppress(Unavailable, SenderFenced):  # a test may take its place away
                await ended(following)


async def active(standing: SenderStanding) -> None:
    await until(lambda: standing.standing is Standing.ACTIVE, "the sender is active")


def report(node: Node, standing: SenderStanding, segment: int, unacked: int) -> None:
    """Report as the client does at a closing."""
    standing.note_report(client_pb2.SenderReport(chain_segment=segment, first_unacked={0: unacked}))
    node.senders.has_moved(standing.topic.id)
