"""A broker: its parts, put together, from its start to its end.

Start: the data directory is locked and its journal recovered → ZooKeeper is reached (waited for
without limit) → the group and the cluster are read → no other broker uses this broker's id
(`serving/identity.py`) → the port is opened → all parts run, failover decides what is served.

Orderly stop (SIGTERM), order of effects: senders of ordered topics take places at other brokers,
while all is served → new batches are refused and pending ones acknowledged → failover gives up the
role, flushes and removes the live node, so that a slave may take over at once → the port is closed
→ the journal is flushed and marked clean → the ZooKeeper session ends.
After any other stop, the next start does what was left undone.

No decisions are made here. A broker reaches the world only through its five ports.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeVar

import structlog

from fmqbroker.admin.ordered_topics import OrderedAdmin
from fmqbroker.admin.served_periods import ServedPeriods
from fmqbroker.admin.service import AdminService
from fmqbroker.admin.snapshot_source import SnapshotSource
from fmqbroker.admin.topics import TopicAdmin
from fmqbroker.app.health import Health
from fmqbroker.app.ordered_parts import OrderedParts
from fmqbroker.app.probe import BrokerProbe
from fmqbroker.app.server import bind
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.idle_groups import IdleGroups
from fmqbroker.consume.offsets.side_journal import SideDisk
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.service import FetchService
from fmqbroker.consume.topic_sweep import TopicSweep
from fmqbroker.consume.visible import Visible
from fmqbroker.data.retention import Retention
from fmqbroker.data.segment_service import SegmentService
from fmqbroker.data.topic_claims import TopicClaims
from fmqbroker.failover.loop import Failover
from fmqbroker.journal.journal import Journal
from fmqbroker.produce.service import ProduceService
from fmqbroker.replication.master import MasterReplication
from fmqbroker.replication.slave import SlaveReplication
from fmqbroker.runtime.notifier import wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.steady_clock import SteadyClock, clock_doubt
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.identity import Identity, begin, forget_promises
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import BrokerId
from fmqport.clock import Clock
from fmqport.coordination import Coordination
from fmqport.disk import Disk
from fmqport.lifecycle import Lifecycle
from fmqport.transport import Server, Transport

T = TypeVar("T")
_log = structlog.get_logger()

_SENDERS_S: Final = 5  # an orderly stop: senders of ordered topics take places at other brokers
_DRAIN_S: Final = 0.5  # an orderly stop: what waits for its ack may still get it
_GRACE_S: Final = 0.1  # and what was sent may still be read
_LOG_S: Final = 5.0  # how often the wait for ZooKeeper is logged
_RETRY_S: Final = 1.0
_FOR_EVER_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Ports:
    """The five ports through which a broker reaches the world."""

    clock: Clock
    transport: Transport
    disk: Disk
    coordination: Coordination
    lifecycle: Lifecycle


class Broker:
    """One broker of one group. `run` runs it from start to end."""

    def __init__(
        self, settings: BrokerSettings, ports: Ports, probe: BrokerProbe | None = None
    ) -> None:
        self._probe = probe or BrokerProbe()
        self._clock = SteadyClock(ports.clock)
        self._ports = replace(ports, clock=self._clock)
        self.health = Health(ports.disk, self._clock)  # of use before, while and after it runs
        self._settings = settings

    async def run(self) -> None:
        """Run until an orderly stop is requested. Raises a `FmqError` if the broker cannot run."""
        settings, ports = self._settings, self._ports
        async with AsyncExitStack() as stack:
            journal = await self._probe.open_journal(
                ports.disk, settings, ports.clock, ports.lifecycle
            )
            stack.push_async_callback(journal.close)
            self._clock.note_newest(journal.last_ms)
            _log.info("journal_open", end=journal.end, epoch=journal.epoch, clean=journal.clean)
            self.health.stage = "waiting for ZooKeeper"
            stack.push_async_callback(ports.coordination.close)
            group = GroupStore(
                ports.coordination,
                ports.clock,
                settings.cluster,
                settings.group,
                BrokerId(settings.broker),
            )
            view = ClusterView(ports.coordination, settings.cluster)
            claims = TopicClaims(
                journal,
                view,
                ports.coordination,
                settings.cluster,
                ports.clock,
                settings.group,
            )
            if identity := await self._unless_stopped(self._arrive(group, view, claims)):
                probe = self._probe
                parts = _Parts(settings, ports, probe, journal, group, view, claims, identity)
                await parts.run(self.health)
            if journal.damage is not None:
                raise journal.damage  # after all has ended in order: not as if nothing were wrong

    async def _arrive(self, group: GroupStore, view: ClusterView, claims: TopicClaims) -> Identity:
        """Read the cluster, check that the broker's id is free, and return its identity."""
        await self._read_cluster(group, view, claims)
        settings, ports = self._settings, self._ports
        me = BrokerId(settings.broker)
        identity = await begin(me, group, ports.disk, ports.clock, settings.grant_ms)
        group.replaces(identity.earlier)
        return identity

    async def _read_cluster(
        self, group: GroupStore, view: ClusterView, claims: TopicClaims
    ) -> None:
        """Wait for ZooKeeper without limit, then read the group, the cluster and the claims."""
        async with asyncio.TaskGroup() as tasks:
            reporter = tasks.create_task(self._log_waiting())
            await self._ports.coordination.start(_FOR_EVER_S)
            reporter.cancel()
        while True:
            try:
                await group.load()
                await view.load()
                await claims.claim()
                break
            except Unavailable as error:
                _log.warning("waiting_for_zookeeper", reason=str(error))
                await self._ports.clock.sleep(_RETRY_S)
        me, config = BrokerId(self._settings.broker), group.config
        if config.member(me) is None:
            members = ", ".join(member.id for member in config.members)
            raise InvalidArgument(
                f"broker {me} is no member of group {config.group} (its members: {members}): "
                "start it with the id it has there, or add it"
            )

    async def _log_waiting(self) -> None:
        await self._ports.clock.sleep(_RETRY_S)
        while True:
            _log.warning("waiting_for_zookeeper", address=self._settings.zookeeper)
            await self._ports.clock.sleep(_LOG_S)

    async def _unless_stopped(self, work: Awaitable[T]) -> T | None:
        """Return the result of `work`, or None if a stop is requested meanwhile."""
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._ports.lifecycle.stopping.wait())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                return None
            return await doing
        finally:
            stopping.cancel()
            doing.cancel()
            await asyncio.wait((doing, stopping))


class _Parts:
    """The parts of a running broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        ports: Ports,
        probe: BrokerProbe,
        journal: Journal,
        group: GroupStore,
        view: ClusterView,
        claims: TopicClaims,
        identity: Identity,
    ) -> None:
        clock, incarnation = ports.clock, identity.incarnation
        self._identity, self._settings, self._ports = identity, settings, ports
        self._journal = journal
        self._group = group
        self._view, self._claims = view, claims
        self._departure = _Departure(ports.lifecycle)
        self._gate, self._commit = probe.make_gate(clock), probe.make_commit_frontier()
        self._visible = Visible(journal, self._commit)
        side = SideDisk(ports.disk, ports.lifecycle)
        self._offsets = OffsetStore(side, journal, self._commit, group, settings, clock)
        self._master = MasterReplication(settings, clock, journal, self._commit, group, incarnation)
        self._slave = SlaveReplication(
            settings,
            clock,
            ports.transport,
            journal,
            self._commit,
            group,
            incarnation,
            self._master.reconciling,
            identity.granted_ms,
        )
        me = BrokerId(settings.broker)
        self._ordered = OrderedParts(
            settings,
            clock,
            ports.transport,
            ports.coordination,
            journal,
            self._commit,
            self._visible,
            self._gate,
            group,
            view,
            self._master,
        )
        self._retention = self._make_retention(me)
        self._failover = self._make_failover(incarnation)
        self._produce, self._fetch = self._make_traffic()
        self._segments = SegmentService(
            settings,
            clock,
            journal,
            self._visible,
            lambda: self._snapshots.served_withheld_reason(),
        )
        self._idle_groups, self._sweep = self._make_sweeps()
        self._snapshots = self._make_snapshots(me)
        self._admin = self._make_admin()
        serving = (
            self._produce, self._fetch, view, self._master, self._failover, self._admin,
            *self._make_topic_admins(ports), self._segments,
            self._ordered.group_ends, self._ordered.copies,
        )  # fmt: skip
        self._handlers = bind(part.handlers for part in serving)

    def _make_retention(self, me: BrokerId) -> Retention:
        return Retention(
            me,
            self._journal,
            self._commit,
            self._group,
            self._master,
            self._slave,
            self._ports.clock,
            self._clock_doubt,
            self._ordered.kept,
        )

    def _make_failover(self, incarnation: str) -> Failover:
        return Failover(
            self._gate,
            self._group,
            self._journal,
            self._commit,
            self._offsets,
            self._master,
            self._slave,
            self._settings,
            self._ports.clock,
            self._departure,
            incarnation,
        )

    def _make_traffic(self) -> tuple[ProduceService, FetchService]:
        """Make the parts that messages pass."""
        ordered, settings, clock = self._ordered, self._settings, self._ports.clock
        journal, gate, view = self._journal, self._gate, self._view
        produce = ProduceService(
            journal, self._commit, gate, view, settings, clock, ordered.sessions
        )
        fetch = FetchService(
            settings, clock, journal, self._visible, gate, view, self._offsets, ordered.reads
        )
        ordered.follow_readers(fetch.groups)
        return produce, fetch

    def _make_snapshots(self, me: BrokerId) -> SnapshotSource:
        """Make the part that reports what the broker is and serves."""
        clock, intake = self._ports.clock, self._produce.intake
        self._periods = ServedPeriods(
            me, clock, self._gate, intake, self._group, self._master, self._slave
        )
        return SnapshotSource(
            settings=self._settings,
            clock=clock,
            started_ms=clock.monotonic_ms(),
            gate=self._gate,
            group=self._group,
            journal=self._journal,
            commit=self._commit,
            view=self._view,
            offsets=self._offsets,
            fetch=self._fetch,
            master=self._master,
            slave=self._slave,
            segments=self._segments,
            intake=intake,
            idle_groups=self._idle_groups,
            periods=self._periods,
            ordered=self._ordered.figures,
        )

    def _make_admin(self) -> AdminService:
        """Make the part that answers people and the operator."""
        return AdminService(
            self._settings,
            self._journal,
            self._gate,
            self._view,
            self._offsets,
            self._fetch,
            self._snapshots,
        )

    def _make_topic_admins(self, ports: Ports) -> tuple[TopicAdmin, OrderedAdmin]:
        """Make the parts that create and change topics, and the chains of ordered ones."""
        settings, clock = self._settings, ports.clock
        chains = self._ordered.nodes
        return TopicAdmin(settings, ports.coordination, self._view, chains), OrderedAdmin(
            settings,
            clock,
            self._journal,
            self._gate,
            self._group,
            self._view,
            chains,
            self._offsets,
            self._master,
            self._ordered.copies,
            self._ordered.ends_of.views,
            self._ordered.cache.of,
        )

    def _clock_doubt(self) -> str | None:
        return clock_doubt(self._ports.clock)

    def _make_sweeps(self) -> tuple[IdleGroups, TopicSweep]:
        """Make the parts that delete consumer progress."""
        journal, gate, offsets, clock = self._journal, self._gate, self._offsets, self._ports.clock
        groups, retention_ms = self._fetch.groups, self._settings.offsets_retention_ms
        doubt = self._clock_doubt
        idle_groups = IdleGroups(journal, gate, offsets, groups, clock, retention_ms, doubt)
        return idle_groups, TopicSweep(journal, gate, self._view, offsets, groups, clock)

    async def run(self, health: Health) -> None:
        """Open the port, run all duties, and end them in order when a stop is requested."""
        server = await self._listen()
        health.snapshots, health.stage = self._snapshots, ""
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(duty)
                    for duty in (
                        self._journal.run(),
                        self._group.run(),
                        self._view.run(),
                        self._claims.run(),
                        self._offsets.run(),
                        self._fetch.run(),
                        self._master.run(),
                        self._slave.run(),
                        self._retention.run(),
                        self._sweep.run(),
                        self._produce.intake.watch(self._periods.note),
                        self._idle_groups.run(),
                        self._fetch.groups.state_limits.run(self._ports.clock),
                        self._give_way(),
                        self._forget_promises(),
                        *self._ordered.duties(),
                    )
                ]
                failover = tasks.create_task(self._failover.run())
                await self._ports.lifecycle.stopping.wait()
                _log.info("stopping")
                health.stage = "stopping"
                await self._ordered.sessions.drain(_SENDERS_S)  # it serves on meanwhile
                await asyncio.gather(self._produce.drain(_DRAIN_S), self._fetch.drain(_DRAIN_S))
                self._departure.stopping.set()
                await failover
                await server.close(_GRACE_S)
                for duty in duties:
                    duty.cancel()
        finally:
            await server.close(0)
            _log.info("stopped", end=self._journal.end, epoch=self._journal.epoch)

    async def _forget_promises(self) -> None:
        ports, grant_ms = self._ports, self._settings.grant_ms
        await forget_promises(self._identity, self._group, ports.disk, ports.clock, grant_ms)

    async def _give_way(self) -> None:
        """Stop if the journal is damaged and another broker is live, so that it serves the reads.

        With no other broker there, this one goes on: only the damaged part cannot be read.
        """
        me = BrokerId(self._settings.broker)
        while True:
            state = self._group.state.value
            others = (state.isr | {state.master}) - {me}
            if self._journal.damage is not None and others & self._group.live.keys():
                _log.error("stopping_on_damaged_journal", reason=str(self._journal.damage))
                self._ports.lifecycle.stopping.set()
                return
            await wait_any(self._journal.damaged, self._group.changed)

    async def _listen(self) -> Server:
        settings, config = self._settings, self._group.config
        member = config.member(BrokerId(settings.broker))
        address = settings.listen or (member.address if member is not None else "")
        server = await self._ports.transport.serve(address, self._handlers)
        _log.info("listening", broker=settings.broker, group=settings.group, address=address)
        return server


class _Departure:
    """A `Lifecycle` whose orderly stop starts once pending acks have been sent."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.stopping = asyncio.Event()
        self._lifecycle = lifecycle

    def fatal(self, reason: str) -> NoReturn:
        """See `Lifecycle`."""
        self._lifecycle.fatal(reason)
