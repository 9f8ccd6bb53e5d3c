"""The place of consumer groups in the chains of ordered topics: how they get, keep and lose it.

The first session of a group adds it to the chain, with a new start number: what a deleted group of
that name has left in any broker group counts no more (K18). To begin elsewhere than at the first
record, only the broker group of the segment where it begins can add it, because only there the
offset is known; sessions at other broker groups wait for that, without deliveries. In the later
segments it begins at their starts. If that segment is dropped meanwhile, it begins in the first one
that is kept.

Written to ZooKeeper: the place in `ordered/<t>`. To delete a group: place removed, progress
deleted.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.runtime.notifier import wait_any
from fmqbroker.runtime.slices import Slices
from fmqbroker.serving.gate import Gate
from fmqcore.errors import NoPermission, Unavailable
from fmqcore.ordered.subscriptions import add_at, first_number, named, newest_number, number_at
from fmqcore.zk.chain import Chain
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import client_pb2

if TYPE_CHECKING:
    from fmqbroker.consume.registry import GroupTable

_log = structlog.get_logger()


class Subscriptions:
    """Opens consumer groups on ordered topics, and follows the chains for them."""

    def __init__(self, groups: "GroupTable", chains: ChainReads, gate: Gate) -> None:
        self._groups = groups
        self._chains = chains
        self._gate = gate
        self._adding = asyncio.Lock()  # one first session at a time

    async def ensure(
        self, name: str, topic: TopicConfig, start: int, start_ms: int, *, temporary: bool = False
    ) -> ConsumerGroup:
        """Return the group on that ordered topic, with a place in the chain or waiting for one.

        Raises `Unavailable` (ZooKeeper), `NotFound`, `NoPermission`, `InvalidArgument`.
        """
        self._groups.require()
        epoch = self._gate.epoch
        chain = await self._chains.read(topic.name)  # as it is in this term
        if chain.heads_of(name) is None:
            async with self._adding:
                group = await self._subscribe(name, topic, start, start_ms, temporary=temporary)
        else:
            if not temporary and name in chain.temporary:
                await self._chains.edit(topic.name, lambda stored: named(stored, name))
            group = await self._open(name, topic, temporary=temporary)
        if self._gate.epoch != epoch:
            raise NoPermission(
                f"the broker group is in epoch {self._gate.epoch} now: open the session again"
            )
        return group

    async def run(self) -> None:
        """Offer queues again when a chain changes, and end sessions that have to open again.

        Also when a member has caught up: what it lacked may be committed since long.
        """
        slices, offered = Slices(), dict[ConsumerGroup, Chain]()
        signals = self._chains.changed, *self._chains.held_changed
        while True:
            seen = [signal.count for signal in signals]
            known: dict[ConsumerGroup, Chain] = {}
            for group in self._groups.ordered():
                await slices.step()
                if self._groups.get(group.name, group.topic_id) is not group:
                    continue  # it ended in one of those turns
                if (chain := self._chains.of(group.topic_id)) is not None:
                    known[group] = chain
                    if offered.get(group) is not chain:
                        self._follow(group, chain)
                    else:
                        self._offer(group)
            offered = known
            if seen == [signal.count for signal in signals]:
                await wait_any(*signals)

    # ---- inside
    async def _open(self, name: str, topic: TopicConfig, *, temporary: bool) -> ConsumerGroup:
        """Return the group; a queue without progress begins where its segments do."""
        earliest = (client_pb2.START_EARLIEST, 0)
        return await self._groups.ensure(name, topic, *earliest, temporary=temporary)

    async def _subscribe(
        self, name: str, topic: TopicConfig, start: int, start_ms: int, *, temporary: bool
    ) -> ConsumerGroup:
        chain = await self._chains.read(topic.name)
        while chain.heads_of(name) is None:
            number = place_of(chain, start, start_ms)
            segment = chain.segment(number)
            here = segment is None or segment.group == self._chains.broker_group
            if start != client_pb2.START_EARLIEST and not here:
                break  # a session there adds it
            group = await self._open(name, topic, temporary=temporary)  # if there is room for one
            self._groups.idle(group)  # unless a session joins it: the place may not be written
            offsets = dict[int, int]()
            if start != client_pb2.START_EARLIEST and segment is not None:
                queues = topic.queues_in(self._chains.broker_group)
                found = await self._groups.positions(topic.id, queues, start, start_ms)
                offsets = dict(enumerate(found))
            begin, now_ms = (number, offsets, start, start_ms), self._groups.wall_ms()
            added = partial(_added, name, *begin, now_ms, temporary)
            chain = await self._chains.edit(topic.name, added)
            if chain.heads_of(name) is not None:
                _log.info("subscription_added", group=name, topic=topic.name, segment=number)
                self._groups.require_known(group)  # it may have been dropped meanwhile
                self._groups.follow_start(group)
                return group
        return await self._open(name, topic, temporary=temporary)

    def _follow(self, group: ConsumerGroup, chain: Chain) -> None:
        """Offer what the new chain lets the group see; end sessions that lack a place in it."""
        windows = group.windows
        assert windows is not None
        if chain.heads_of(group.name) is not None:
            windows.had_place = True
            self._groups.follow_start(group)
            self._offer(group)
            return
        newest = chain.segment(newest_number(chain))
        comes_here = newest is not None and newest.group == self._chains.broker_group
        if windows.had_place or comes_here:
            for session in list(group.sessions.values()):
                session.finish(
                    Unavailable(
                        f"consumer group {group.name} has no place in the chain of ordered topic "
                        f"{group.topic} now: open again to get one"
                    )
                )

    def _offer(self, group: ConsumerGroup) -> None:
        """Offer the queues that wait for something that the group may read now."""
        for queue, (_, at) in list(group.starved.items()):
            if self._groups.readable(group, queue) > at:
                group.offer(queue)


def _added(
    name: str,
    number: int,
    offsets: Mapping[int, int],
    start: int,
    start_ms: int,
    wall_ms: int,
    temporary: bool,
    chain: Chain,
) -> Chain:
    """The chain with the new group, unless it would begin elsewhere by now."""
    moved = place_of(chain, start, start_ms) != number
    return chain if moved else add_at(chain, name, number, offsets, wall_ms, temporary=temporary)


def place_of(chain: Chain, start: int, start_ms: int) -> int:
    """Return the segment in which a new consumer group begins."""
    match start:
        case client_pb2.START_LATEST:
            return newest_number(chain)
        case client_pb2.START_TIME:
            return number_at(chain, start_ms)
        case _:
            return first_number(chain)
