"""The broker's ephemeral node, `live/<broker>`: it stands while its session does.

It is recreated after every expiry. Each time it stands again it gets a new number (`standing`): a
broker that looked in between saw it gone, so nothing that rests on it may simply go on
(`fmqcore.failover.term_rules`). It replaces a node of an earlier incarnation of this broker, which
is dead (`identity.py` knows which). Any other node there means that another process lives under the
same name (`superseded`); that node is left alone until it goes.

A group that was removed from the cluster is not brought back: the node waits until the group has a
configuration again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.steady_clock import note_zookeeper
from fmqcore.errors import Malformed
from fmqcore.ids import BrokerId
from fmqcore.zk.live_broker import LiveBroker, live_from_json, live_to_json
from fmqport.clock import Clock
from fmqport.coordination import BadVersion, Coordination, NodeExists, NoNode, SessionState

_log = structlog.get_logger()

_RETRY_S: Final = 0.05


class LiveNode:
    """Announces this broker and knows whether its node stands; notifies `changed` on changes."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        path: str,
        me: BrokerId,
        changed: Signal,
        make_parent: Callable[[], Awaitable[bool]],
    ) -> None:
        """`make_parent` creates the parent of the node, and returns False for a removed group."""
        self.superseded = False  # another process announces itself under this name
        self.earlier: frozenset[str] = frozenset()  # this broker's dead incarnations
        self._coordination = coordination
        self._clock = clock
        self._path = path
        self._me = me
        self._changed = changed
        self._make_parent = make_parent
        self._announced: LiveBroker | None = None  # what to announce; None = nothing
        self._stored: LiveBroker | None = None  # what the node says, as far as that is known
        self._session = 0  # in which it stands; 0 = it does not
        self._number = 0
        self._created_ms: int | None = None  # when it was; until the server's time is known
        self._lock = asyncio.Lock()

    @property
    def standing(self) -> int:
        """The node's number while it stands in a connected session; else 0."""
        connected = self._coordination.state is SessionState.CONNECTED
        return self._number if connected and self._session == self._coordination.session_id else 0

    async def announce(self, live: LiveBroker) -> None:
        """Announce `live` from now on. Raises `Unavailable`; then `keep` announces it later."""
        self._announced = live
        await self._stand()

    async def keep(self) -> None:
        """Create or update the node if it is not as announced. Raises `Unavailable`."""
        await self._stand()

    async def withdraw(self) -> None:
        """Remove the node for good."""
        self._announced = None
        async with self._lock:
            if self.standing:
                await self._coordination.delete(self._path)
            self._session = 0

    def check(self, live: Mapping[BrokerId, LiveBroker], standing: int) -> bool:
        """Return False if live nodes read after `standing` lack the node: it must be recreated."""
        if not standing or standing != self.standing or self._announced is None:
            return True
        seen = live.get(self._me)
        if seen is not None and seen.incarnation == self._announced.incarnation:
            return True
        self._session = 0  # another client has deleted or replaced it
        return False

    async def _stand(self) -> None:
        async with self._lock:
            while (live := self._announced) is not None:
                session = self._coordination.session_id
                if self._coordination.state is not SessionState.CONNECTED:
                    return
                if session == self._session and self._stored == live:
                    return
                try:
                    if await self._try(live, session):
                        return
                except (NodeExists, NoNode, BadVersion):
                    await self._clock.sleep(_RETRY_S)  # it changed meanwhile: look again

    async def _try(self, live: LiveBroker, session: int) -> bool:
        """Try once to make the node stand; False = look again."""
        data = live_to_json(live)
        node = await self._coordination.get(self._path)
        if node is None:
            self._session = 0
            try:
                self._created_ms = self._clock.monotonic_ms()
                await self._coordination.create(self._path, data, ephemeral=True)
            except NoNode:
                return not await self._make_parent()
            return False  # the server says whose it is
        if node.owner == session:
            if self._created_ms is not None:
                note_zookeeper(self._clock, node.modified_ms, self._created_ms)
                self._created_ms = None
            if node.data != data:
                await self._coordination.set(self._path, data, -1)
            self._stands(session, live)
            return True
        if _incarnation(node.data) not in self.earlier | {live.incarnation}:
            self._lose_name()
            return True
        await self._coordination.delete(self._path, node.version)
        return False

    def _stands(self, session: int, stored: LiveBroker) -> None:
        self._stored = stored
        if self._session != session:
            self._session = session
            self._number += 1
        self.superseded = False
        self._changed.notify()

    def _lose_name(self) -> None:
        if not self.superseded:
            _log.error("name_taken", broker=self._me, node=self._path)
        self.superseded, self._session = True, 0
        self._changed.notify()


def _incarnation(raw: bytes) -> str | None:
    try:
        return live_from_json(raw).incarnation
    except Malformed:
        return None
