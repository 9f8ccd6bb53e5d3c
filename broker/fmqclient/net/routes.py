"""The client's route table, kept fresh from any broker of the cluster.

It is fetched at the start, every `REFRESH_MS`, and at once on a sign of change: a refused
permission, a reset, silence. Routes older than the known ones are ignored
(`fmqcore.routing.merge`).
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from fmqclient.net.connections import NO_TOPIC, Connections
from fmqcore.errors import Unavailable, UnknownTopic
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, TopicId
from fmqcore.properties import Properties
from fmqcore.routing import BrokerRoute, GroupRoute, RouteTable, merge
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.clock import Clock
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import ROUTES

REFRESH_MS = 10_000
MIN_INTERVAL_S = 0.05
STRANGE_MS = 5000
"""Milliseconds after which a broker must have learned of a topic that the routes know."""


class Routes:
    """The route table and the brokers to ask for it. `run` refreshes it in the background."""

    def __init__(self, connections: Connections, clock: Clock, seeds: tuple[str, ...]) -> None:
        self.table = RouteTable()
        self.cluster = ""
        self.named: tuple[GroupName, ...] = ()  # the groups of the newest answer
        self._connections = connections
        self._clock = clock
        self._seeds = seeds
        self._asked_last = ""  # who answered last: asked first
        self._silent: dict[str, None] = {}  # who did not: asked last
        self._topics: dict[str, None] = {}  # those of interest
        self._made: dict[str, tuple[TopicConfig, int]] = {}  # by this client, and until when
        self._lock = asyncio.Lock()
        self._started = 0  # questions; each is numbered
        self._ended = self._ended_whole = 0  # the newest question, and the newest for all topics
        self._failed: Unavailable | None = None  # how the newest that ended did
        self._looked_up: dict[str, None] = {}  # topics that callers of `look_up` wait for
        self._wanted = asyncio.Event()
        self._listeners: dict[Callable[[], None], None] = {}

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every refresh; return a function that stops it."""
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    def request_refresh(self) -> None:
        """Refresh soon, because something may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Refresh when wanted and every `REFRESH_MS`, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_MS / 1000):
                    await self._wanted.wait()
            self._wanted.clear()
            with suppress(Unavailable):  # a caller that needs routes asks again, and reports it
                await self.refresh()
            await self._clock.sleep(MIN_INTERVAL_S)

    async def topic(self, name: str) -> TopicConfig:
        """Return a topic's groups and queues. Raises `UnknownTopic`, `Unavailable`."""
        fresh = name not in self._topics
        self._topics[name] = None
        known = self.table.topics.get(name)
        if known is None:
            await self.look_up(name)
            known = self.table.topics.get(name) or await self._known_elsewhere(name)
        if known is None:
            # Else another part of this client has the topic, or waits for it to come back.
            if fresh and name not in self.table.topics:
                self._topics.pop(name, None)
            raise UnknownTopic(
                f"there is no topic {name!r}; create it: fmq topic create {name}, "
                "or admin().create_topic()"
            )
        return known

    def keep_created(self, topic: TopicConfig) -> None:
        """Keep a topic that was just created for `STRANGE_MS`, whatever brokers answer.

        They may not know it yet.
        """
        self._made[topic.name] = (topic, self._clock.monotonic_ms() + STRANGE_MS)
        self.table = merge(self.table, (), (topic,), (topic.name,))
        self._notify()

    def forget(self, name: str) -> None:
        """Stop keeping a topic that this client has deleted."""
        self._made.pop(name, None)

    def _with_made(self, table: RouteTable) -> RouteTable:
        """Return the table plus this client's new topics that the answering broker lacks."""
        now_ms = self._clock.monotonic_ms()
        self._made = {name: made for name, made in self._made.items() if now_ms < made[1]}
        newer = {}
        for name, (made, _) in self._made.items():
            found = table.topics.get(name)
            if found is None or (found.id == made.id and _lacks_queues(found, made)):
                newer[name] = made
        return merge(table, (), newer.values(), newer) if newer else table

    def knows_newer(self, name: str, number: int) -> bool:
        """Whether topic `number` had the name before the topic that has it now."""
        return number < self.table.newest.get(name, 0)

    async def _known_elsewhere(self, name: str) -> TopicConfig | None:
        """Ask the other brokers: the one that answered may be cut off from ZooKeeper.

        A topic is unknown only if no broker that answers knows it.
        """
        for address in list(self._addresses())[1:]:
            if address in self._silent:
                continue
            request = client_pb2.RouteRequest(topics=(name,))
            try:
                connection = self._connections.to(address)
                reply = await connection.call(ROUTES, request, ROUTES.timeout_s)
            except TransportError:
                self._silent[address] = None
                continue
            if reply.topics:
                self._asked_last = address
                self.table = merge(
                    self.table, map(_group, reply.groups), map(topic_of, reply.topics), (name,)
                )
                if (known := self.table.topics.get(name)) is not None:
                    return known
        return None

    async def refresh(self, *, everything: bool = False) -> None:
        """Ask for the groups and the topics of interest, or all topics. Raises `Unavailable`.

        The brokers are asked until one answers. A refresh in progress serves this call too if it
        started after the call.
        """
        wanted = self._started + 1
        async with self._lock:
            if self._ended_whole >= wanted and not everything:
                self._raise_failure()
                return
            asked = () if everything else (*self._topics, *self._looked_up) or (NO_TOPIC,)
            try:
                await self._fetch(asked)
            finally:
                self._ended_whole = self._ended
            if asked:  # what is not asked for grows old
                self.table = self.table.of_topics({*asked, *self._topics})
                self.table = self._with_made(self.table)
        self._notify()

    async def look_up(self, *names: str) -> None:
        """Ask for the groups and these topics alone. Raises `Unavailable`.

        The question and its answer do not grow with the topics of this client or of the cluster. A
        question in progress serves this call too if it started after the call.
        """
        self._looked_up |= dict.fromkeys(names)
        wanted = self._started + 1
        async with self._lock:
            if self._ended >= wanted:
                self._raise_failure()
                if all(name in self.table.topics for name in names):
                    return
                self._looked_up |= dict.fromkeys(names)  # unknown, or a refresh has dropped it
            await self._fetch(tuple(self._looked_up) or (NO_TOPIC,))
        self._notify()

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise Unavailable(str(self._failed))

    async def _fetch(self, asked: tuple[str, ...]) -> None:
        """Merge one broker's answer about these topics, or all if none are named."""
        self._started = number = self._started + 1
        looked_up, self._looked_up = self._looked_up, {}
        try:
            reply = await self._ask(client_pb2.RouteRequest(topics=asked))
        except Unavailable as error:
            self._ended, self._failed = number, error
            raise
        except BaseException:  # this caller ends, and the others still wait for their topics
            self._looked_up = looked_up | self._looked_up
            raise
        self._ended, self._failed = number, None
        self.cluster = reply.cluster or self.cluster
        self.named = tuple(GroupName(g.group) for g in reply.groups)
        table = merge(self.table, map(_group, reply.groups), map(topic_of, reply.topics), asked)
        self.table = self._with_made(table)

    def _notify(self) -> None:
        for listener in list(self._listeners):
            listener()

    async def _ask(self, request: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        errors = []
        for address in self._addresses():
            try:
                connection = self._connections.to(address)
                reply: client_pb2.RouteReply = await connection.call(
                    ROUTES, request, ROUTES.timeout_s
                )
            except TransportError as error:
                errors.append(f"{address} ({str(error).rpartition(': ')[2]})")
                self._silent[address] = None
            else:
                self._silent.pop(address, None)
                self._asked_last = address
                return reply
        raise Unavailable(
            f"no broker answers at {', '.join(errors)}: check the addresses, and that "
            "the cluster is up"
        )

    def _addresses(self) -> Iterable[str]:
        known = [
            (not broker.live, broker.address)
            for group in self.table.groups.values()
            for broker in group.brokers
        ]
        names = (self._asked_last, *(a for _, a in sorted(known)), *self._seeds)
        unique = [name for name in dict.fromkeys(names) if name]
        return sorted(unique, key=self._silent.__contains__)


def _lacks_queues(found: TopicConfig, made: TopicConfig) -> bool:
    """Whether `found` is older than `made`: a topic only gains queues and groups.

    It loses a group only when that is removed from the cluster, which takes longer than
    `STRANGE_MS` after the topic was created.
    """
    return any(found.queues_in(group.group) < group.queues for group in made.groups)


def _group(route: client_pb2.GroupRoute) -> GroupRoute:
    return GroupRoute(
        GroupName(route.group),
        Epoch(route.epoch),
        route.mode,
        tuple(
            BrokerRoute(
                id=BrokerId(b.id),
                address=b.address,
                zone=b.zone,
                role=b.role,
                permission=Permission(b.permission & Permission.FULL),
                in_sync=b.in_sync,
                live=b.live,
            )
            for b in route.brokers
        ),
    )


def topic_of(route: client_pb2.TopicRoute) -> TopicConfig:
    """Return a topic from its wire form."""
    groups = tuple(
        TopicGroup(GroupName(g.group), g.queues, g.weight, Properties(g.properties.items()))
        for g in route.groups
    )
    properties = Properties(route.properties.items())
    return TopicConfig(route.name, TopicId(route.id), groups, properties, route.ordered)
