"""Rounds of Topics: bring the declared groups and queues into ZooKeeper.

Of ordered topics brokers do that: the operator asks one. A watch of the chain wakes the round.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from pydantic import ValidationError

from fmqcore.errors import FmqError, InvalidArgument, Malformed, Unavailable
from fmqcore.ids import TopicId
from fmqcore.zk.chain import ChainGroup
from fmqoperator.api.parts import Reclaim
from fmqoperator.api.topic import Topic
from fmqoperator.core.actions import EmitEvent, Requeue
from fmqoperator.core.event_dedup import lasting
from fmqoperator.core.observation import Failure
from fmqoperator.core.topics.chain_status import ChainSeen, events, state_of
from fmqoperator.core.topics.ordered import CreateOrdered, SetChainGroups, group_names
from fmqoperator.core.topics.plan import (
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    PutTopic,
    TopicSeen,
    cluster_of,
    deletion,
    is_same,
    name_of,
    plan_topic,
    still_used,
    topic_status,
)
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import RESYNC_S, Key, Outcome
from fmqoperator.shell.kube import Json
from fmqoperator.shell.unreadable import report_unreadable
from fmqoperator.shell.zookeeper import Ensemble, Ensembles, Stop
from fmqport.transport import Method
from fmqproto.v1 import admin_pb2
from fmqwire.methods import ALTER_TOPIC, CREATE_TOPIC, DELETE_TOPIC

_log = structlog.get_logger()
_CLEANUP_POLL_S: Final = 2.0
_CLEANUP_TRIES: Final = 60


class Topics:
    """The `Rounds` of Topics."""

    def __init__(
        self, ensembles: Ensembles, events: Events, cache: Cache, brokers: Brokers
    ) -> None:
        self._ensembles = ensembles
        self._events = events
        self._cache = cache
        self._brokers = brokers
        self._watched: dict[Key, tuple[Ensemble, Stop]] = {}

    async def round(
        self, key: Key, body: Json, failures: tuple[Failure, ...], wake: Callable[[], None]
    ) -> Outcome:
        """See `Rounds`."""
        try:
            topic = Topic.model_validate(body)
        except ValidationError as error:
            return await report_unreadable(self._events, body, error)
        self._watch(key, topic, wake)
        seen = await self._observe(topic, failures)
        pause_s, failed = RESYNC_S, None
        for action in (*lasting(failures), *plan_topic(seen)):
            if isinstance(action, Requeue):
                pause_s = min(pause_s, action.after_ms / 1000)
                continue
            try:
                await self._do(topic, body, action)
            except (FmqError, TimeoutError) as error:
                failed = Failure(f"topic {name_of(topic)}", type(error).__name__, str(error))
                break
        if failed is None:
            self._events.round_ended(body)
        after = await self._observe(topic, (failed,) if failed else ())
        await self._report_between(body, seen, after)
        return Outcome(topic_status(after), pause_s, after.failures)

    async def _report_between(self, body: Json, seen: TopicSeen, after: TopicSeen) -> None:
        """Report what the chain did between two looks: the status has the second one's."""
        before = None if seen.chain is None else state_of(seen.chain, seen.now_ms)
        for event in events(before, after.chain):
            await self._events.emit(body, event.type, event.reason, event.message)

    async def gone(self, key: Key, body: Json) -> None:
        """See `Rounds`: delete the topic, if that was asked for, once ZooKeeper can be asked."""
        if (known := self._watched.pop(key, None)) is not None:
            known[1]()
        try:
            topic = Topic.model_validate(body)
        except ValidationError:
            return
        if topic.spec.on_delete is not Reclaim.DELETE:
            return
        cause = ""
        for _ in range(_CLEANUP_TRIES):
            try:
                await self._forget(topic)
            except (FmqError, TimeoutError) as error:
                cause = str(error) or "ZooKeeper does not answer in time"
                await asyncio.sleep(_CLEANUP_POLL_S)
            else:
                return
        _log.warning("topic_not_removed", resource=str(key), reason=cause)

    def _watch(self, key: Key, topic: Topic, wake: Callable[[], None]) -> None:
        """Wake the worker of an ordered topic when the chain changes."""
        if topic.spec.ordered is None:
            return
        try:
            ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
        except InvalidArgument:  # no address at all: the look says so
            return
        known = self._watched.get(key)
        if known is not None and known[0] is ensemble:
            return
        if known is not None:
            known[1]()
        stop = ensemble.watch_chain(cluster_of(topic), name_of(topic), wake)
        self._watched[key] = ensemble, stop

    async def _forget(self, topic: Topic) -> None:
        ensemble, cluster = self._ensembles.of(topic.spec.zookeeper.connect), cluster_of(topic)
        _, there = await ensemble.read_topic(cluster, name_of(topic))
        last = deletion(topic, there, self._others(topic))
        if last is None:
            return
        if last.ordered:
            await self._delete_ordered(topic, ensemble, last)
        else:
            await ensemble.delete_topic(cluster, last.name, last.id)

    async def _delete_ordered(self, topic: Topic, ensemble: Ensemble, last: DeleteTopic) -> None:
        """Let a broker delete the topic and its chain. Raises `Unavailable` if it has a sender."""
        seen = await self._chain(topic, ensemble, last.id)
        if cause := still_used(last.name, seen.line):
            raise Unavailable(cause)
        request = admin_pb2.DeleteTopicRequest(name=last.name, id=last.id)
        addresses = await ensemble.addresses(cluster_of(topic), group_names(topic))
        await self._brokers.change(addresses, DELETE_TOPIC, request)

    def _others(self, topic: Topic) -> tuple[Topic, ...]:
        """Return the other resources that declare the topic, as far as they can be read."""
        found = []
        for body in self._cache.topics(cluster_of(topic), name_of(topic)):
            try:
                other = Topic.model_validate(body)
            except ValidationError:
                continue
            if other.metadata.uid != topic.metadata.uid and is_same(topic, other):
                found.append(other)
        return tuple(found)

    async def _observe(self, topic: Topic, failures: tuple[Failure, ...]) -> TopicSeen:
        others = self._others(topic)
        try:
            ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
            groups, there = await ensemble.read_topic(cluster_of(topic), name_of(topic))
            chain = None
            if topic.spec.ordered is not None and (there is None or there.value.ordered):
                number = TopicId(0) if there is None else there.value.id
                chain = await self._chain(topic, ensemble, number)
        except (FmqError, TimeoutError) as error:
            cause = str(error) or "ZooKeeper does not answer in time"
            bad = isinstance(error, Malformed)
            return TopicSeen(
                topic, wall_ms(), cause=cause, bad=bad, others=others, failures=failures
            )
        return TopicSeen(
            topic, wall_ms(), groups, there, others=others, failures=failures, chain=chain
        )

    async def _chain(self, topic: Topic, ensemble: Ensemble, number: TopicId) -> ChainSeen:
        """Return the chain; without one (number 0: no topic) only the groups."""
        named = group_names(topic)
        return await ensemble.read_chain(cluster_of(topic), name_of(topic), number, named)

    async def _do(self, topic: Topic, body: Json, action: ChangeTopic | EmitEvent) -> None:
        ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
        match action:
            case CreateTopic():
                await ensemble.create_topic(cluster_of(topic), action.config)
            case PutTopic():
                await ensemble.put_topic(cluster_of(topic), action.config, action.version)
            case CreateOrdered() | SetChainGroups():
                addresses = await ensemble.addresses(cluster_of(topic), group_names(topic))
                await self._brokers.change(addresses, *_request(action))
            case EmitEvent():
                await self._events.emit(body, action.type, action.reason, action.message)


def _request(action: CreateOrdered | SetChainGroups) -> tuple[Method, Any]:
    """Return the broker's call for a change of an ordered topic."""
    groups = [_wire(group) for group in action.groups]
    if isinstance(action, SetChainGroups):
        return ALTER_TOPIC, admin_pb2.AlterTopicRequest(name=action.name, chain_groups=groups)
    made = admin_pb2.OrderedTopic(
        groups=groups, allow_single=action.allow_single, lease_ms=action.lease_ms
    )
    return CREATE_TOPIC, admin_pb2.CreateTopicRequest(
        name=action.name, queues=action.queues, if_not_exists=True, ordered=made
    )


def _wire(group: ChainGroup) -> admin_pb2.ChainGroup:
    return admin_pb2.ChainGroup(group=group.group, weight=group.weight)
