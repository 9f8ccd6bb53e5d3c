"""Consumer groups get, keep and lose their place in an ordered topic's chain."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.idle_groups import IdleGroups
from fmqbroker.tests.consume.chain_kit import CHANGES, EMPTY, OPEN, Broker, C, reading, staged
from fmqbroker.tests.consume_harness import until
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.ids import Offset
from fmqcore.journal.state import PRESENCE_QUEUE
from fmqcore.ordered.subscriptions import remove_subscription
from fmqcore.zk import layout
from fmqcore.zk.chain import Segment, chain_to_json
from fmqproto.v1.client_pb2 import START_EARLIEST, START_LATEST, START_TIME

pytestmark = pytest.mark.processes

TWO = replace(
    OPEN,
    segments=(
        replace(OPEN.segments[0], end=(2,), opened_ms=1_000),
        Segment(2, OPEN.groups[1].group, 1, (3,), (0,), opened_ms=5_000_000),
    ),
)


async def filled(*brokers: Broker) -> None:
    for broker in brokers:
        broker.produce(b"a", b"b")
        broker.held = 2
        await broker.rig.committed()


@pytest.mark.parametrize(("chain", "head"), [(EMPTY, 1), (OPEN, 1), (TWO, 1)])
async def test_first_session_adds_its_group(
    tmp_path: Path, zookeeper: str, chain: Any, head: int
) -> None:
    async with staged(tmp_path, zookeeper, chain) as stage:
        async with reading(stage.two), reading(stage.one):
            assert (await stage.chain()).heads == (("app", (head,)),)
        async with reading(stage.one, start=START_LATEST):
            assert (await stage.chain()).heads == (("app", (head,)),), "it has its place already"


async def test_latest_begins_at_the_end_of_the_newest_segment(
    tmp_path: Path, zookeeper: str
) -> None:
    """Only the broker group of that segment knows the offset: the other one waits for it."""
    async with staged(tmp_path, zookeeper, TWO) as stage:
        one, two = stage.one, stage.two
        await filled(one, two)
        async with reading(one, start=START_LATEST) as elsewhere:
            assert (await stage.chain()).heads == ()
            async with reading(two, start=START_LATEST) as consumer:
                assert (await stage.chain()).heads == (("app", (2,)),)
                assert two.floor() == 2, "stored before the group is in the chain"
                two.produce(b"c")
                two.held = 3
                await two.rig.committed()
                await until(lambda: consumer.got)
                assert [d.first_offset for d in consumer.got] == [2]
            assert elsewhere.got == []
            assert one.floor() == 0, "later segments here are read from their starts"


@pytest.mark.parametrize(("start_ms", "head"), [(2_000_000, 1), (9_000_000, 2)])
async def test_a_moment_begins_in_the_segment_open_then(
    tmp_path: Path, zookeeper: str, start_ms: int, head: int
) -> None:
    async with staged(tmp_path, zookeeper, TWO) as stage:
        begin: Any = {"start": START_TIME, "start_ms": start_ms}
        async with reading(stage.one, **begin), reading(stage.two, **begin):
            assert (await stage.chain()).heads == (("app", (head,)),)


async def test_a_new_group_begins_again_whatever_is_left_of_an_old_one(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        one = stage.one
        await filled(one)
        old = OffsetEntry(1 << 32, Offset(1), ((Offset(1), Offset(2)),))
        await one.rig.offsets.put({OffsetKey("app", CHANGES.id, 0): old})
        async with reading(one, start=START_EARLIEST) as consumer:
            await until(lambda: consumer.got)
            assert [(d.first_offset, d.end_offset) for d in consumer.got] == [(0, 2)]


async def test_sessions_of_a_removed_group_open_again(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        await filled(stage.one)
        async with reading(stage.one) as consumer:
            await until(lambda: consumer.got)
            await stage.edit(lambda chain: remove_subscription(chain, "app"))
            await until(lambda: consumer.error)
            assert consumer.error is not None
            assert "no place in the chain of ordered topic changes" in consumer.error.message
        async with reading(stage.one):
            assert (await stage.chain()).heads == (("app", (1,)),)


async def test_idle_group_leaves_the_chain_where_its_head_lies(
    tmp_path: Path, zookeeper: str
) -> None:
    chain = replace(TWO, heads=(("app", (2,)),))
    async with staged(tmp_path, zookeeper, chain) as stage:
        entry = OffsetEntry(1 << 32, Offset(1))
        note = OffsetKey("app", CHANGES.id, PRESENCE_QUEUE)
        for broker in (stage.one, stage.two):
            rig = broker.rig
            await rig.offsets.put({OffsetKey("app", CHANGES.id, 0): entry, note: tombstone(1)})
            await rig.committed()
        await check_idle(stage.one)
        assert stage.one.floor() == 1, "its members may be connected to g2 alone"
        assert (await stage.chain()).heads == chain.heads
        await check_idle(stage.two)
        assert (await stage.chain()).heads == ()
        await until(lambda: stage.one.cache.of(CHANGES.id).heads == ())  # type: ignore[union-attr]
        await check_idle(stage.one)
        for broker in (stage.one, stage.two):
            left = broker.entry()
            assert left is not None
            assert left.deleted


async def test_idle_group_stays_while_its_chain_is_unreadable(
    tmp_path: Path, zookeeper: str
) -> None:
    """Whether the group has a place in it is not known."""
    async with staged(tmp_path, zookeeper, EMPTY) as stage:
        broker, rig = stage.one, stage.one.rig
        note = OffsetKey("app", CHANGES.id, PRESENCE_QUEUE)
        entry = OffsetEntry(1 << 32, Offset(1))
        await rig.offsets.put({OffsetKey("app", CHANGES.id, 0): entry, note: tombstone(1)})
        await rig.committed()
        node, sound = layout.chain_node(C, CHANGES.name), await stage.chain()
        await stage.session.set(node, b"no chain", -1)
        await until(lambda: broker.cache.is_unknown(CHANGES.id))
        await check_idle(broker)
        assert broker.floor() == 1
        await stage.session.set(node, chain_to_json(sound), -1)
        await until(lambda: not broker.cache.is_unknown(CHANGES.id))
        await check_idle(broker)
        left = broker.entry()
        assert left is not None
        assert left.deleted


async def check_idle(broker: Broker) -> None:
    """Let the group be without members for longer than progress is kept."""
    rig = broker.rig
    clock: Any = Later(rig.hand)
    parts = (rig.journal, rig.gate, rig.offsets, rig.fetch.groups, clock)
    idle = IdleGroups(*parts, 1_000)
    await idle.check_once()  # it is master from here on
    clock.ahead_ms = 10_000_000
    await idle.check_once()


class Later:
    """A clock that is ahead."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return int(self._clock.wall_ms()) + self.ahead_ms

    def monotonic_ms(self) -> int:
        return int(self._clock.monotonic_ms()) + self.ahead_ms
