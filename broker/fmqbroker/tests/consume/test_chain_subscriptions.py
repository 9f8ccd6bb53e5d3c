"""Consumer groups get, keep and lose their place in an ordered topic's chain."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.idle_groups import IdleGroups
from fmqbroker.tests.consume.chain_kit import CHANGES, EMPTY, OPEN, Broker, C, reading, staged
from fmqbroker.tests.consume_harness import until
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.consume.in_flight import QueueProgress
from fmqcore.ids import Epoch, Offset
from fmqcore.journal.state import PRESENCE_QUEUE
from fmqcore.ordered.subscriptions import add_at, remove_subscription
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Floor, Segment
from fmqcore.zk.chain_json import chain_to_json
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


async def read_and_acked(broker: Broker) -> None:
    """The consumer group gets what is there, acks the first delivery, and leaves."""
    async with reading(broker) as consumer:
        await until(lambda: consumer.got)
        consumer.ack(consumer.got[0], token=1)
        await until(lambda: consumer.tokens)


@pytest.mark.parametrize(("chain", "head"), [(EMPTY, 1), (OPEN, 1), (TWO, 1)])
async def test_first_session_adds_its_group(
    tmp_path: Path, zookeeper: str, chain: Any, head: int
) -> None:
    async with staged(tmp_path, zookeeper, chain) as stage:
        async with reading(stage.two), reading(stage.one):
            assert (await stage.chain()).heads == (("app", (head,)),)
        async with reading(stage.one, start=START_LATEST):
            assert (await stage.chain()).heads == (("app", (head,)),), "it has its place already"


@pytest.mark.parametrize("start", [START_EARLIEST, START_LATEST])
async def test_unnamed_group_counts_as_named_once_it_was_named(
    tmp_path: Path, zookeeper: str, start: int
) -> None:
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        async with reading(stage.one, start=start, temporary=True):
            assert (await stage.chain()).temporary == {"app"}
        async with reading(stage.one, start=start):
            assert (await stage.chain()).temporary == frozenset()


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
                chain = await stage.chain()
                assert (chain.heads_of("app"), chain.start_offsets_of("app")) == ((2,), (2,))
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


async def test_progress_of_a_removed_group_counts_no_more(tmp_path: Path, zookeeper: str) -> None:
    """The other broker group did not hear of the deletion: its stored progress would be a gap."""
    async with staged(tmp_path, zookeeper, TWO) as stage:
        one, two = stage.one, stage.two
        await filled(one, two)
        await read_and_acked(one)
        assert one.floor() == 2
        groups = one.rig.fetch.groups
        (start,) = (await stage.chain()).start_numbers_of("app")
        numbers = (start, start + 1)
        assert [groups.floors("app", CHANGES.id, (n,)) for n in numbers] == [(2,), (0,)]
        windows = [
            one.chains.window("app", CHANGES.id, 0, QueueProgress(Offset(0), start_number=n))
            for n in numbers
        ]
        assert [w.end for w in windows] == [2, 0], "progress of another start shows nothing"
        await stage.edit(lambda chain: remove_subscription(chain, "app"))
        groups.forget("app", CHANGES.id)
        done = one.progress()
        async with reading(two):
            added = await stage.chain()
            assert added.heads == (("app", (1,)),)
            await until(lambda: one.knows(added))
            assert dict(done.progress(added)) == {"app": (0,)}, "or the head would pass segment 1"
            async with reading(one) as again:
                await until(lambda: again.got)
                assert [(d.first_offset, d.end_offset) for d in again.got] == [(0, 2)]


async def test_live_group_starts_again_with_its_place(tmp_path: Path, zookeeper: str) -> None:
    """A broker may see a removal and the next addition as one change."""
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        one = stage.one
        await filled(one)
        async with reading(one) as consumer:
            await until(lambda: consumer.got)
            await stage.edit(lambda chain: add_at(remove_subscription(chain, "app"), "app", 1))
            await until(lambda: len(consumer.got) == 2)
            assert [(d.first_offset, d.end_offset) for d in consumer.got] == [(0, 2), (0, 2)]
            consumer.ack(consumer.got[0])
            consumer.ack(consumer.got[1], token=1)
            await until(lambda: consumer.tokens)
            assert len(consumer.ignored) == 1, "the first delivery counts no more"
        assert consumer.error is None


async def test_progress_since_a_start_counts_in_later_terms(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        one = stage.one
        await filled(one)
        async with reading(one) as consumer:
            await until(lambda: consumer.got)
            consumer.ack_range(0, 0, 1, token=1)
            await until(lambda: consumer.tokens)
        one.rig.gate.epoch = Epoch(2)
        one.rig.gate.changed.notify()
        await until(lambda: one.rig.fetch.groups.get("app", CHANGES.id) is None)
        async with reading(one) as consumer:
            await until(lambda: consumer.got)
            assert [(d.first_offset, d.end_offset) for d in consumer.got] == [(1, 2)]


async def test_two_readers_number_a_start_over_old_progress_alike(
    tmp_path: Path, zookeeper: str
) -> None:
    """Else acks that the first one did not store are void for its successor."""
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        one = stage.one
        await filled(one)
        await read_and_acked(one)
        groups, stored = one.rig.fetch.groups, one.entry()
        assert stored is not None
        groups.forget("app", CHANGES.id)
        await stage.edit(lambda chain: add_at(remove_subscription(chain, "app"), "app", 1))
        (start,) = (await stage.chain()).start_numbers_of("app")
        async with reading(one):
            group = groups.get("app", CHANGES.id)
            assert group is not None
            (progress,) = group.progress
            assert (progress.start_number, progress.seek_number) == (start, stored.version)


async def test_chain_that_is_behind_voids_no_progress(
    tmp_path: Path, zookeeper: str, monkeypatch: Any
) -> None:
    """The restored chain has the start number again, and what was acked since counts."""
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        one = stage.one
        await filled(one)
        await read_and_acked(one)
        monkeypatch.setattr(one.copies, "behind", lambda _: "it is behind")
        await stage.edit(lambda chain: add_at(remove_subscription(chain, "app"), "app", 1))
        async with reading(one):
            await until(one.waits())
            group = one.rig.fetch.groups.get("app", CHANGES.id)
            assert group is not None
            assert group.progress[0].floor == 2


@pytest.mark.parametrize(
    ("start", "head", "first"), [(START_EARLIEST, 2, 0), (START_TIME, 2, 0), (START_LATEST, 2, 2)]
)
async def test_start_in_a_segment_that_is_dropped_meanwhile(
    tmp_path: Path, zookeeper: str, monkeypatch: Any, start: int, head: int, first: int
) -> None:
    """The group begins with the first record that is kept."""
    async with staged(tmp_path, zookeeper, TWO) as stage:
        one, two = stage.one, stage.two
        await filled(one, two)
        read = one.chains.read

        async def read_then_dropped(topic: str) -> Chain:
            chain = await read(topic)
            floor = Floor(1, 1, (2,))
            await stage.edit(lambda c: replace(c, segments=TWO.segments[1:], floor=floor))
            return chain

        monkeypatch.setattr(one.chains, "read", read_then_dropped)
        begin: Any = {"start": start, "start_ms": 2_000_000}
        async with reading(one, **begin), reading(two, "s2", **begin) as consumer:
            chain = await stage.chain()
            assert (chain.heads_of("app"), chain.start_offsets_of("app")) == ((head,), (first,))
            two.produce(b"c")
            two.held = 3
            await two.rig.committed()
            await until(lambda: consumer.got and consumer.got[-1].end_offset == 3)
            assert consumer.got[0].first_offset == first


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
