"""Delivery of ordered topics: one order over two broker groups, and no record outside."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fmqbroker.ordered.progress import FinishedProgress
from fmqbroker.tests.consume.chain_kit import (
    APP,
    CHANGES,
    OPEN,
    Broker,
    reading,
    staged,
)
from fmqbroker.tests.consume_harness import Consumer, until
from fmqcore.ids import Epoch
from fmqcore.ordered.subscriptions import seek
from fmqcore.zk.chain import Segment
from fmqcore.zk.group_state import Mode

pytestmark = pytest.mark.processes

FIRST = OPEN.segments[0]
READ = replace(OPEN, heads=APP)
ENDED = replace(READ, closing="planned", segments=(replace(FIRST, end=(3,)),))
# Segment 1 of g1 ends at 3; g2 goes on with sequence 3 at offset 0: a double; g1 again from 5 on.
LONG = replace(
    READ,
    segments=(
        ENDED.segments[0],
        Segment(2, OPEN.groups[1].group, 1, (3,), (0,), end=(3,)),
        Segment(3, OPEN.groups[0].group, 1, (6,), (5,)),
    ),
)


def offsets(consumer: Consumer) -> list[tuple[int, int]]:
    """Return (segment, offset) of each delivered record."""
    return [(d.chain_segment, o) for d in consumer.got for o in range(d.first_offset, d.end_offset)]


async def settled(broker: Broker) -> None:
    """Wait until the broker has nothing more to deliver, and its messages have arrived."""
    await until(broker.waits(), "nothing more to deliver")
    await asyncio.sleep(0.05)  # what it sent until then arrives; nothing else is on the way


async def test_open_segment_shows_what_all_members_hold(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, READ) as stage:
        one = stage.one
        one.produce(b"1", b"2")
        one.produce(b"3")
        await one.rig.committed()
        async with reading(one) as consumer:
            await settled(one)
            assert offsets(consumer) == [], "committed, but not known to be on all members"
            one.held = 2
            one.rig.commit.changed.notify()
            await until(lambda: consumer.got)
            await settled(one)
            assert offsets(consumer) == [(1, 0), (1, 1)]


async def test_last_record_comes_once_a_late_member_has_it(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, READ) as stage:
        one = stage.one
        one.produce(b"1")
        await one.rig.committed()
        async with reading(one) as consumer:
            await settled(one)
            one.held = 1
            one.caught_up.notify()
            await until(lambda: consumer.got)  # nothing is committed after it
            assert offsets(consumer) == [(1, 0)]


async def test_closing_segment_shows_nothing_before_its_end(tmp_path: Path, zookeeper: str) -> None:
    closing = replace(READ, closing="planned")
    async with staged(tmp_path, zookeeper, closing) as stage:
        one = stage.one
        one.produce(b"1")
        one.produce(b"2")
        await one.rig.committed()
        one.held = 2
        async with reading(one) as consumer:
            await settled(one)
            assert offsets(consumer) == []
            await stage.change(segments=(replace(FIRST, end=(1,)),))
            await until(lambda: consumer.got)
            await settled(one)
            assert offsets(consumer) == [(1, 0)], "above the end lie orphans"


async def test_reader_shows_known_ends_only(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, READ) as stage:
        one = stage.one
        one.rig.gate.mode = Mode.SLAVE_CONSUME
        one.produce(b"1", b"2", b"3")
        one.held = 3
        await one.rig.committed()
        async with reading(one) as consumer:
            await settled(one)
            assert offsets(consumer) == [], "a reader does not know what all members hold"
            await stage.change(segments=ENDED.segments, closing="g1-0 is away")
            await until(lambda: consumer.got)
            assert offsets(consumer) == [(1, 0), (1, 1), (1, 2)]


async def test_segments_are_read_in_order_over_two_groups(tmp_path: Path, zookeeper: str) -> None:
    """Each record once, in the order of sends: no orphan, no double, nothing of a later segment."""
    async with staged(tmp_path, zookeeper, LONG) as stage:
        one, two = stage.one, stage.two
        one.produce(b"1", b"2", b"3")
        one.produce(b"orphan", b"orphan")
        one.produce(b"6", b"7")
        two.produce(b"3", b"4", b"5")
        for broker in (one, two):
            await broker.rig.committed()
            broker.held = 7
        done = {one: one.progress(), two: two.progress()}
        running = [asyncio.create_task(each.run()) for each in done.values()]
        async with reading(one) as first, reading(two) as second:
            for number, broker, consumer, end in ((1, one, first, 3), (2, two, second, 3)):
                await until(partial(shows, consumer, number))
                await settled(two if broker is one else one)
                assert not [s for c in (first, second) for s, _ in offsets(c) if s > number]
                assert (await stage.move_heads(broker, await finished(done[broker]))).heads == (
                    ("app", (number,)),
                ), "with unacknowledged records the head stays"
                consumer.ack(consumer.got[-1], token=number)
                await until(partial(is_done, done[broker], end))
                await stage.move_heads(broker, floors(done[broker]))
            await until(lambda: offsets(first)[-1] == (3, 6))
            assert offsets(first) == [(1, 0), (1, 1), (1, 2), (3, 5), (3, 6)]
            assert offsets(second) == [(2, 1), (2, 2)]
            assert [v for *_, v, _ in first.values()] == [b"1", b"2", b"3", b"6", b"7"]
            assert not first.skipped + second.skipped, "orphans and doubles are no loss to report"
        for task in running:
            task.cancel()


def shows(consumer: Consumer, segment: int) -> bool:
    return any(number == segment for number, _ in offsets(consumer))


def is_done(done: FinishedProgress, end: int) -> bool:
    return floors(done) == {"app": (end,)}


def floors(done: FinishedProgress) -> dict[str, tuple[int, ...]]:
    chain = done._cache.of(CHANGES.id)
    return {} if chain is None else dict(done.progress(chain))


async def finished(done: FinishedProgress) -> dict[str, tuple[int, ...]]:
    await until(lambda: floors(done), "published")
    return floors(done)


async def test_acked_segment_is_finished_if_nothing_can_be_stored(
    tmp_path: Path, zookeeper: str
) -> None:
    """A group that lacks its slave stores no progress; consumers go on in the next group."""
    async with staged(tmp_path, zookeeper, ENDED) as stage:
        one = stage.one
        one.produce(b"1", b"2", b"3")
        await one.rig.committed()
        done = one.progress()
        published: list[int] = []
        done.on_progress(published.append)
        running = asyncio.create_task(done.run())
        async with reading(one) as consumer:
            await until(lambda: consumer.got)
            await until(lambda: floors(done) == {"app": (0,)})
            await one.rig.fetch.groups.stored()
            published.clear()
            one.rig.hold_commit = True
            consumer.ack(consumer.got[0], token=1)
            await until(lambda: published)
            assert floors(done) == {"app": (3,)}
            await until(lambda: one.rig.journal.end > one.rig.commit.commit_end)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await stage.change(segments=LONG.segments, heads=(("app", (2,)),), closing=None)
        assert floors(done) == {}, "no head of this group is at an end"


async def test_repeats_not_readable_here_do_not_count_as_done(
    tmp_path: Path, zookeeper: str
) -> None:
    """K17: a stored record that is not committed may be lost, and its offset used again."""
    repeated = Segment(2, OPEN.groups[1].group, 1, (1,), (0,), end=(3,))
    last = Segment(3, OPEN.groups[0].group, 1, (4,), (3,))
    segments = (ENDED.segments[0], repeated, last)
    chain = replace(READ, segments=segments, heads=(("app", (2,)),))
    async with staged(tmp_path, zookeeper, chain) as stage:
        two = stage.two
        two.rig.hold_commit = True
        two.produce(b"1", b"2", b"3")
        async with reading(two) as consumer:
            await settled(two)
            group = two.rig.fetch.groups.get("app", CHANGES.id)
            assert group is not None
            assert group.progress[0].floor == 0
            two.rig.commit.advance(two.rig.journal.end, two.rig.journal.end)
            await until(lambda: two.floor() == 3, "done")
            assert offsets(consumer) == [], "segment 1 delivers them"


async def test_head_elsewhere_delivers_nothing_here(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, replace(LONG, heads=(("app", (2,)),))) as stage:
        one, two = stage.one, stage.two
        one.produce(*[b"x"] * 7)
        await one.rig.committed()
        one.held = 7
        async with reading(one) as consumer:
            await settled(one)
            assert offsets(consumer) == []
            assert one.floor() == 0, "nothing is skipped for a segment elsewhere"
            two.produce(b"3", b"4", b"5")
            await stage.change(heads=(("app", (3,)),))
            await until(lambda: consumer.got)
            assert offsets(consumer)[0] == (3, 5)
            await stage.edit(lambda chain: seek(chain, "app", {0: 2}))
            await asyncio.sleep(0)
            one.produce(b"8")
            one.held = 8
            await one.rig.committed()
            one.rig.commit.changed.notify()
            await settled(one)
            assert offsets(consumer) == [(3, 5), (3, 6)], "the head has left this group"


async def test_group_reads_the_chain_in_each_term(tmp_path: Path, zookeeper: str) -> None:
    """A stale cache shows the segment as open; a new term shows it closing, and nothing."""
    async with staged(tmp_path, zookeeper, READ) as stage:
        one = stage.one
        one.produce(b"1")
        one.held = 1
        await one.rig.committed()
        stale = one.cache.stored_of(CHANGES.id)
        assert stale is not None
        await stage.change(closing="planned")
        entry = one.cache._entries["changes"]
        one.cache._adopt("changes", entry, stale)  # as if its watch had not fired yet
        one.rig.gate.epoch = Epoch(2)
        async with reading(one) as consumer:
            await settled(one)
            assert offsets(consumer) == []
