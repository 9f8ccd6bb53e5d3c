"""A topic that is created, used, changed, deleted and recreated under one name.

Runs on request (`--topics`): in every scene it would make each seed another run. The topics of the
traffic change meanwhile, too (`TOPICS`), judged by the checks as ever. This topic has its own
rules, checked here, as one name stands for many topics (a broken rule is a client's bug):

- its consumer gets records that were sent in this life of the topic, and no others;
- acknowledged records arrive, if nothing was done that may take them away;
- refused records do not arrive, and records of one key arrive in order;
- every send has an outcome, and a consumer on a healthy cluster is not refused for long.

To the checks its records are `one_way`: known as sent, with nothing promised.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import Final

from e2e.history.client_events import Place, Sent, Stored
from e2e.history.cluster_events import Fault, FaultKind, Step
from e2e.traffic.ports import Door
from e2e.traffic.values import record_of, value_of
from fmqclient.client import Client
from fmqclient.consumer.message import Message
from fmqclient.producer.batches import SendResult
from fmqclient.producer.producer import Producer
from fmqcore.errors import AlreadyExists, DeliveryUnknown, FmqError, NotFound
from fmqcore.policy import Flush, HowMany, SlaveCounts
from fmqcore.zk import layout as paths
from fmqcore.zk.topic import topic_from_json, topic_to_json
from fmqsim.faults.api import Act, Entry, WorldApi
from fmqsim.scenario.scene import CLUSTER

NAME: Final = "side"
_MOST_QUEUES: Final = 5
_QUIET_TIMEOUT_S: Final = 15.0
"""Seconds that a healthy cluster has to deliver what must arrive."""
_DELIVERY_S: Final = 8.0
_POLL_S: Final = 0.05
_NOWHERE: Final = Place(NAME, "", 0)
_HURTS: Final = frozenset({FaultKind.DISK_EMPTY, FaultKind.DISK_DAMAGE})


class Side:
    """Creates, uses and deletes the topic: a client on its own machine."""

    def __init__(self, world: WorldApi) -> None:
        self._world = world
        self._traffic = world.traffic
        self._life = 0
        self._of: dict[int, int] = {}  # record → the life in which it was sent
        self._left: list[_Life] = []  # whose sends may have no outcome yet

    async def run(self, door: Door) -> None:
        """Run until the traffic is stopped."""
        who = self._traffic.born(NAME)
        dice = self._traffic.dice(who)
        while self._traffic.sending:
            self._left.clear()  # their producer is gone
            try:
                async with door.client(who) as client, _producer(client) as producer:
                    while self._traffic.sending:
                        await self._begin(client, dice)
                        stays = producer if dice.random() < 0.5 else None
                        await self._live(client, stays, who, dice)
                        await asyncio.sleep(dice.choice((0.0, 0.0, dice.uniform(0, 1))))
            except FmqError:  # no broker answered for as long as a client waits
                await asyncio.sleep(_POLL_S)

    async def _begin(self, client: Client, dice: random.Random) -> None:
        """Create an unused topic of that name."""
        self._life += 1
        admin = client.admin()
        with suppress(NotFound):
            await admin.delete_topic(NAME)
        with suppress(AlreadyExists):  # an answer was lost, or its request was held up
            await admin.create_topic(NAME, queues=dice.randint(1, 3))

    async def _live(
        self, client: Client, stays: Producer | None, who: str, dice: random.Random
    ) -> None:
        carried = {record for left in self._left for record in left.open}
        life = _Life(self, self._world, who, self._life, dice, carried)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(life.read(client))
            if stays is not None:  # it knew the topic that had this name before
                self._left += [life]
                await life.send(stays)
                if dice.random() < 0.4:  # the topic goes while all is under way
                    reading.cancel()
                    return
                await self._answered(stays)
            else:
                async with _producer(client) as producer:
                    await life.send(producer)
                    await producer.flush()
                    life.must_be_answered()
            drained = await life.drain()
            self._world.loop.note(f"{NAME}: life {self._life} ends, drained: {drained}")
            reading.cancel()

    async def _answered(self, producer: Producer) -> None:
        await producer.flush()
        for life in self._left:
            life.must_be_answered()
        self._left.clear()

    def sent(self, record: int, life: int) -> None:
        """Note the life in which a record was sent."""
        self._of[record] = life

    def life_of(self, record: int) -> int:
        """Return the life in which a record was sent; 0: never."""
        return self._of.get(record, 0)


def _producer(client: Client) -> Producer:
    return client.producer(
        linger_ms=0.0, delivery_timeout_s=_DELIVERY_S, close_timeout_s=_DELIVERY_S + 5
    )


class _Life:
    """One life of the topic, from the first message to the last."""

    def __init__(
        self,
        side: Side,
        world: WorldApi,
        who: str,
        number: int,
        dice: random.Random,
        carried: set[int],
    ) -> None:
        self._carried = carried  # sent before, without an outcome: they may go to this topic
        self._side = side
        self._world = world
        self._traffic = world.traffic
        self._who = who
        self._number = number
        self._dice = dice
        self._started_ms = world.loop.now_ms
        self._acked: set[int] = set()
        self._failed: dict[int, str] = {}
        self._got: set[int] = set()
        self._newest: dict[tuple[str, int, bytes | None], int] = {}
        self.open: set[int] = set()
        self._refused = ""  # the last error that the consumer got

    async def send(self, producer: Producer) -> None:
        """Send some bursts."""
        dice = self._dice
        for _ in range(dice.randint(1, 8)):
            for _ in range(dice.randint(1, 6)):
                self._send_one(producer)
            if dice.random() < 0.3:
                change(self._world, NAME, dice)
            await asyncio.sleep(dice.uniform(0, 0.4))

    def _send_one(self, producer: Producer) -> None:
        traffic, record = self._traffic, self._traffic.next_record()
        self._side.sent(record, self._number)
        self.open.add(record)
        key = f"k{self._dice.randrange(4)}"
        traffic.sent(Sent(traffic.now_ms(), self._who, record, NAME, "one_way", key))

        def answered(future: "asyncio.Future[SendResult]") -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            self.settle(record, error)

        try:
            future = producer.send_nowait(NAME, value_of(record, 30), key=key.encode())
        except FmqError as error:
            self.settle(record, error)
        else:
            future.add_done_callback(answered)

    def settle(self, record: int, error: BaseException | None) -> None:
        """Handle the outcome of a send."""
        self.open.discard(record)
        match error:
            case None:
                self._acked.add(record)
            case DeliveryUnknown() | asyncio.CancelledError():
                pass
            case FmqError():
                self._failed[record] = str(error)
                self._must_not_come(record)
            case _:
                self._traffic.bugs.append(error)
        outcome = Stored(self._traffic.now_ms(), self._who, record, _NOWHERE, -1)
        self._traffic.settled(outcome, self._who, record)

    def must_be_answered(self) -> None:
        """Check that every send has an outcome, after the producer was flushed."""
        if self.open:
            self._bug(f"{len(self.open)} sends have no outcome, and all were flushed")

    async def read(self, client: Client) -> None:
        """Consume all messages."""
        while True:
            try:
                async with client.consumer(NAME, group=NAME, close_timeout_s=2) as consumer:
                    while True:
                        for message in await consumer.fetch(100, 0.2):
                            self.accept(message)
                            message.ack_now()
                        self._refused = ""
            except FmqError as error:
                self._refused = f"{type(error).__name__}: {error}"
                await asyncio.sleep(_POLL_S)

    def accept(self, message: Message) -> None:
        """Check a message that arrived."""
        record, lane = record_of(message.value), (message.group, message.queue, message.key)
        if record not in self._got and record < self._newest.get(lane, 0):
            self._bug(f"record {record} came after {self._newest[lane]} with the same key")
        self._newest[lane] = max(record, self._newest.get(lane, 0))
        self._got.add(record)
        life = self._side.life_of(record)
        if life != self._number and record not in self._carried:
            self._bug(f"it got record {record} of life {life}")
        self._must_not_come(record)

    async def drain(self) -> bool:
        """Wait until all acknowledged records have arrived; False: the wait ended without that."""
        quiet_since_s: float | None = None
        while self._traffic.sending:
            if self._acked <= self._got and not self._refused:
                return True
            now_s = self._world.loop.now
            if not self._world.quiet():
                quiet_since_s = None
            elif quiet_since_s is None:
                quiet_since_s = now_s
            elif now_s - quiet_since_s > _QUIET_TIMEOUT_S:
                missing = sorted(self._acked - self._got)
                if self._refused or not self._may_lose():
                    self._bug(f"acknowledged, and not there: {missing[:5]} {self._refused}")
                return False
            await asyncio.sleep(_POLL_S)
        return False

    def _may_lose(self) -> bool:
        """Whether a fault or the settings excuse a loss. Generously."""
        if self._world.scene.settings["retention_bytes"]:
            return True
        for config in self._world.configs.values():
            policy = config.policy
            sure = policy.flush is Flush.FSYNC and policy.counts is SlaveCounts.DURABLE
            if not sure or policy.how_many is HowMany.NONE:
                return True
        return any(
            isinstance(e, Fault) and e.kind in _HURTS and e.step is Step.FIRED
            for e in self._world.history.events
        )

    def _must_not_come(self, record: int) -> None:
        if record in self._failed and record in self._got:
            self._bug(f"record {record} came, and was not stored: {self._failed[record]}")

    def _bug(self, what: str) -> None:
        text = f"topic {NAME}, life {self._number} since {self._started_ms:.0f} ms: {what}"
        self._traffic.bugs.append(AssertionError(text))


# ---- changes of topics
def change(world: WorldApi, name: str, dice: random.Random) -> str:
    """Add a queue, or change a group's weight, as an operator does; return what was done."""
    node = paths.topic_node(CLUSTER, name)
    raw = world.ensemble.peek(node)
    if not raw:
        return ""
    topic = topic_from_json(raw)
    at = dice.randrange(len(topic.groups))
    group = topic.groups[at]
    others = any(g.weight for g in topic.groups if g is not group)
    if others and dice.random() < 0.4:
        group = replace(group, weight=0 if group.weight else 1)
    elif group.queues < _MOST_QUEUES:
        group = replace(group, queues=group.queues + 1)
    else:
        return ""
    groups = (*topic.groups[:at], group, *topic.groups[at + 1 :])
    world.ensemble.put(node, topic_to_json(replace(topic, groups=groups)))
    return f"topic {name}: {group.group} has {group.queues} queues, weight {group.weight}"


async def change_topic(act: Act) -> None:
    """Change a topic of the traffic."""
    topic = act.dice.choice(act.world.scene.topics)
    if detail := change(act.world, topic.name, act.dice):
        act.fired(detail)
    else:
        act.fired("it has as many queues as it can have")
    act.healed()


TOPICS: Final = (Entry("change a topic", FaultKind.OPERATOR, 6, (), change_topic),)
