"""A master's ordered parts on a real journal; slaves, lease and the store of chains by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.append import OrderedAppend
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_lease import Lease
from fmqbroker.ordered.held import Holdings
from fmqbroker.ordered.member_ends import MemberEnds
from fmqbroker.ordered.seal import Seals
from fmqbroker.ordered.session_batches import SessionBatches
from fmqbroker.ordered.term import Term
from fmqbroker.replication.view import LinkView
from fmqbroker.runtime.notifier import Signal
from fmqbroker.tests import journal_kit
from fmqbroker.tests.copies_kit import lone_copies
from fmqbroker.tests.produce_harness import ORDERS, Bench, batch
from fmqcore.errors import NotFound, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, Position, TopicId
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.coordination import BadVersion
from fmqproto.v1 import client_pb2 as wire

G1, G2 = GroupName("g1"), GroupName("g2")
ME, SLAVE = BrokerId("g1-0"), BrokerId("g1-1")
CHANGES = TopicConfig("changes", TopicId(70), (TopicGroup(G1, 2), TopicGroup(G2, 2)), ordered=True)
OPEN = Chain(
    "changes",
    2,
    (ChainGroup(G1), ChainGroup(G2)),
    segments=(Segment(1, G1, 3, (11, 21), (0, 0)),),
    sender=Sender("copier-0000000001", 3),
    topic_id=TopicId(70),
)


class Nodes:
    """Stands in for `ChainNodes`: chains in memory, with their versions."""

    def __init__(self) -> None:
        self.chains = {OPEN.topic: Versioned(OPEN, 0)}
        self.failing = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0

    def put(self, chain: Chain) -> None:
        """Change the chain, as another broker does; no watch fires."""
        before = self.chains[chain.topic]
        self.chains[chain.topic] = Versioned(chain, before.version + 1)

    async def topic(self, _: str) -> TopicConfig:
        return CHANGES

    async def read(self, topic: TopicConfig) -> Versioned[Chain]:
        raise NotFound(f"{topic.name} has no chain")

    async def stored(self, name: str) -> Versioned[Chain] | None:
        self.reads += 1
        await self.gate.wait()
        if self.failing:
            raise Unavailable("no ZooKeeper")
        return self.chains.get(name)

    async def write(self, before: Versioned[Chain], after: Chain) -> Versioned[Chain]:
        if self.chains[after.topic].version != before.version:
            raise BadVersion(after.topic)
        self.put(after)
        return self.chains[after.topic]

    def watch(self, _: str, __: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class HandLease:
    """Stands in for `ChainLease`."""

    def __init__(self) -> None:
        self.changed = Signal()
        self.now = Lease(1 << 60, 4, 4)

    def of(self, _: Chain) -> Lease:
        return self.now

    def set(self, lease: Lease) -> None:
        self.now = lease
        self.changed.notify()


class Group:
    """Stands in for `GroupStore`: the configuration and the in-sync set."""

    def __init__(self, *members: BrokerId) -> None:
        self.configure(*members)
        self.state = Versioned(GroupState(isr=frozenset(members)), 0)

    def configure(self, *members: BrokerId) -> None:
        made = tuple(Member(m, f"{m}:1", "") for m in members)
        self.config = GroupConfig(G1, members[0], made)


class Links:
    """Stands in for the master's slaves."""

    def __init__(self) -> None:
        self.changed, self.reported = Signal(), Signal()
        self.links = {SLAVE: LinkView(connected=True)}
        self.successors = frozenset({SLAVE})


class OrderedBench(Bench):
    """The master `ME` of a group of two, in term 1."""

    def __init__(self, journal: Journal, path: Path, **changes: Any) -> None:
        super().__init__(journal, path, **changes)
        self.view.there = (ORDERS, CHANGES)
        self.view.set(*self.view.there)
        self.nodes, self.group, self.replication = Nodes(), Group(ME, SLAVE), Links()
        self.lease = HandLease()
        self.term = Term(journal, self.gate)
        view: Any = self.view
        nodes, lease, group = self.nodes, self.lease, self.group
        self.cache = ChainCache(nodes, view, G1)  # type: ignore[arg-type]
        committed = self.commit.changed
        self.ends = MemberEnds(ME, journal, self.term, self.group, self.replication, committed)
        parts = (journal, self.gate, self.term, self.ends)
        self.holdings = Holdings(*parts, group, self.replication)  # type: ignore[arg-type]
        self.seals = Seals(journal, self.term, self.cache, self.holdings)
        self.append = OrderedAppend(
            journal,
            self.clock,
            G1,
            self.term,
            self.cache,
            lease,  # type: ignore[arg-type]
            self.seals,
            self.ends,
            self.commit,
            lone_copies(self.cache, G1, journal),
        )
        self.become_master(1)

    def become_master(self, epoch: int) -> None:
        """Serve as master of that term, whose EPOCH batch is in the journal."""
        self.gate.adopt(GroupState(Mode.MASTER, Epoch(epoch), master=ME, reader=ME))
        self.gate.count_grants(lambda: 1 << 60)

    def line(self, sender: str = OPEN.sender.id) -> SessionBatches:
        """Return a new session's batches."""
        admission = self.service.admission
        return SessionBatches(
            self.append, CHANGES.id, sender, admission.check, admission.require_ordered, 10_000
        )

    async def all_durable(self, slave: BrokerId = SLAVE) -> None:
        """Make all that is appended durable here, and have the slave report the same."""
        await self.journal.wait_durable(self.journal.end)
        self.reports(self.journal.end, slave)

    def reports(self, end: int, slave: BrokerId = SLAVE) -> None:
        """Have the slave report that durable end."""
        link = self.replication.links.setdefault(slave, LinkView(connected=True))
        link.durable_end, link.epoch = Position(end), self.term.newest

    def open_term(self, epoch: int) -> None:
        """Open another term as master."""
        self.journal.append(journal_kit.epoch(epoch))
        self.become_master(epoch)


def close_of(chain: Chain, reason: str = "planned") -> Chain:
    return replace(chain, closing=reason)


def ordered(
    sequence: int, count: int = 1, queue: int = 0, segment: int = 1, epoch: int = 3, **more: Any
) -> wire.ProduceBatch:
    return batch(
        count,
        topic_id=CHANGES.id,
        queue_id=queue,
        chain_segment=segment,
        sender_epoch=epoch,
        ordered_sequence=sequence,
        **more,
    )


@asynccontextmanager
async def ordered_bench(path: Path, **changes: Any) -> AsyncIterator[OrderedBench]:
    async with journal_kit.running(path, **changes) as journal:
        bench = OrderedBench(journal, path)
        await bench.cache.load()
        persisting = asyncio.create_task(bench.append.run())
        try:
            yield bench
        finally:
            persisting.cancel()
            await asyncio.gather(persisting, return_exceptions=True)
