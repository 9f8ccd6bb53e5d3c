"""Rounds of Topics: the declared groups and queues are brought into ZooKeeper."""

from collections.abc import Callable

from pydantic import ValidationError

from fmqcore.errors import FmqError
from fmqoperator.actions import Requeue, Tell
from fmqoperator.resources import Topic
from fmqoperator.seen import Failure
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import RESYNC_S, Key, Outcome
from fmqoperator.shell.kube import Json
from fmqoperator.shell.times import wall_ms
from fmqoperator.shell.unreadable import told_unreadable
from fmqoperator.shell.zookeeper import Ensembles
from fmqoperator.told import lasting
from fmqoperator.topics import (
    CreateTopic,
    PutTopic,
    TopicSeen,
    cluster_of,
    farewell,
    name_of,
    plan_topic,
    topic_status,
)


class Topics:
    """The `Rounds` of Topics."""

    def __init__(self, ensembles: Ensembles, events: Events) -> None:
        self._ensembles = ensembles
        self._events = events

    async def round(
        self, _key: Key, body: Json, failures: tuple[Failure, ...], _wake: Callable[[], None]
    ) -> Outcome:
        """See `Rounds`."""
        try:
            topic = Topic.model_validate(body)
        except ValidationError as error:
            return await told_unreadable(self._events, body, error)
        seen = await self._look(topic, failures)
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
        after = await self._look(topic, (failed,) if failed else ())
        return Outcome(topic_status(after), pause_s, after.failures)

    async def gone(self, _key: Key, body: Json) -> None:
        """See `Rounds`: the topic goes too, if that was asked for."""
        try:
            topic = Topic.model_validate(body)
        except ValidationError:
            return
        seen = await self._look(topic, ())
        if (last := farewell(topic, seen.there)) is not None:
            ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
            await ensemble.delete_topic(cluster_of(topic), last.name, last.id)

    async def _look(self, topic: Topic, failures: tuple[Failure, ...]) -> TopicSeen:
        try:
            ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
            groups, there = await ensemble.look_at_topic(cluster_of(topic), name_of(topic))
        except (FmqError, TimeoutError) as error:
            why = str(error) or "ZooKeeper does not answer in time"
            return TopicSeen(topic, wall_ms(), why=why, failures=failures)
        return TopicSeen(topic, wall_ms(), groups, there, failures=failures)

    async def _do(self, topic: Topic, body: Json, action: CreateTopic | PutTopic | Tell) -> None:
        ensemble = self._ensembles.of(topic.spec.zookeeper.connect)
        match action:
            case CreateTopic():
                await ensemble.create_topic(cluster_of(topic), action.config)
            case PutTopic():
                await ensemble.put_topic(cluster_of(topic), action.config, action.version)
            case Tell():
                await self._events.tell(body, action.type, action.reason, action.message)
