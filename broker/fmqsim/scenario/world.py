"""One simulated cluster: machines, network, ZooKeeper, clients, and its run's history.

`World(scene).run()` is a whole run in virtual time: start → trouble (`faults/schedule.py`) → heal →
the cluster is whole again → all sends are answered → all is drained → the end. Nothing here judges.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from e2e.history.client_events import (
    Committed,
    Delivered,
    OrderedHandedOn,
    OrderedLowered,
    OrderedStored,
    Sought,
    Stored,
)
from e2e.history.cluster_events import Ends, Phase, PhaseName, Serves, State, Up
from e2e.history.events import Event
from e2e.history.history import History
from e2e.history.journals import Journal as StoredJournal
from e2e.history.journals import load
from e2e.traffic.ordered import read_in_order, send_in_order
from e2e.traffic.ports import Door
from e2e.traffic.traffic import Traffic
from fmqbroker.journal.journal import Journal
from fmqcore.ids import GroupName, Permission
from fmqcore.zk import layout as paths
from fmqcore.zk.chain import Chain, Segment
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode, state_from_json
from fmqport.coordination import Coordination
from fmqsim.adapters.coordination import SimCoordination
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.network import Network
from fmqsim.engine.node import Process
from fmqsim.faults.schedule import Trouble
from fmqsim.report.broker_watch import Insight, Watcher
from fmqsim.scenario import side_topic as side
from fmqsim.scenario.chain_watch import ChainWatch
from fmqsim.scenario.end_check import wrong_end
from fmqsim.scenario.hosts import BrokerHost, ClientHost
from fmqsim.scenario.operator_stand_in import NAME, Operator
from fmqsim.scenario.person import Person
from fmqsim.scenario.scene import CLUSTER, Scene, setup_at
from fmqsim.scenario.watched_ensemble import WatchedEnsemble
from fmqsim.scenario.world_log import LogCapture

_POLL_S: Final = 0.05
START_S: Final = 30.0
WHOLE_S: Final = 60.0
ANSWER_S: Final = 60.0
DRAIN_S: Final = 60.0
STOP_S: Final = 30.0
_UNDER_WAY_S: Final = 1.0
_SOUGHT_S: Final = 2.0
_CONFIGURED_S: Final = 3.0
"""Seconds after which all brokers of a group know its configuration."""


class World:
    """A cluster and its clients."""

    def __init__(self, scene: Scene, loop: SimLoop) -> None:
        self.scene = scene
        self.loop = loop
        self.history = History(sink=self._on_event)
        weather = scene.weather
        self.network = Network(loop, window_bytes=weather.window_bytes)
        self.network.delay_s = weather.delay_ms / 1000
        self.network.jitter_s = weather.jitter_ms / 1000
        self.network.loss = weather.loss
        self.chains = ChainWatch(
            loop, self._on_segment_end, self._on_sender_change, self._on_lowered_end
        )
        self.ensemble = WatchedEnsemble(loop, self.chains, self._on_write)
        self.traffic = Traffic(self.history, lambda: loop.now_ms, scene.seed)
        self.watcher = Watcher(loop, self._on_permission, self._on_journal_open)
        self.brokers: dict[str, BrokerHost] = {}
        self._of_group: defaultdict[str, list[BrokerHost]] = defaultdict(list)
        self.configs: dict[str, GroupConfig] = {str(g.group): g for g in scene.groups}
        for group in scene.groups:
            for member in group.members:
                self.add_broker(str(member.id), str(group.group))
        self.url = "fmq://" + ",".join(str(g.members[0].address) for g in scene.groups)
        self.clients: dict[str, ClientHost] = {}
        self.person = Person(self)
        self.operator = Operator(self, self.person)
        self._states: dict[str, State] = {}
        self._ends: dict[str, tuple[int, ...]] = {}
        self._ends_recorded_ms: dict[str, float] = {}
        self._set_up_s = 0.0
        self._durable: defaultdict[str, int] = defaultdict(int)  # the most ever, by broker
        self.reader_changes = 0

    def add_broker(self, name: str, group: str) -> BrokerHost:
        """Add a machine for a broker, with an empty disk."""
        host = self.brokers[name] = BrokerHost(self, name, group)
        self._of_group[group].append(host)
        host.storage.speed.write_ms = self.scene.weather.write_ms
        return host

    def session(self, process: Process, timeout_ms: int) -> Coordination:
        """Return a ZooKeeper session of a process."""
        return SimCoordination(self.ensemble, process, timeout_ms)

    # ---- the run
    async def run(self) -> None:
        """Run from start to end."""
        with LogCapture(self):
            looking = asyncio.create_task(self._poll_ends())
            try:
                await self._begin()
                await self.trouble()
                await self._end()
            finally:
                looking.cancel()

    async def trouble(self) -> None:
        """Inject the faults drawn from the seed while the traffic runs."""
        await Trouble(self).run()

    def phase(self, name: PhaseName) -> None:
        """Start a phase of the run."""
        self.history.add(Phase(self.loop.now_ms, name))
        self.loop.note(f"phase {name.value}")

    def record_setup(self) -> None:
        """Record that the cluster is configured as `configs` from now on."""
        self._set_up_s = self.loop.now
        configs, settings = self.configs.values(), self.scene.settings
        self.history.add(setup_at(self.loop.now_ms, configs, settings))

    async def _begin(self) -> None:
        self.phase(PhaseName.TROUBLE)
        self.operator.prepare()
        for broker in self.brokers.values():
            broker.start()
        if not await self.until(self.whole, START_S):
            raise AssertionError(f"a healthy cluster does not start: {self.why_not_whole()}")
        making = self._client(NAME, self.operator.make_topics)
        await self.until(lambda: making.done, START_S)
        plan = self.scene.plan
        for sending in plan.sending:
            self._client(sending.name, partial(self.traffic.produce, sending))
        for member in plan.members:
            self._client(member.name, partial(self.traffic.consume, member))
        for seeks in plan.seeking:
            self._client(seeks.name, partial(self.traffic.seek, seeks))
        if self.scene.changing:
            self._client(side.NAME, side.Side(self).run)
        if plan_in_order := self.scene.ordered:
            for sender in plan_in_order.sending:
                self._client(sender.name, partial(send_in_order, self.traffic, sender))
            for reader in plan_in_order.reading:
                self._client(reader.name, partial(read_in_order, self.traffic, reader))

    def _client(self, name: str, work: Callable[[Door], Any]) -> ClientHost:
        host = self.clients[name] = ClientHost(self, name, work)
        host.start()
        return host

    async def _end(self) -> None:
        self.phase(PhaseName.HEALED)
        if await self.until(self.whole, WHOLE_S):
            self.phase(PhaseName.WHOLE)
            await self._await_ordered_send()
        self.traffic.stop_sending()
        plan = self.scene.plan  # a seek that ended later would move a group that all have left
        names = {s.name for s in plan.sending} | {s.name for s in plan.seeking}
        chain = self.scene.ordered
        names |= {s.name for s in chain.sending} if chain is not None else set()
        asking = [c for c in self.clients.values() if c.name in names | {side.NAME}]
        await self.until(lambda: all(client.done for client in asking), ANSWER_S)
        self.phase(PhaseName.ANSWERED)
        await asyncio.sleep(_UNDER_WAY_S)  # unanswered messages: sent, and not yet there
        ends = {group: self._ends_of(group)[0] for group in self.configs}
        await self.until(lambda: all(self._ends_of(g)[1] >= ends[g] for g in ends), ANSWER_S)
        readers = sorted({m.readers for m in self.scene.plan.members})
        draining = self._client("drain", lambda door: self.traffic.drained(door, readers, DRAIN_S))
        await self.until(lambda: draining.done, DRAIN_S + 1)
        if chain is not None:
            await self.until(self._ordered_drained, DRAIN_S)
            if self.traffic.ordered_sought:  # which earlier records have to come is not known here
                await asyncio.sleep(_SOUGHT_S)
        self.phase(PhaseName.DRAINED)
        self.traffic.stop_consuming()
        await self.until(lambda: all(c.done for c in self.clients.values()), STOP_S)
        self.phase(PhaseName.OVER)
        await self._stop_all()

    async def _await_ordered_send(self) -> None:
        """Wait until one more record is acknowledged in order: all groups are whole."""
        stored = len(self.traffic.ordered_stored)
        if self.scene.ordered is None:
            return
        if not await self.until(lambda: len(self.traffic.ordered_stored) > stored, ANSWER_S):
            problem = f"all groups are whole, and no ordered send is acknowledged in {ANSWER_S} s"
            self.loop.problems.append(f"{problem}: {self.chains}")

    def _ordered_drained(self) -> bool:
        """Whether all that was acknowledged in order was delivered."""
        assert self.scene.ordered is not None
        readers = {reading.readers for reading in self.scene.ordered.reading}
        traffic, nothing = self.traffic, set[int]()
        return all(
            traffic.ordered_stored
            <= traffic.ordered_delivered.get(name, nothing)
            | traffic.ordered_sought.get(name, nothing)
            for name in readers
        )

    async def _stop_all(self) -> None:
        hosts = self.brokers.values()
        for broker in hosts:
            broker.hold()
            broker.stop()
        if not await self.until(lambda: not any(b.node.alive for b in hosts), STOP_S):
            alive = [b.name for b in hosts if b.node.alive]
            self.loop.problems.append(f"asked to stop, {', '.join(alive)} did not in {STOP_S} s")

    def journals(self) -> list[StoredJournal]:
        """Return the journals on the disks."""
        found = []
        for host in self.brokers.values():
            files = sorted(host.storage.files.names.items())
            found.append(load(host.name, host.group, ((n, bytes(f.data)) for n, f in files)))
        return found

    # ---- looking
    async def until(self, true: Callable[[], object], within_s: float) -> bool:
        """Wait until `true()` holds, for `within_s` at most; return whether it did."""
        until = self.loop.now + within_s
        while not true():
            if self.loop.now >= until:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def state(self, group: str) -> GroupState:
        """Return a group's state as ZooKeeper's leader has it."""
        raw = self.ensemble.peek(paths.state_node(CLUSTER, GroupName(group)))
        return state_from_json(raw) if raw else GroupState()

    def quiet(self) -> bool:
        """Whether the cluster is whole and every machine works: a time to be calm."""
        hosts = [*self.brokers.values(), *self.clients.values()]
        doubted_s = max(
            self.network.resets_known_s, *(b.doubted_until_s for b in self.brokers.values())
        )
        up = all(h.node.alive or not h.wanted for h in hosts)
        waits = self.network.silent or self.network.late
        settled = doubted_s <= self.loop.now and not waits
        return up and settled and self.whole()

    def whole(self) -> bool:
        """Whether every group is as configured, in sync and up."""
        return not self.why_not_whole()

    def why_not_whole(self) -> str:
        """Return why the cluster is not whole; "" if it is."""
        for name, config in self.configs.items():
            state = self.state(name)
            if state.mode is not Mode.MASTER or state.master != config.master:
                return f"{name} is {state.mode.value}, its master {state.master}: {state.reason}"
            missing = {str(m.id) for m in config.slaves} - set(state.isr)
            if missing:
                return f"{name}: not in sync: {', '.join(sorted(missing))}"
            served = self.permission(str(config.master))
            if served is not Permission.FULL:
                return f"{config.master} serves {served.name}"
        return ""

    def permission(self, broker: str) -> Permission:
        """Return what a broker serves now."""
        process = self.brokers[broker].node.process
        gate = None if process is None else self.watcher.of(process).gate
        return Permission.NONE if gate is None else gate.permission()

    async def _poll_ends(self) -> None:
        """Record how far journals go, also while no client gets an answer."""
        while True:
            await asyncio.sleep(_POLL_S)
            for host in self.brokers.values():
                self._record_ends(host)

    def _on_write(self, path: str, data: bytes) -> None:
        """Record a group state written in ZooKeeper."""
        if not path.endswith("/state") or not data:
            return
        group, s = path.split("/")[-2], state_from_json(data)
        isr = tuple(sorted(map(str, s.isr)))
        event = State(
            self.loop.now_ms, group, s.mode, s.epoch, s.master, s.reader, isr, s.degraded, s.reason,
            s.max_delivered_position,
        )  # fmt: skip
        seen = event._replace(at_ms=0.0)
        if seen != self._states.get(group):
            before = self._states.get(group)
            self.reader_changes += before is not None and before.reader != s.reader
            self._states[group] = seen
            self.history.add(event)

    def _ends_of(self, group: str) -> tuple[int, int]:
        """Return (journal end, commit end) of a group's master."""
        process = self.brokers[str(self.configs[group].master)].node.process
        ends = None if process is None else self.watcher.of(process).ends()
        return (0, 0) if ends is None else (ends[1], ends[3])

    def _on_event(self, event: Event) -> None:
        """Record how far journals go at the moment a client gets an answer."""
        match event:
            case Committed():
                groups = tuple(self.configs)
            case OrderedStored():
                groups = (event.group,)
            case Stored() | Delivered() | Sought():
                groups = (event.place.group,)
            case _:
                return
        now = self.loop.now_ms
        for group in groups:
            if self._ends_recorded_ms.get(group) != now:
                self._ends_recorded_ms[group] = now
                for host in self._of_group[group]:
                    self._record_ends(host)

    def _record_ends(self, host: BrokerHost) -> None:
        if host.node.process is not None:
            self.record_ends(host, host.node.process)

    def _on_segment_end(self, broker: str, chain: Chain, segment: Segment) -> None:
        if self.loop.now - self._set_up_s > _CONFIGURED_S:  # else brokers may know other members
            self.loop.problems += wrong_end(self, broker, chain, segment)

    def _on_sender_change(self, chain: Chain) -> None:
        unended = tuple(s.number for s in chain.segments[:-1] if s.end is None)
        number = chain.next_number - 1
        self.history.add(OrderedHandedOn(self.loop.now_ms, chain.topic, number, unended))

    def _on_lowered_end(self, chain: Chain, segment: Segment, accepted: bool) -> None:
        assert segment.end is not None
        lowered = (chain.topic, segment.number, tuple(map(int, segment.end)), accepted)
        self.history.add(OrderedLowered(self.loop.now_ms, *lowered))

    def insight(self, broker: str) -> Insight | None:
        """Return the insight into a broker's process; None if it does not run."""
        process = self.brokers[broker].node.process
        return None if process is None else self.watcher.of(process)

    def most_durable(self, group: str) -> dict[str, int]:
        """Return the furthest durable end that was ever seen of each configured member."""
        for host in self._of_group[group]:
            self._record_ends(host)
        return {str(m.id): self._durable[str(m.id)] for m in self.configs[group].members}

    def record_ends(self, host: BrokerHost, process: Process) -> None:
        """Record how far the host's journal goes now."""
        ends = self.watcher.of(process).ends()
        if ends is not None and ends != self._ends.get(host.name):
            self._ends[host.name] = ends
            self._durable[host.name] = max(self._durable[host.name], ends[2])
            now = self.loop.now_ms
            self.history.add(Ends(now, now, host.name, host.group, *ends))

    # ---- what brokers are seen to do
    def _on_permission(self, process: Process, permission: Permission, epoch: int) -> None:
        host = self.brokers[process.node.name]
        self.loop.note(f"{host.name} serves {permission.name} in epoch {epoch}")
        self.history.add(Serves(self.loop.now_ms, host.name, host.group, permission, epoch))

    def _on_journal_open(self, process: Process, journal: Journal) -> None:
        host = self.brokers[process.node.name]
        ends = (int(journal.journal_start), int(journal.end), int(journal.durable_end))
        self.history.add(Up(self.loop.now_ms, host.name, host.group, *ends, journal.clean))
