"""My group in ZooKeeper: configuration, state, live brokers; cached, watched, compare-and-set.

Every change of the state here goes through `change`, one at a time. Reads are synced and made one
after another, so what is cached never goes back. A node that is missing or does not decode leaves
what was known before, logged once; a state that does not decode is never overwritten.

Order of effects of a change: what it may do is remembered (`unsettled`, `maybe_isr`), then it is
sent, then it is settled by its answer, or, when the connection was lost, by the writer's token in
a synced read that began afterwards. Such a read settles for good: ZooKeeper answers it after all
that the same session sent before, and refuses what comes from a connection that was replaced.

`live/<me>` is made again after every expiry of the session; each time it stands anew it gets a new
number (`standing`), for whoever looked in between saw it gone. Only the first time does it take the
place of another incarnation's node (mine from before a restart: it is mine by name); later such a
node means that another process took my name (`superseded`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import structlog

from fmqbroker.signal import Signal
from fmqcore.cluster import (
    GroupConfig,
    GroupState,
    LiveBroker,
    Versioned,
    config_from_json,
    live_from_json,
    live_to_json,
    state_from_json,
    state_to_json,
)
from fmqcore.errors import Malformed, NotFound, Unavailable
from fmqcore.words import BrokerId, Epoch, Position
from fmqport.clock import Clock
from fmqport.coordination import (
    BadVersion,
    ConnectionLost,
    Coordination,
    NodeExists,
    NoNode,
    SessionState,
)

_log = structlog.get_logger()
T = TypeVar("T")

_RETRY_S: Final = 0.2
_SETTLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Proof:
    """A timed read of the state that was answered: for leases."""

    sent_ms: int  # monotonic, before it was sent
    standing: int  # of my live node, before and after; 0 = it did not stand throughout


class GroupStore:
    """Cached view of `/fmq/<cluster>/groups/<g>`, and the only writer of its `state` here."""

    config: GroupConfig
    state: Versioned[GroupState]
    live: dict[BrokerId, LiveBroker]
    changed: Signal

    def __init__(
        self, coordination: Coordination, clock: Clock, cluster: str, group: str, me: BrokerId
    ) -> None:
        self.changed = Signal()
        self.live = {}
        self.state = Versioned(GroupState(), -1)
        self.superseded = False  # another process announces itself under my name
        self.unsettled = False  # a change of mine got no answer: it may or may not stand
        self._coordination = coordination
        self._clock = clock
        self._me = me
        self._root = f"/fmq/{cluster}/groups/{group}"
        self._maybe_isr: frozenset[BrokerId] = frozenset()
        self._mine: LiveBroker | None = None  # what I announce; None = nothing
        self._announced_session = 0
        self._announcements = 0
        self._malformed = False  # the state node holds something that is no state
        self._io = asyncio.Lock()  # one read or write at a time: answers in the order of the calls
        self._changing = asyncio.Lock()
        self._announcing = asyncio.Lock()
        self._look = asyncio.Event()
        self._complained: dict[str, str] = {}

    # ---- what is known
    @property
    def standing(self) -> int:
        """The number of my live node, while it stands in a connected session; else 0."""
        stands = self.connected and self._announced_session == self._coordination.session_id
        return self._announcements if stands else 0

    @property
    def changeable(self) -> bool:
        """Whether a change may be tried: my live node stands, and the state is readable."""
        return bool(self.standing) and not self._malformed

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper can be asked now."""
        return self._coordination.state is SessionState.CONNECTED

    @property
    def session_timeout_ms(self) -> int:
        """As negotiated with ZooKeeper."""
        return self._coordination.session_timeout_ms

    @property
    def widest_isr(self) -> frozenset[BrokerId]:
        """The in-sync set and whoever a change without an answer may have put into it."""
        return self.state.value.isr | self._maybe_isr

    # ---- reading
    async def load(self) -> None:
        """First read; raises `NotFound` naming the node if the group is not configured."""
        path = f"{self._root}/config"
        async with self._io:
            await self._coordination.sync(path)
            node = await self._coordination.get(path)
        if node is None:
            raise NotFound(
                f"ZooKeeper has no node {path}: create the group first "
                "(or start this broker with the group and cluster names it was given there)"
            )
        self.config = config_from_json(node.data)
        await self.refresh()

    async def run(self) -> None:
        """Follow the watches until cancelled; keep my live node."""
        stops = [
            self._coordination.watch(f"{self._root}/{name}", self._look.set)
            for name in ("config", "state", "live")
        ]
        stops.append(self._coordination.on_state(self._on_session))
        try:
            while True:
                await self._look.wait()
                self._look.clear()
                try:
                    await self._announce()
                    await self.refresh()
                except Unavailable:
                    if self.connected:  # it answers, but not as it should: try again soon
                        await self._clock.sleep(_RETRY_S)
                        self._look.set()
        finally:
            for stop in stops:
                stop()

    async def refresh(self) -> None:
        """Read all afresh: config, then state, then live nodes, in this order.

        A live node that was read before the state could be older than the state. Raises
        `Unavailable`.
        """
        async with self._io:
            await self._coordination.sync(self._root)
            node = await self._coordination.get(f"{self._root}/config")
            if node is not None:
                self.config = self._decoded("config", node.data, config_from_json, self.config)
            await self._read_state()
            standing = self.standing
            self.live = await self._read_live()
        self._check_my_node(standing)
        self.changed.notify()

    async def prove(self) -> Proof:
        """A timed, synced read of the state: raises `Unavailable` if there is no answer."""
        before = self.standing
        sent_ms = self._clock.monotonic_ms()
        known = self.state
        async with self._io:
            await self._coordination.sync(f"{self._root}/state")
            await self._read_state()
        if self.state != known:
            self.changed.notify()
        return Proof(sent_ms, before if before == self.standing else 0)

    # ---- my live node
    async def announce(self, live: LiveBroker) -> None:
        """Create or update my ephemeral node (again after a session's expiry, by `run`).

        With no answer from ZooKeeper it is left to `run`.
        """
        self._mine = live
        try:
            await self._announce(update=True)
        except Unavailable as error:
            _log.info("announce_later", why=str(error))
            self._look.set()

    async def withdraw(self) -> None:
        """Take my live node away: an orderly stop, nobody has to wait for the session's end."""
        self._mine = None
        async with self._announcing:
            if self.standing:
                await self._coordination.delete(self._live_path)
            self._announced_session = 0

    # ---- changing
    async def change(
        self, edit: Callable[[GroupState], GroupState | None], version: int | None = None
    ) -> GroupState | None:
        """Read fresh, edit (None = leave it), compare-and-set; again while others win the race.

        With `version`, the edit is made to that version or not at all. Settles a lost connection
        by `txn`. Returns what now stands, or None if left alone. Raises `ConnectionLost` if it
        cannot know, `Unavailable` if the state there does not decode.
        """
        async with self._changing:
            while True:
                async with self._io:
                    await self._coordination.sync(f"{self._root}/state")
                    await self._read_state()
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
                txn = f"{self._me}-{self._clock.random_id():016x}"
                if await self._set(replace(edited, txn=txn), base.version):
                    self.changed.notify()
                    return self.state.value

    # ---- inside
    @property
    def _live_path(self) -> str:
        return f"{self._root}/live/{self._me}"

    def _on_session(self, _state: SessionState) -> None:
        self._look.set()
        self.changed.notify()

    async def _set(self, new: GroupState, version: int) -> bool:
        """Send one compare-and-set; True if it stands, False if another one won."""
        path, data = f"{self._root}/state", state_to_json(new)
        self._maybe_isr, self.unsettled = new.isr, True
        try:
            async with self._io:
                if version < 0:
                    await self._coordination.create(path, data)
                    version = 0
                else:
                    version = await self._coordination.set(path, data, version)
                self.state = Versioned(new, version)
        except (BadVersion, NodeExists, NoNode):
            self._settled()
            return False
        except Unavailable:
            return await self._settle(new.txn)
        self._settled()
        return True

    async def _settle(self, txn: str) -> bool:
        """After a lost connection: does a synced read show my token?"""
        with_answer_by = self._clock.monotonic_ms() + int(_SETTLE_S * 1000)
        while True:
            try:
                async with self._io:
                    await self._coordination.sync(f"{self._root}/state")
                    await self._read_state()
                return self.state.value.txn == txn
            except Unavailable as error:
                if self._clock.monotonic_ms() >= with_answer_by:
                    raise ConnectionLost(
                        f"a change of {self._root}/state got no answer: it may or may not stand"
                    ) from error
            await self._clock.sleep(_RETRY_S / 4)

    def _settled(self) -> None:
        self._maybe_isr, self.unsettled = frozenset(), False

    async def _read_state(self) -> None:
        """Under `_io`, after a sync: it began after every change of mine that is over."""
        node = await self._coordination.get(f"{self._root}/state")
        if node is None:
            if self.state.version >= 0:
                _log.error("state_vanished", node=f"{self._root}/state", kept=self.state.value.why)
            self.state, self._malformed = Versioned(self.state.value, -1), False
        elif node.version != self.state.version or self.unsettled or self._malformed:
            value = self._decoded("state", node.data, state_from_json, None)
            self._malformed = value is None
            if value is not None:
                self.state = Versioned(value, node.version)
        self._settled()

    async def _read_live(self) -> dict[BrokerId, LiveBroker]:
        found: dict[BrokerId, LiveBroker] = {}
        for name in await self._coordination.children(f"{self._root}/live"):
            node = await self._coordination.get(f"{self._root}/live/{name}")
            if node is None:
                continue
            # It stands, so its broker may live, even if what it says does not decode.
            broker = BrokerId(name)
            nothing = LiveBroker(broker, "", "", Epoch(0), Position(0))
            known = self.live.get(broker, nothing)
            found[broker] = self._decoded(f"live/{name}", node.data, live_from_json, known)
        return found

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

    def _check_my_node(self, standing: int) -> None:
        """Somebody took my node away, or put another in its place: make it stand anew."""
        if not standing or standing != self.standing or self._mine is None:
            return
        seen = self.live.get(self._me)
        if seen is None or seen.incarnation != self._mine.incarnation:
            self._announced_session = 0
            self._look.set()

    async def _announce(self, *, update: bool = False) -> None:
        """Make my live node stand in the current session."""
        async with self._announcing:
            while (mine := self._mine) is not None and self.connected:
                session = self._coordination.session_id
                if session == self._announced_session and not update:
                    return
                try:
                    if await self._announce_once(mine, session):
                        return
                except (NodeExists, NoNode, BadVersion):
                    await self._clock.sleep(_RETRY_S / 4)  # it changed meanwhile: look again

    async def _announce_once(self, mine: LiveBroker, session: int) -> bool:
        """One try; False = look again."""
        data = live_to_json(mine)
        node = await self._coordination.get(self._live_path)
        if node is None:
            self._announced_session = 0
            await self._coordination.create(
                self._live_path, data, ephemeral=True, make_parents=True
            )
            return False  # the owner's session: as the server says
        if node.owner == session:
            if node.data != data:
                await self._coordination.set(self._live_path, data, -1)
            self._stands(session)
            return True
        if self._announcements and not self._is_mine(node.data, mine):
            self._lose_name()
            return True
        await self._coordination.delete(self._live_path, node.version)
        return False

    def _stands(self, session: int) -> None:
        if self._announced_session != session:
            self._announced_session = session
            self._announcements += 1
        self.superseded = False
        self.changed.notify()

    def _lose_name(self) -> None:
        if not self.superseded:
            _log.error("name_taken", broker=self._me, node=self._live_path)
        self.superseded, self._announced_session = True, 0
        self.changed.notify()

    @staticmethod
    def _is_mine(raw: bytes, mine: LiveBroker) -> bool:
        try:
            return live_from_json(raw).incarnation == mine.incarnation
        except Malformed:
            return False
