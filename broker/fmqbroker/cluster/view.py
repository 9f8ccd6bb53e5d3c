"""The whole cluster as this broker knows it: configurations, states, live brokers, topics.

Read from ZooKeeper and followed by watches; a node that does not decode keeps its last known
value. Answers `Routes`, so that any broker can describe the whole cluster to any client; creates
and deletes topics. Never decides which broker serves: `failover/loop.py` does, for its own group
alone. Leaves in ZooKeeper: `topics` (the numbers) and `topics/<t>`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

import structlog

from fmqbroker.cluster.routes import group_route, topic_route
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.slices import Slices
from fmqcore.errors import AlreadyExists, InvalidArgument, Malformed, NotFound, Unavailable
from fmqcore.ids import MAX_QUEUES, BrokerId, GroupName, TopicId
from fmqcore.names import is_name, require_name
from fmqcore.zk import layout
from fmqcore.zk.group_config import GroupConfig, Removal, config_from_json
from fmqcore.zk.group_state import GroupState, state_from_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_from_json, topic_to_json
from fmqcore.zk.topic_numbers import TopicNumbers, numbers_from_json
from fmqport.coordination import BadVersion, Coordination, NodeExists, NoNode
from fmqport.topic_ids import forget_topic_id, next_topic_id, topic_numbers
from fmqport.transport import CallContext, Handlers
from fmqproto.v1 import client_pb2
from fmqwire.methods import ROUTES

_log = structlog.get_logger()

_RETRY_S: Final = 1.0
"""Seconds after a failed read until the next try, if no watch fires before."""


class ClusterView:
    """Cached and watched; may be stale while ZooKeeper is away (epochs show it)."""

    configs: dict[GroupName, GroupConfig]
    states: dict[GroupName, GroupState]
    live: dict[GroupName, frozenset[BrokerId]]
    topics: dict[str, TopicConfig]
    topics_by_id: dict[TopicId, TopicConfig]
    numbers: TopicNumbers | None  # as last read; None: they do not decode
    changed: Signal

    def __init__(self, coordination: Coordination, cluster: str) -> None:
        self.configs, self.states, self.live = {}, {}, {}
        self.topics, self.topics_by_id = {}, {}
        self.numbers = TopicNumbers()
        self.changed = Signal()
        self._coordination = coordination
        self._cluster = cluster
        self._reading = asyncio.Lock()  # one reader at a time: what is known never goes back
        self._refreshes_started = 0
        self._wake = asyncio.Event()
        self._dirty: dict[tuple[str, str], None] = {}  # (kind, name), in the order they fired
        self._unwatch: dict[tuple[str, str], list[Callable[[], None]]] = {}

    # ---- following
    async def load(self) -> None:
        """Read everything for the first time. Raises `Unavailable`."""
        await self.refresh()

    async def refresh(self) -> None:
        """Read everything again, synced, so that what was just created elsewhere is in the view.

        Callers that arrive while one is waiting share its read. Raises `Unavailable`.
        """
        wanted = self._refreshes_started + 1
        async with self._reading:
            if self._refreshes_started >= wanted:
                return
            self._refreshes_started += 1
            await self._coordination.sync(layout.cluster_root(self._cluster))
            keys = [("groups", ""), ("topics", "")]
            keys += [("group", name) for name in sorted(self.configs)]
            keys += [("topic", name) for name in sorted(self.topics)]
            await self._read(keys)

    async def refresh_groups(self) -> None:
        """Read all groups again, synced. Raises `Unavailable`."""
        await self._coordination.sync(layout.cluster_root(self._cluster))
        async with self._reading:
            await self._read([("groups", ""), *(("group", name) for name in sorted(self.configs))])

    async def find_topics(self, *names: str) -> None:
        """Read those of these topics that the view lacks, synced. Raises `Unavailable`.

        So its cost does not grow with the topics of the cluster.
        """
        missing = [("topic", name) for name in names if name not in self.topics and is_name(name)]
        if missing:
            await self._coordination.sync(layout.cluster_root(self._cluster))
            async with self._reading:  # another caller may have read some of them meanwhile
                await self._read([key for key in missing if key[1] not in self.topics])

    async def find_ids(self, ids: Iterable[TopicId]) -> None:
        """Find the topics with these numbers, as `find_topics`. Raises `Unavailable`.

        Topics with new names are read first. All are read if a number is still unknown: a topic
        may have been deleted and created again, and its watch may be late.
        """
        wanted = frozenset(ids)
        await self._coordination.sync(layout.cluster_root(self._cluster))
        async with self._reading:
            if not self.topics_by_id.keys() >= wanted:  # no other caller has read them meanwhile
                await self._read([("topics", "")])
        if not self.topics_by_id.keys() >= wanted:
            await self.refresh()

    async def run(self) -> None:
        """Follow the watches until cancelled."""
        self._watch(("groups", ""), layout.groups_node(self._cluster))
        self._watch(("topics", ""), layout.topics_node(self._cluster))
        for group in sorted(self.configs):
            self._watch_group(group)
        for topic in sorted(self.topics):
            self._watch_topic(topic)
        try:
            while True:
                await self._follow_once()
        finally:
            for key in list(self._unwatch):
                self._stop_watching(key)

    async def _follow_once(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        dirty, self._dirty = self._dirty, {}
        try:
            async with self._reading:
                await self._read(list(dirty))
        except Unavailable:
            self._dirty = dirty | self._dirty
            try:
                async with asyncio.timeout(_RETRY_S):
                    await self._wake.wait()
            except TimeoutError:
                self._wake.set()

    def _watch(self, key: tuple[str, str], *nodes: str) -> None:
        def fired() -> None:
            self._dirty[key] = None
            self._wake.set()

        if key not in self._unwatch:
            self._unwatch[key] = [self._coordination.watch(node, fired) for node in nodes]

    def _watch_group(self, group: GroupName) -> None:
        where = (layout.config_node, layout.state_node, layout.live_node)
        self._watch(("group", group), *(node(self._cluster, group) for node in where))

    def _watch_topic(self, topic: str) -> None:
        self._watch(("topic", topic), layout.topic_node(self._cluster, topic))

    def _stop_watching(self, key: tuple[str, str]) -> None:
        for stop in self._unwatch.pop(key, ()):
            stop()

    # ---- reading; the lock is held
    async def _read(self, keys: Sequence[tuple[str, str]]) -> None:
        readers: dict[str, Callable[[str], Awaitable[None]]] = {
            "groups": self._read_groups,
            "group": self._read_group,
            "topics": self._read_topics,
            "topic": self._read_topic,
        }
        try:
            for kind, name in keys:
                try:
                    await readers[kind](name)
                except Malformed as error:
                    _log.error("cluster_view_kept", of=f"{kind} {name}", reason=str(error))
        finally:
            self.changed.notify()

    async def _read_groups(self, _: str) -> None:
        names = await self._coordination.children(layout.groups_node(self._cluster))
        present = [GroupName(name) for name in names]
        for gone in sorted(self.configs.keys() - set(present)):
            self._stop_watching(("group", gone))
            for known in (self.configs, self.states, self.live):
                known.pop(gone, None)
        for new in present:
            if self._unwatch:  # running
                self._watch_group(new)
            if new not in self.configs:
                await self._try(self._read_group, new)

    async def _read_group(self, name: str) -> None:
        group = GroupName(name)
        config = await self._coordination.get(layout.config_node(self._cluster, group))
        if config is None:
            return
        state = await self._coordination.get(layout.state_node(self._cluster, group))
        live = await self._coordination.children(layout.live_node(self._cluster, group))
        self.live[group] = frozenset(map(BrokerId, live))
        self.configs[group] = config_from_json(config.data)
        self.states[group] = state_from_json(state.data) if state else GroupState()

    async def _read_topics(self, _: str) -> None:
        numbers = await self._coordination.get(layout.topics_node(self._cluster))
        try:
            self.numbers = TopicNumbers() if numbers is None else numbers_from_json(numbers.data)
        except Malformed as error:
            self.numbers = None
            _log.error("cluster_view_unknown", of="topic numbers", reason=str(error))
        present = await self._coordination.children(layout.topics_node(self._cluster))
        for gone in sorted(self.topics.keys() - set(present)):
            self._forget_topic(gone)
        for new in present:
            if new not in self.topics:
                if self._unwatch:  # running: also for one that does not decode now
                    self._watch_topic(new)
                await self._try(self._read_topic, new)

    async def _try(self, read: Callable[[str], Awaitable[None]], name: str) -> None:
        """Read one node; one that does not decode is logged, and the next ones are still read."""
        try:
            await read(name)
        except Malformed as error:
            _log.error("cluster_view_unknown", of=name, reason=str(error))

    async def _read_topic(self, name: str) -> None:
        node = await self._coordination.get(layout.topic_node(self._cluster, name))
        if node is None:
            self._forget_topic(name)
            return
        topic = topic_from_json(node.data)
        old = self.topics.get(name)
        if old is not None and old.id != topic.id:
            self.topics_by_id.pop(old.id, None)
        self.topics[name] = self.topics_by_id[topic.id] = topic
        if self._unwatch:  # running
            self._watch_topic(name)

    def _forget_topic(self, name: str) -> None:
        self._stop_watching(("topic", name))
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.topics_by_id.pop(topic.id, None)

    # ---- routes
    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {ROUTES: self.routes}

    async def routes(
        self, _: CallContext, request: client_pb2.RouteRequest
    ) -> client_pb2.RouteReply:
        """Return the route table, limited to the named topics if any; unknown ones are left out.

        Built in short turns of the loop. All groups are as of the same moment at the end, because
        the serving brokers must be consistent. Each topic is as of some moment since the call.
        """
        reply, slices = client_pb2.RouteReply(cluster=self._cluster), Slices()
        for name in request.topics or sorted(self.topics):
            if topic := self.topics.get(name):
                reply.topics.append(topic_route(topic))
            await slices.step()
        for group, config in sorted(self.configs.items()):
            state = self.states.get(group, GroupState())
            live = self.live.get(group, frozenset())
            reply.groups.append(group_route(group, config, state, live))
        return reply

    # ---- topics
    async def create_topic(
        self,
        name: str,
        queues: int,
        groups: Sequence[TopicGroup],
        *,
        if_not_exists: bool,
        ordered: bool = False,
    ) -> TopicConfig:
        """Create the topic in ZooKeeper with the next free id, and return it from the view.

        `groups` empty = every group, weight 1; a group's `queues` of 0 = `queues`.
        Raises `AlreadyExists`, `InvalidArgument`, `NotFound`, `Unavailable`.
        """
        chosen = self._checked(name, queues, groups)
        node = layout.topic_node(self._cluster, name)
        if await self._coordination.get(node) is None:
            await self._require_all_claimed(name)
            topics = layout.topics_node(self._cluster)
            number = await next_topic_id(self._coordination, topics, name, ordered=ordered)
            topic = TopicConfig(name, number, chosen, ordered=ordered)
            try:
                await self._coordination.create(node, topic_to_json(topic))
            except NodeExists:
                pass  # another client created it first: handled as one that existed
            except NoNode:
                raise Unavailable(
                    f"topic {name!r} was not created: {topics} is gone from ZooKeeper; try again"
                ) from None
            else:
                _log.info("topic_created", topic=name, id=topic.id)
                if_not_exists = True
        if not if_not_exists:
            raise AlreadyExists(f"there is a topic {name!r} already in cluster {self._cluster}")
        async with self._reading:
            await self._read([("topic", name)])
        created = self.topics.get(name)
        if created is None:
            raise Unavailable(f"topic {name!r} was deleted by another client meanwhile: try again")
        return created

    async def reread_topic(self, name: str) -> None:
        """Read the topic's current node into the view."""
        async with self._reading:
            await self._read([("topic", name)])

    async def delete_topic(self, name: str, number: TopicId | None = None) -> TopicConfig:
        """Delete and return the topic, if it still has that number (None: whichever has the name).

        Its id is never given again. Raises `NotFound`, `Unavailable`.
        """
        node = layout.topic_node(self._cluster, name)
        stored = await self._coordination.get(node) if is_name(name) else None
        if stored is None:
            raise NotFound(f"there is no topic {name!r} in cluster {self._cluster}")
        topic = topic_from_json(stored.data)
        if number and topic.id != number:
            raise NotFound(
                f"topic {name!r} was recreated: it has the id {topic.id}, not {number}; list the "
                "topics again"
            )
        topics = layout.topics_node(self._cluster)
        await forget_topic_id(self._coordination, topics, name, topic.id)
        try:
            await self._coordination.delete(node, stored.version)
        except BadVersion:
            raise Unavailable(f"topic {name!r} is being changed: try again") from None
        _log.info("topic_deleted", topic=name)
        async with self._reading:
            await self._read([("topic", name)])
        return topic

    async def gone_topics(self, ids: Collection[TopicId]) -> frozenset[TopicId]:
        """Return the topic ids in `ids` that belonged to topics which no longer exist.

        Reads ZooKeeper, synced, unless the view knows all of them. Raises `Unavailable`, and
        `Malformed` if a topic does not decode: it may have one of these numbers.
        """
        strange = set(ids) - self.topics_by_id.keys()
        if not strange:
            return frozenset()
        node = layout.topics_node(self._cluster)
        await self._coordination.sync(node)
        # Before the topics, which are created later. What ZooKeeper lost is not gone.
        numbers = await topic_numbers(self._coordination, node)
        for name in await self._coordination.children(node):
            stored = await self._coordination.get(layout.topic_node(self._cluster, name))
            if stored is not None:
                strange.discard(topic_from_json(stored.data).id)
        lost = set(numbers.lost.values())
        return frozenset(t for t in strange - lost if numbers.was_given(t))

    async def _require_all_claimed(self, name: str) -> None:
        """After ZooKeeper lost topics, refuse a new number until every group has claimed its own.

        A group claims before it opens its first term. Raises `Unavailable`.
        """
        numbers = await topic_numbers(self._coordination, layout.topics_node(self._cluster))
        if not (numbers.lost or numbers.skipped) or name in numbers.lost:
            return
        silent = [g for g in sorted(self.configs) if not self.states.get(g, GroupState()).epoch]
        if silent:
            raise Unavailable(
                f"ZooKeeper has lost topics of cluster {self._cluster}, and group "
                f"{', '.join(silent)} has not claimed its journals' topic numbers yet: "
                f"topic {name!r} might get one of them; start a broker of that group, then try "
                "again"
            )

    def lasting_groups(self) -> list[GroupName]:
        """Return the groups that are not being removed, by name."""
        return sorted(g for g, c in self.configs.items() if c.removal is Removal.NONE)

    def require_lasting(self, group: GroupName) -> None:
        """Raise `InvalidArgument` if the group is being removed."""
        config = self.configs.get(group)
        if config is not None and config.removal is not Removal.NONE:
            raise InvalidArgument(
                f"group {group} is being removed from the cluster and takes no messages: "
                "name another one"
            )

    def require_groups(self, groups: Iterable[GroupName]) -> None:
        """Raise `NotFound` for an unknown group, `InvalidArgument` for one being removed."""
        for group in groups:
            if group not in self.configs:
                known = ", ".join(sorted(self.configs)) or "none"
                raise NotFound(f"there is no group {group!r}; the groups are {known}")
            self.require_lasting(group)

    def _checked(
        self, name: str, queues: int, groups: Sequence[TopicGroup]
    ) -> tuple[TopicGroup, ...]:
        """Return the topic's groups. Raises `InvalidArgument`, `NotFound`, naming what is wrong."""
        require_name("topic", name)
        chosen = tuple(
            TopicGroup(g.group, g.queues or queues, g.weight)
            for g in groups or [TopicGroup(g, queues) for g in self.lasting_groups()]
        )
        self.require_groups(group.group for group in chosen)
        for group in chosen:
            if not 1 <= group.queues <= MAX_QUEUES:
                raise InvalidArgument(
                    f"a topic has 1 to {MAX_QUEUES} queues in a group, not {group.queues}"
                )
        if len({g.group for g in chosen}) < len(chosen):
            raise InvalidArgument("a group is named twice")
        if not any(g.weight > 0 for g in chosen):
            raise InvalidArgument("at least one group needs a weight above 0, to take messages")
        return chosen
