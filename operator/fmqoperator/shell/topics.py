"""Rounds of Topics: bring the declared groups and queues into ZooKeeper."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from pydantic import ValidationError

from fmqcore.errors import FmqError, Malformed
from fmqoperator.api.parts import Reclaim
from fmqoperator.api.topic import Topic
from fmqoperator.core.actions import EmitEvent, Requeue
from fmqoperator.core.event_dedup import lasting
from fmqoperator.core.observation import Failure
from fmqoperator.core.topics.plan import (
    CreateTopic,
    PutTopic,
    TopicSeen,
    cluster_of,
    deletion,
    is_same,
    name_of,
    plan_topic,
    topic_status,
)
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import RESYNC_S, Key, Outcome
from fmqoperator.shell.kube import Json
from fmqoperator.shell.unreadable import report_unreadable
from fmqoperator.shell.zookeeper import Ensembles

_log = structlog.get_logger()
_LEAVE_S: Final = 2.0
_LEAVE_TRIES: Final = 60


class Topics:
    """The `Rounds` of Topics."""

    def __init__(self, ensembles: Ensembles, events: Events, cache: Cache) -> None:
        self._ensembles = ensembles
        self._events = events
        self._cache = cache

    async def round(
        self, _key: Key, body: Json, failures: tuple[Failure, ...], _wake: Callable[[], None]
    ) -> Outcome:
        """See `Rounds`."""
        try:
            topic = Topic.model_validate(body)
        except ValidationError as error:
            return await report_unreadable(self._events, body, error)
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
        return Outcome(topic_status(after), pause_s, after.failures)

    async def gone(self, key: Key, body: Json) -> None:
        """See `Rounds`: delete the topic, if that was asked for, once ZooKeeper can be asked."""
        try:
            topic = Topic.model_validate(body)
        except ValidationError:
            return
        if topic.spec.on_delete is not Reclaim.DELETE:
            return
        why = ""
        for _ in range(_LEAVE_TRIES):
            try:
                await self._forget(topic)
            except (FmqError, TimeoutError) as error:
                why = str(error) or "ZooKeeper does not answer in time"
                await asyncio.sleep(_LEAVE_S)
            else:
                return
        _log.warning("topic_is_kept", of=str(key), why=why)

    async def _forget(self, topic: Topic) -> None:
        ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
        _, there = await ensemble.read_topic(cluster_of(topic), name_of(topic))
        if (last := deletion(topic, there, self._others(topic))) is not None:
            await ensemble.delete_topic(cluster_of(topic), last.name, last.id)

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
        except (FmqError, TimeoutError) as error:
            why = str(error) or "ZooKeeper does not answer in time"
            bad = isinstance(error, Malformed)
            return TopicSeen(topic, wall_ms(), why=why, bad=bad, others=others, failures=failures)
        return TopicSeen(topic, wall_ms(), groups, there, others=others, failures=failures)

    async def _do(
        self, topic: Topic, body: Json, action: CreateTopic | PutTopic | EmitEvent
    ) -> None:
        ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
        match action:
            case CreateTopic():
                await ensemble.create_topic(cluster_of(topic), action.config)
            case PutTopic():
                await ensemble.put_topic(cluster_of(topic), action.config, action.version)
            case EmitEvent():
                await self._events.emit(body, action.type, action.reason, action.message)
