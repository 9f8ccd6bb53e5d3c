"""A producer's topics: looked up for the first record, and kept up to date."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fmqclient.net.routes import Routes
from fmqclient.producer.accumulator import Accumulator
from fmqclient.producer.topic_buffers import Topic
from fmqclient.settings import ProducerSettings
from fmqcore.errors import FmqError, InvalidArgument, Unavailable, UnknownTopic
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock

_TICK_S: Final = 0.1


class KnownTopics:
    """The topics of one producer. `begin` runs work as one of the producer's tasks."""

    def __init__(
        self,
        accumulator: Accumulator,
        routes: Routes,
        clock: Clock,
        settings: ProducerSettings,
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._accumulator = accumulator
        self._routes = routes
        self._clock = clock
        self._timeout_s = settings.delivery_timeout_s
        self._begin = begin
        self._doubted: set[str] = set()  # topics that an answer of late did not know

    async def resolve(self, topic: Topic) -> None:
        """Learn the groups and queues of a topic, for as long as its first record may wait."""
        until_ms = self._clock.monotonic_ms() + int(self._timeout_s * 1000)
        while True:
            try:
                config = await self._routes.topic(topic.name)
            except Unavailable as error:
                if self._clock.monotonic_ms() >= until_ms:
                    self._accumulator.forget(topic, error)
                    return
                await self._clock.sleep(self._clock.uniform(_TICK_S, 3 * _TICK_S))
            except FmqError as error:
                self._accumulator.forget(topic, error)
                return
            else:
                if config.ordered:
                    self._accumulator.forget(topic, _ordered(topic.name))
                else:
                    self._accumulator.set_config(topic, config)
                return

    def apply_routes(self) -> None:
        """Apply refreshed routes: topics may have other groups, or be gone."""
        for topic in list(self._accumulator.topics.values()):
            if topic.config is None:
                continue
            config = self._routes.table.topics.get(topic.name)
            if config is not None:
                self._take_config(topic, config)
            elif topic.name not in self._doubted:
                self._doubted.add(topic.name)
                self._begin(self._doubt(topic))

    async def _doubt(self, topic: Topic) -> None:
        """Ask every broker: the one that does not know the topic may be cut off from ZooKeeper."""
        try:
            config = await self._routes.topic(topic.name)
        except Unavailable:
            return  # no broker can answer now: the next answer may
        except UnknownTopic:
            if self._accumulator.topics.get(topic.name) is topic:
                self._forget(topic)
        else:
            if self._accumulator.topics.get(topic.name) is topic:
                self._take_config(topic, config)
        finally:
            self._doubted.discard(topic.name)

    def _take_config(self, topic: Topic, config: TopicConfig) -> None:
        assert topic.config is not None, "it was known before"
        if config.id == topic.config.id:
            self._accumulator.set_config(topic, config)
        else:
            self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        self._accumulator.forget(topic, UnknownTopic(f"topic {topic.name} was deleted"))


def _ordered(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"topic {name} is ordered, it takes the sends of one active sender: use "
        f"ordered_producer({name!r}), or fmq produce --ordered"
    )
