"""Consumer groups on an ordered topic: real journals and group tables, chains in ZooKeeper."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.progress import FinishedProgress
from fmqbroker.runtime.notifier import Signal
from fmqbroker.tests.consume_harness import Rig, consuming, running, until
from fmqbroker.tests.copies_kit import lone_copies
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.ordered.delivery import due_heads
from fmqcore.ordered.transitions import with_heads
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, ChainGroup, PerQueue, Segment, Sender
from fmqcore.zk.group_state import Mode
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json

C = "c"
G1, G2 = GroupName("g1"), GroupName("g2")
CHANGES = TopicConfig("changes", TopicId(5), (TopicGroup(G1, 1), TopicGroup(G2, 1)), ordered=True)
EMPTY = Chain("changes", 1, (ChainGroup(G1), ChainGroup(G2)), topic_id=CHANGES.id)
OPEN = replace(EMPTY, segments=(Segment(1, G1, 1, (1,), (0,)),), sender=Sender("s-0000000000", 1))
APP = (("app", (1,)),)


class Broker:
    """The reading half of a master of one broker group, with its chains."""

    def __init__(
        self, path: Path, group: GroupName, session: ZooKeeperSession, **settings: Any
    ) -> None:
        self.rig = Rig(path, group=group, **settings)
        self.rig.cluster.set(CHANGES)
        self.rig.gate.mode = Mode.MASTER
        nodes = ChainNodes(session, C, SystemClock())
        self.cache = ChainCache(nodes, self.rig.cluster, group)  # type: ignore[arg-type]
        self.held: int | None = None  # what all members hold, in each queue
        self.group = group
        self.caught_up = Signal()  # `held` may have risen
        self.copies = lone_copies(self.cache, group)
        parts = (self.cache, group, self.rig.gate, self.copies)
        visible: Any = SimpleNamespace(queue=lambda *place: self.rig.visible.queue(*place))
        self.chains = ChainReads(*parts, visible, self._held_end, [self.caught_up])
        self.rig.chains = self.chains

    def _held_end(self, _topic: TopicId, _queue: int) -> int | None:
        return self.held

    def knows(self, chain: Chain) -> bool:
        return self.cache.of(CHANGES.id) == chain

    def progress(self) -> FinishedProgress:
        groups = self.rig.fetch.groups
        parts = (self.cache, self.group, self.rig.journal)
        return FinishedProgress(*parts, groups.floors, groups.acked)

    def produce(self, *values: bytes) -> Offset:
        return self.rig.produce(0, *values, topic=CHANGES.id)

    def floor(self, name: str = "app") -> int | None:
        entry = self.entry(name)
        return None if entry is None else entry.floor

    def entry(self, name: str = "app") -> OffsetEntry | None:
        return self.rig.offsets.get(OffsetKey(name, CHANGES.id, 0))

    def waits(self, name: str = "app") -> Callable[[], bool]:
        """Whether the group has looked, and has nothing to deliver."""

        def waits() -> bool:
            group = self.rig.fetch.groups.get(name, CHANGES.id)
            return group is not None and 0 in group.starved

        return waits


class Stage:
    """Masters of two broker groups, and another writer of the chain."""

    def __init__(self, path: Path, session: ZooKeeperSession, **settings: Any) -> None:
        self.session = session
        self.nodes = ChainNodes(session, C, SystemClock())
        self.one = Broker(path / "g1", G1, session, **settings)
        self.two = Broker(path / "g2", G2, session, **settings)

    async def chain(self) -> Chain:
        return (await self.nodes.read(CHANGES)).value

    async def change(self, **fields: Any) -> Chain:
        """Change the chain as another broker would, and wait until both brokers know."""
        return await self.edit(lambda chain: replace(chain, **fields))

    async def edit(self, change: Callable[[Chain], Chain]) -> Chain:
        after = await self.nodes.edit(CHANGES, change)
        for broker in (self.one, self.two):
            await until(partial(broker.knows, after), "seen")
        return after

    async def move_heads(self, broker: Broker, progress: dict[str, PerQueue]) -> Chain:
        """Do what duty HEADS does."""
        return await self.edit(
            lambda chain: with_heads(chain, due_heads(chain, broker.group, progress))
        )


@asynccontextmanager
async def staged(path: Path, zookeeper: str, chain: Chain, **settings: Any) -> AsyncIterator[Stage]:
    """Run both brokers on a chain."""
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    stage = Stage(path, session, **settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(session.close)
        await session.create(
            layout.topic_node(C, CHANGES.name), topic_to_json(CHANGES), make_parents=True
        )
        for group in (G1, G2):
            await session.create(layout.group_node(C, group), b"", make_parents=True)
        await stage.nodes.create(chain)
        for broker in (stage.one, stage.two):
            (path / broker.group).mkdir()
            await broker.cache.load()
            await stack.enter_async_context(running(broker.rig))
            await stack.enter_async_context(_following(broker))
        yield stage


@asynccontextmanager
async def _following(broker: Broker) -> AsyncIterator[None]:
    task = asyncio.create_task(broker.cache.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def reading(broker: Broker, session: str = "s1", **fields: Any) -> Any:
    """Run a consumer of group `app`."""
    return consuming(broker.rig, session, topic=CHANGES.name, group="app", **fields)
