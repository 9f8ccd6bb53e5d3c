"""The senders of ordered topics whose sessions this broker has, and their places in the line.

For each sender that asks for the role the broker makes one ephemeral sequential node
`ordered/<t>/senders/<name>-<instance>-<token>-`. The first in line is active, or gets the role;
each other one watches the oldest node of the sender before it, so one departure wakes one waiter.
A sender that moves has two nodes for a moment, and moves behind those in line when the oldest goes:
its new session watches that one, too.
The node goes with the session's stream, or with the broker's session with ZooKeeper. The client
chooses the instance: after the loss of this broker it takes another place at another one, as the
same sender, and goes on if no other has the role by then.

A sender may open further sessions, to the masters of groups, with that place's id: they have no
node, and learn the same states. A `SenderReport` counts for one closing (`fmqcore.ordered.machine`
compares sender and segment); it is forgotten when the chain's last number changes. While sends wait
though it is there, the sender's node has it, too: so each broker shows people the same reason, and
one that reaches the next group may stand in for this one.

Leaves in ZooKeeper: `ordered/<t>/senders`, and the nodes below for as long as their senders.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqcore.errors import (
    InvalidArgument,
    NotFound,
    Unavailable,
    UnknownTopic,
)
from fmqcore.ids import TopicId
from fmqcore.names import require_name
from fmqcore.ordered.evidence import SenderReport
from fmqcore.ordered.senders import Standing
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain
from fmqcore.zk.sender_place import PlaceReport, place_report_to_json
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock
from fmqport.coordination import Coordination, NodeExists, NoNode, SessionState
from fmqport.sequential_nodes import create_once, find_own, in_sequence
from fmqproto.v1 import client_pb2

_log = structlog.get_logger()


_RETRY_S: Final = 0.5
"""Seconds between two tries to delete a node, and to read the line, while ZooKeeper is away."""


class WatchedNodes:
    """The watched nodes of one line of senders."""

    def __init__(self, coordination: Coordination, changed: Callable[[], None]) -> None:
        self._coordination = coordination
        self._changed = changed
        self._stops: dict[str, Callable[[], None]] = {}

    def watch(self, paths: Iterable[str]) -> None:
        """Watch these nodes and no other; a new one counts as changed once soon."""
        wanted = tuple(paths)
        for path in [path for path in self._stops if path not in wanted]:
            self._stops.pop(path)()
        for path in wanted:
            if path not in self._stops:
                self._stops[path] = self._coordination.watch(path, self._changed)

    def close(self) -> None:
        """Stop all watches."""
        self.watch(())


class Senders:
    """All of a broker's senders, by topic."""

    def __init__(
        self, coordination: Coordination, cluster: str, clock: Clock, chains: ChainCache
    ) -> None:
        self._coordination = coordination
        self._cluster = cluster
        self._clock = clock
        self._chains = chains
        self._by_topic: dict[TopicId, dict[SenderStanding, None]] = {}
        self._moved: dict[Callable[[TopicId], None], None] = {}
        self._departed: dict[str, int] = {}  # paths of nodes, and the sessions that made them
        self._departures = Signal()
        self._trouble_since_ms: dict[TopicId, int] = {}  # wall clock

    # ---- what is known
    def trouble_since_ms(self, topic: TopicId) -> int | None:
        """Return since when the open segment takes no sends, by the wall clock; None: it does."""
        return self._trouble_since_ms.get(topic)

    def of(self, topic: TopicId) -> list[SenderStanding]:
        """Return the topic's senders that have a session here."""
        return list(self._by_topic.get(topic, ()))

    def topics(self) -> list[TopicId]:
        """Return the topics that have such a sender."""
        return list(self._by_topic)

    def count(self) -> int:
        """Return the number of all sessions of senders."""
        return sum(map(len, self._by_topic.values()))

    def on_moved(self, callback: Callable[[TopicId], None]) -> None:
        """Call `callback` with the topic when a sender came, went, moved up, or has reported."""
        self._moved[callback] = None

    def note_wait(self, topic: TopicId, reason: str, trouble: str = "") -> None:
        """Note what the topic's chain waits for, so that its senders learn it.

        `trouble`: why its open segment takes no sends; "" = it takes them, or none is open.
        """
        if trouble:
            self._trouble_since_ms.setdefault(topic, self._clock.wall_ms())
        else:
            self._trouble_since_ms.pop(topic, None)
        for sender in self.of(topic):
            if (sender.deciding, sender.trouble) != (reason, trouble):
                sender.deciding, sender.trouble = reason, trouble
                sender.moved.notify()

    def has_moved(self, topic: TopicId) -> None:
        """Wake the coordinator of that topic."""
        for callback in list(self._moved):
            callback(topic)

    async def note_report(self, sender: SenderStanding, report: SenderReport) -> None:
        """Note a report in the sender's node, for other brokers; once. Raises `Unavailable`."""
        if sender.noted == report:
            return
        path = f"{layout.senders_node(self._cluster, sender.topic.name)}/{sender.place}"
        data = place_report_to_json(PlaceReport(report.segment, report.unacked))
        with contextlib.suppress(NoNode):
            await self._coordination.set(path, data, -1)
        sender.noted = report

    async def line(self, topic: str, *, synced: bool = False) -> tuple[str, ...]:
        """Return the nodes of the topic's senders, first in line first. Raises `Unavailable`."""
        node = layout.senders_node(self._cluster, topic)
        if synced:
            await self._coordination.sync(node)
        return tuple(in_sequence(await self._coordination.children(node)))

    def watched(self, changed: Callable[[], None]) -> WatchedNodes:
        """Return what watches nodes of a line; `changed`: called when one may differ."""
        return WatchedNodes(self._coordination, changed)

    def nodes_of_line(self, topic: str, places: Iterable[str]) -> list[str]:
        """Return the node that changes when a sender comes or goes, and those of these places."""
        node = layout.senders_node(self._cluster, topic)
        return [node, *(f"{node}/{place}" for place in places)]

    # ---- a place in the line
    @asynccontextmanager
    async def standing(
        self, topic: TopicConfig, opening: client_pb2.SenderOpen
    ) -> AsyncIterator[SenderStanding]:
        """Stand for a sender for as long as the context lasts.

        Raises `InvalidArgument`, `UnknownTopic`, `NotFound` (no chain), `Unavailable`.
        """
        stop = self._chains.follow(topic.name)
        try:
            chain = await self._read(topic)
            async with self._place(topic, opening) as place:
                sender = SenderStanding(
                    topic,
                    chain,
                    place,
                    accepts_unknown_end=opening.accepts_unknown_end,
                    own=not opening.sender_id,
                )
                sender.adopt(chain, await self.line(topic.name))
                senders = self._by_topic.setdefault(topic.id, {})
                senders[sender] = None
                self.has_moved(topic.id)
                try:
                    yield sender
                finally:
                    del senders[sender]
                    if not senders:
                        self._by_topic.pop(topic.id, None)
        finally:
            stop()
            self.has_moved(topic.id)

    async def follow(self, sender: SenderStanding) -> None:
        """Keep the sender's standing as chain and line are, until cancelled.

        Raises `SenderFenced`, `Unavailable` if its place is gone, or `UnknownTopic`.
        """
        changes = Signal()

        def session_moved(state: SessionState) -> None:
            if state is not SessionState.SUSPENDED:
                changes.notify()

        with contextlib.ExitStack() as stops:
            stops.callback(self._chains.on_change_of(sender.topic.id, changes.notify))
            stops.callback(self._coordination.on_state(session_moved))
            watched = WatchedNodes(self._coordination, changes.notify)
            stops.callback(watched.close)
            while True:
                seen = changes.count
                pause_s = None if await self._update_standing(sender, watched) else _RETRY_S
                if changes.count == seen:
                    await wait_any(changes, timeout_s=pause_s)

    async def _update_standing(self, sender: SenderStanding, watched: WatchedNodes) -> bool:
        """Read the line once; return False if ZooKeeper gave no answer."""
        name = sender.topic.name
        try:
            chain = self._chains.of(sender.topic.id)
            if chain is None:
                chain = await self._read(sender.topic)
            old = sender.standing
            sender.adopt(chain, await self.line(name))
            if sender.standing is Standing.LOST:  # or made over a server that is ahead of this one
                sender.adopt(chain, await self.line(name, synced=True))
        except (NotFound, UnknownTopic, InvalidArgument):
            raise
        except Unavailable:
            return False
        sender.require_place()
        if sender.own:
            node = layout.senders_node(self._cluster, name)
            watched.watch([f"{node}/{place}" for place in sender.places_to_watch()])
        if sender.standing is not old:
            _log.info(
                "sender_standing_changed",
                topic=name,
                sender=sender.id,
                standing=sender.standing.value,
            )
            self.has_moved(sender.topic.id)
        sender.moved.notify()
        return True

    async def _read(self, topic: TopicConfig) -> Chain:
        """Return the topic's chain as it is now; raise `UnknownTopic` if it is another topic's.

        A deletion may stop before it has removed the line. A sender of the deleted topic that
        stayed in it would be first for ever, and the new topic's senders would wait for it.
        """
        chain = (await self._chains.read(topic.name)).value
        if chain.topic_id != topic.id:
            raise UnknownTopic(
                f"topic {topic.name} was deleted and created again: open the producer again"
            )
        return chain

    @asynccontextmanager
    async def _place(
        self, topic: TopicConfig, opening: client_pb2.SenderOpen
    ) -> AsyncIterator[str]:
        """Yield the place that the sender names, or a new one, which ends here."""
        if opening.sender_id:
            yield opening.sender_id
            return
        require_name("sender", opening.name)
        parent = layout.senders_node(self._cluster, topic.name)
        instance, token = opening.instance or self._clock.random_id(), self._clock.random_id()
        path = f"{parent}/{opening.name}-{instance:016x}-{token:016x}-"
        try:
            yield await self._make(parent, path)
        finally:
            self._departed[path] = self._coordination.session_id
            self._departures.notify()

    async def _make(self, parent: str, path: str) -> str:
        try:
            with contextlib.suppress(NodeExists):
                await self._coordination.create(parent, b"")
            return await create_once(self._coordination, path, b"")
        except NoNode:
            raise NotFound("the topic was deleted, with the line of senders") from None

    async def run(self) -> None:
        """Delete the nodes of senders that have gone, until cancelled.

        Also a node whose creation got no answer. The last ones go with the broker's session.
        """
        while True:
            try:
                for path, session in list(self._departed.items()):
                    if session == self._coordination.session_id:
                        await self._delete(path)
                    del self._departed[path]
            except Unavailable:
                await self._clock.sleep(_RETRY_S)
            if not self._departed:
                await self._departures.wait()

    async def _delete(self, path: str) -> None:
        name = await find_own(self._coordination, path)
        if name is not None:
            await self._coordination.delete(f"{path.rpartition('/')[0]}/{name}")
