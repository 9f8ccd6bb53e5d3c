"""Observe every broker and ZooKeeper all the time and record what they report.

The observations become events of the history; the checks judge them. The times without reads and
writes are counted from the same looks.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from e2e.history.client_events import Place
from e2e.history.cluster_events import Ends, Floor, GroupSetup, Look, Setup, State, Up
from e2e.history.history import History
from fmqadapters.grpc import GrpcTransport
from fmqcore.errors import FmqError
from fmqcore.ids import Permission
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState
from fmqdev.demo.verdict import Seen
from fmqport.transport import Connection, TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import OFFSETS, STATUS

_INTERVAL_S: Final = 0.05
_ANSWER_S: Final = 1.0
_STATE_S: Final = 0.1


def now_ms() -> float:
    """Return the run's clock in milliseconds."""
    return asyncio.get_running_loop().time() * 1000


@dataclass(slots=True)
class Sight:
    """The newest look at a broker; `epoch` 0 and no `mode` if it did not answer."""

    permission: Permission = Permission.NONE
    epoch: int = 0
    mode: str = ""
    reason: str = "not asked yet"


class Broker(Protocol):
    """A broker that is observed."""

    @property
    def id(self) -> str:
        """The broker's name."""
        ...

    @property
    def group(self) -> str:
        """The name of the broker's group."""
        ...

    @property
    def listen(self) -> str:
        """The address at which it is asked."""
        ...


class Groups(Protocol):
    """The groups' records in ZooKeeper. Both methods raise `FmqError`."""

    async def state(self, group: str, /) -> GroupState:
        """Return the group state."""
        ...

    async def config(self, group: str, /) -> GroupConfig:
        """Return the group's configuration."""
        ...


class Watched(Protocol):
    """A cluster, wherever it runs."""

    @property
    def brokers(self) -> Mapping[Any, Broker]:
        """All brokers, by name."""
        ...

    @property
    def group_names(self) -> Sequence[str]:
        """The names of all groups."""
        ...

    @property
    def groups(self) -> Groups:
        """The groups' records in its ZooKeeper."""
        ...


class Watch:
    """Observes a cluster; `run` until cancelled."""

    def __init__(self, cluster: Watched, history: History, readers: str) -> None:
        self.latest: dict[str, Sight] = defaultdict(Sight)
        self.looks: Counter[str] = Counter()
        self.seen: list[Seen] = []
        self.states: dict[str, GroupState] = {}
        self._cluster = cluster
        self._history = history
        self._readers = readers
        self._uptimes: dict[str, int] = {}

    async def run(self) -> None:
        """Look at all brokers and groups side by side."""
        async with asyncio.TaskGroup() as tasks:
            for plan in self._cluster.brokers.values():
                tasks.create_task(self._broker(plan))
            for group in self._cluster.group_names:
                tasks.create_task(self._state(group))

    async def _broker(self, plan: Broker) -> None:
        connection = GrpcTransport().connect(plan.listen)
        try:
            while True:
                if await self._look(plan, connection):
                    await self._floors(plan, connection)
                await asyncio.sleep(_INTERVAL_S)
        finally:
            await connection.close()

    async def _look(self, plan: Broker, connection: Connection) -> bool:
        """Look at a broker; return whether it serves reads."""
        asked_ms = now_ms()
        try:
            reply = await connection.call(STATUS, admin_pb2.StatusRequest(), _ANSWER_S)
        except TransportError as error:
            self.latest[plan.id] = Sight(reason=f"silent: {error}")
            self.seen.append(Seen(asked_ms, plan.group, plan.id, Permission.NONE))
            return False
        finally:
            self.looks[plan.id] += 1
        at_ms = now_ms()
        permission = Permission(reply.permission & 3)
        self.latest[plan.id] = Sight(permission, reply.epoch, reply.mode, reply.reason)
        # A broker without a permission may have lost it as early as the time of the request.
        self.seen.append(Seen(at_ms if permission else asked_ms, plan.group, plan.id, permission))
        who = (asked_ms, at_ms, str(plan.id), str(plan.group))
        self._history.add(Look(*who, permission, reply.epoch))
        if reply.uptime_ms < self._uptimes.get(plan.id, 1 << 62):
            up = (str(plan.id), str(plan.group), reply.journal_start, reply.end, reply.durable_end)
            self._history.add(Up(at_ms, *up))
        self._uptimes[plan.id] = reply.uptime_ms
        ends = (reply.journal_start, reply.end, reply.durable_end, reply.commit_end)
        self._history.add(Ends(*who, *ends))
        return Permission.READ in permission

    async def _floors(self, plan: Broker, connection: Connection) -> None:
        asked_ms = now_ms()
        request = admin_pb2.OffsetsRequest(group=self._readers)
        try:
            reply = await connection.call(OFFSETS, request, _ANSWER_S)
        except TransportError:
            return
        if reply.HasField("error"):
            return  # not any more
        at_ms = now_ms()
        for row in reply.queues:
            if row.group and row.broker_group == plan.group:
                place = Place(row.topic, row.broker_group, row.queue_id)
                self._history.add(
                    Floor(asked_ms, at_ms, str(plan.id), row.group, place, row.committed)
                )

    async def _state(self, group: str) -> None:
        while True:
            try:
                state = await self._cluster.groups.state(group)
            except FmqError:
                pass  # no ensemble at the moment
            else:
                before = self.states.get(group)
                self.states[group] = state
                if before is None or _shown(before) != _shown(state):
                    self._history.add(state_event(group, state))
            await asyncio.sleep(_STATE_S)

    def has_seen_all(self) -> bool:
        """Whether every broker has answered once, and every group's state is known."""
        states = all(group in self.states for group in self._cluster.group_names)
        return states and all(self.latest[broker].mode for broker in self._cluster.brokers)

    def serves(self, broker: str, need: Permission) -> bool:
        """Whether the broker had the permission at the newest look."""
        return need in self.latest[broker].permission


def _shown(state: GroupState) -> GroupState:
    """Return the state without the fields that change while no broker takes over.

    These are the checkpoints of a takeover's record.
    """
    return replace(state, offsets="", offsets_final=False, write_token="")


def state_event(group: str, state: GroupState) -> State:
    """Return the group state as an event of now."""
    isr = tuple(sorted(map(str, state.isr)))
    return State(
        now_ms(),
        group,
        state.mode,
        int(state.epoch),
        str(state.master),
        str(state.reader),
        isr,
        state.degraded,
        state.reason,
        int(state.max_delivered_position),
    )


async def setup_of(cluster: Watched) -> Setup:
    """Return the present configuration of the cluster as an event."""
    configs = [await cluster.groups.config(name) for name in cluster.group_names]
    groups = [
        GroupSetup(str(c.group), str(c.master), tuple(str(m.id) for m in c.members), c.policy)
        for c in configs
    ]
    return Setup(now_ms(), tuple(groups))
