"""The broker's group in ZooKeeper: configuration, state and live brokers; a watched cache.

Every change of the state by this broker goes through `change` (compare-and-set), one at a time.
Reads are synced and sequential, so what is cached never goes back. A node that is missing or does
not decode leaves the known value in place, logged once; a state that does not decode is never
overwritten.

Order of effects of a change: its possible effect is recorded (`unsettled`, `maybe_isr`), then it is
sent, then it is settled by its answer or, when the connection was lost, by the writer's token in a
synced read that started afterwards. Such a read settles for good: ZooKeeper answers it after all
that the same session sent before, and refuses what comes from a connection that was replaced.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar, assert_never

import structlog

from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.steady_clock import note_past
from fmqbroker.serving.live_node import LiveNode
from fmqcore.errors import Malformed, NotFound, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Removal, config_from_json
from fmqcore.zk.group_state import GroupState, acting, state_from_json, state_to_json
from fmqcore.zk.live_broker import LiveBroker, live_from_json
from fmqport.clock import Clock
from fmqport.coordination import (
    BadVersion,
    ConnectionLost,
    Coordination,
    NodeExists,
    NoNode,
    SessionState,
)
from fmqport.group_nodes import make_live_parent, was_removed

_log = structlog.get_logger()
T = TypeVar("T")

_RETRY_S: Final = 0.2
_SETTLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Proof:
    """A timed read of the state that was answered, as evidence for a lease."""

    sent_ms: int  # monotonic, before it was sent
    standing: int  # of this broker's live node, before and after; 0 = it did not stand throughout


class GroupStore:
    """Cached view of `/fmq/<cluster>/groups/<g>`, and the only writer here of the `state` node."""

    config: GroupConfig  # with the acting master in it
    state: Versioned[GroupState]
    live: dict[BrokerId, LiveBroker]
    changed: Signal

    def __init__(
        self, coordination: Coordination, clock: Clock, cluster: str, group: str, me: BrokerId
    ) -> None:
        self.changed = Signal()
        self.live = {}
        self.state = Versioned(GroupState(), -1)
        self._configured: GroupConfig | None = None
        self._on_master: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self.disconnected_ms = 0  # wall clock: since when ZooKeeper is away; 0 = it is not
        self.unsettled = False  # a change by this broker got no answer: it may or may not stand
        self._coordination = coordination
        self._clock = clock
        self._me = me
        self.home = f"{cluster}/{group}"
        self._root = f"/fmq/{cluster}/groups/{group}"
        self._maybe_isr: frozenset[BrokerId] = frozenset()
        make_parent = partial(make_live_parent, coordination, cluster, GroupName(group))
        path = f"{self._root}/live/{me}"
        self._live_node = LiveNode(coordination, clock, path, me, self.changed, make_parent)
        self._was_removed = partial(was_removed, coordination, cluster, GroupName(group))
        self._removal: Removal | None = Removal.NONE  # as last logged; None: no configuration
        self._malformed = False  # the state node holds something that is no state
        self._io = asyncio.Lock()  # one read or write at a time: answers in the order of the calls
        self._changing = asyncio.Lock()
        self._refresh_due = asyncio.Event()
        self._complained: dict[str, str] = {}

    # ---- what is known
    @property
    def standing(self) -> int:
        """The number of this broker's live node while it stands in a connected session; else 0."""
        return self._live_node.standing

    @property
    def wanted(self) -> BrokerId:
        """The master wanted by the configuration; the acting master is `config.master`."""
        return self.config.master if self._configured is None else self._configured.master

    def on_master(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the acting master changes, before readers of the store see it."""
        self._on_master.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the session has ended, and with it the live node."""
        self._on_lost.append(callback)

    @property
    def superseded(self) -> bool:
        """Whether another process announces itself under this broker's name."""
        return self._live_node.superseded

    @property
    def changeable(self) -> bool:
        """Whether a change may be tried: the live node stands, and the state is readable."""
        return bool(self.standing) and not self._malformed

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected now."""
        return self._coordination.state is SessionState.CONNECTED

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout negotiated with ZooKeeper, in milliseconds."""
        return self._coordination.session_timeout_ms

    @property
    def widest_isr(self) -> frozenset[BrokerId]:
        """The in-sync set plus the brokers that a change without an answer may have added."""
        return self.state.value.isr | self._maybe_isr

    # ---- reading
    async def load(self) -> None:
        """Read for the first time. Raises `NotFound`, naming the node, if the group is missing."""
        path = f"{self._root}/config"
        async with self._io:
            node = await self._coordination.get(path, synced=True)
        if node is None:
            raise NotFound(
                f"ZooKeeper has no node {path}: create the group first "
                "(or start this broker with the group and cluster names it was given there); "
                "if this broker served before, the group may have been removed from the cluster"
            )
        note_past(self._clock, node.modified_ms)
        self._configured = self.config = config_from_json(node.data)
        await self.refresh()

    async def run(self) -> None:
        """Follow the watches and keep this broker's live node until cancelled."""
        stops = [
            self._coordination.watch(f"{self._root}/{name}", self._refresh_due.set)
            for name in ("config", "state", "live")
        ]
        stops.append(self._coordination.on_state(self._on_session))
        try:
            while True:
                await self._refresh_due.wait()
                self._refresh_due.clear()
                try:
                    await self._live_node.keep()
                    await self.refresh()
                except Unavailable:
                    if self.connected:  # it answers, but not as it should: try again soon
                        await self._clock.sleep(_RETRY_S)
                        self._refresh_due.set()
        finally:
            for stop in stops:
                stop()

    async def refresh(self) -> None:
        """Read everything again: config, then state, then live nodes, in this order.

        A live node that was read before the state could be older than the state. Raises
        `Unavailable`.
        """
        async with self._io:
            node = await self._coordination.get(f"{self._root}/config", synced=True)
            if node is None:
                await self._note_vanished()
            else:
                known = self.config if self._configured is None else self._configured
                self._configured = self._decoded("config", node.data, config_from_json, known)
                self._note_removal(self._configured.removal)
                self._see(self.state)
            # F12: the live nodes after the state: what is judged together is never older than it.
            await self._read_state()
            standing = self.standing
            self.live = await self._read_live()
        if not self._live_node.check(self.live, standing):
            self._refresh_due.set()
        self.changed.notify()

    async def prove(self) -> Proof:
        """Do a timed, synced read of the state. Raises `Unavailable` if there is no answer."""
        before = self.standing
        sent_ms = self._clock.monotonic_ms()
        known = self.state
        async with self._io:
            await self._read_state(synced=True)
        if self.state != known:
            self.changed.notify()
        return Proof(sent_ms, before if before == self.standing else 0)

    # ---- this broker's live node
    def replaces(self, earlier: frozenset[str]) -> None:
        """Allow replacing the live nodes of these incarnations of this broker: they are dead."""
        self._live_node.earlier = earlier

    async def announce(self, live: LiveBroker) -> None:
        """Create or update this broker's ephemeral node; `run` recreates it in a new session.

        Without an answer from ZooKeeper `run` does it later.
        """
        try:
            await self._live_node.announce(live)
        except Unavailable as error:
            _log.info("announcement_postponed", reason=str(error))
            self._refresh_due.set()

    async def withdraw(self) -> None:
        """Remove the live node in an orderly stop: no broker has to wait for the session's end."""
        await self._live_node.withdraw()

    # ---- changing
    async def change(
        self, edit: Callable[[GroupState], GroupState | None], version: int | None = None
    ) -> GroupState | None:
        """Read fresh, edit (None = leave it), compare-and-set; repeat while others win the race.

        With `version`, that version is edited or none. A lost connection is settled by
        `write_token`. Returns what now stands, or None if left alone. Raises `ConnectionLost` if
        that cannot be known, `Unavailable` if the state there does not decode, or the group is
        gone.
        """
        async with self._changing:
            while True:
                async with self._io:
                    await self._read_state(synced=True)
                if self._malformed:
                    raise Unavailable(
                        f"{self._root}/state does not decode, so it is not overwritten: repair it "
                        f"({self._complained.get('state', '')})"
                    )
                base = self.state
                if version is not None and base.version != version:
                    self.changed.notify()
                    return None
                edited = edit(base.value)
                if edited is None:
                    return None
                write_token = f"{self._me}-{self._clock.random_id():016x}"
                if await self._set(replace(edited, write_token=write_token), base.version):
                    self.changed.notify()
                    return self.state.value

    # ---- inside
    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.disconnected_ms = 0
        else:
            self.disconnected_ms = self.disconnected_ms or self._clock.wall_ms()
        if state is SessionState.LOST:
            for callback in self._on_lost:
                callback()
        self._refresh_due.set()
        self.changed.notify()

    async def _set(self, new: GroupState, version: int) -> bool:
        """Send one compare-and-set; return True if it stands, False if another one won."""
        path, data = f"{self._root}/state", state_to_json(new)
        try:
            async with self._io:
                # F8: before it is sent; not sooner, or the read whose turn is now would settle it.
                self._maybe_isr, self.unsettled = new.isr, True
                if version < 0:
                    await self._coordination.create(path, data)
                    version = 0
                else:
                    version = await self._coordination.set(path, data, version)
                self._see(Versioned(new, version))
        except (BadVersion, NodeExists):
            self._settled()
            return False
        except NoNode:
            self._settled()
            if version < 0:  # no lost race: to try again at once would never end
                raise Unavailable(
                    f"{self._root} is gone from ZooKeeper: the group may have been removed from "
                    "the cluster; stop this broker, or put the group's configuration back"
                ) from None
            return False
        except Unavailable:
            return await self._settle(new.write_token)
        self._settled()
        return True

    async def _settle(self, write_token: str) -> bool:
        """After a lost connection, return whether a synced read shows the change's token."""
        with_answer_by = self._clock.monotonic_ms() + int(_SETTLE_S * 1000)
        while True:
            try:
                async with self._io:
                    await self._read_state(synced=True)
                return self.state.value.write_token == write_token
            except Unavailable as error:
                if self._clock.monotonic_ms() >= with_answer_by:
                    raise ConnectionLost(
                        f"a change of {self._root}/state got no answer: it may or may not stand"
                    ) from error
            await self._clock.sleep(_RETRY_S / 4)

    def _settled(self) -> None:
        self._maybe_isr, self.unsettled = frozenset(), False

    async def _read_state(self, *, synced: bool = False) -> None:
        """Read under `_io`, synced or after a sync: it starts after every change that is over."""
        node = await self._coordination.get(f"{self._root}/state", synced=synced)
        if node is None:
            if self.state.version >= 0:
                _log.error(
                    "state_vanished", node=f"{self._root}/state", kept=self.state.value.reason
                )
            self._see(Versioned(self.state.value, -1))
            self._malformed = False
        elif node.version != self.state.version or self.unsettled or self._malformed:
            note_past(self._clock, node.modified_ms)
            value = self._decoded("state", node.data, state_from_json, None)
            self._malformed = value is None
            if value is not None:
                self._see(Versioned(value, node.version))
        self._settled()

    def _see(self, state: Versioned[GroupState]) -> None:
        """Adopt a group state as current, and its acting master."""
        self.state = state
        if self._configured is None:
            return
        before, self.config = self.config.master, acting(self._configured, state.value)
        if self.config.master != before:
            for callback in self._on_master:
                callback()

    async def _read_live(self) -> dict[BrokerId, LiveBroker]:
        brokers: dict[BrokerId, LiveBroker] = {}
        for name in await self._coordination.children(f"{self._root}/live"):
            node = await self._coordination.get(f"{self._root}/live/{name}")
            if node is None:
                continue
            # The node stands, so its broker may live, even if the node does not decode.
            broker = BrokerId(name)
            nothing = LiveBroker(broker, "", "", Epoch(0), Position(0))
            known = self.live.get(broker, nothing)
            brokers[broker] = self._decoded(f"live/{name}", node.data, live_from_json, known)
        return brokers

    async def _note_vanished(self) -> None:
        """Log once that the configuration is gone, and why; the known one is kept."""
        if self._removal is None:
            return
        removed = await self._was_removed()
        self._removal = None
        _log.error(
            "group_was_removed" if removed else "group_configuration_vanished",
            node=self._root,
            remedy="stop this broker"
            if removed
            else "put the configuration back (fmq cluster apply), or stop this broker",
        )

    def _note_removal(self, removal: Removal) -> None:
        if removal is self._removal:
            return
        before, self._removal = self._removal, removal
        match removal:
            case Removal.NONE if before is not None:
                _log.info(
                    "group_removal_cancelled", node=self._root, reason="its removal was given up"
                )
            case Removal.NONE:
                _log.info("group_configuration_restored", node=self._root)
            case Removal.DRAINING:
                _log.warning(
                    "group_is_being_removed",
                    node=self._root,
                    reason="it takes no messages; consumers read it to its end",
                )
            case Removal.EMPTY:
                _log.warning(
                    "group_is_being_removed",
                    node=self._root,
                    reason="every message was consumed",
                    remedy="stop this broker",
                )
            case _:
                assert_never(removal)

    def _decoded(self, name: str, raw: bytes, decode: Callable[[bytes], T], known: T) -> T:
        try:
            value = decode(raw)
        except Malformed as error:
            if self._complained.get(name) != str(error):
                self._complained[name] = str(error)
                _log.error("node_malformed", node=f"{self._root}/{name}", error=str(error))
            return known
        self._complained.pop(name, None)
        return value
