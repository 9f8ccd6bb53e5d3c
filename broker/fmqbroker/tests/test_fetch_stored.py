"""What a consumer group's memory and the offset store owe each other: nothing is called stored that
is not, and nothing that was taken in is forgotten."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fmqbroker.consumer_groups import ConsumerGroup
from fmqbroker.tests.consume_harness import (
    TOPIC,
    Rig,
    commit_held,
    consuming,
    key,
    running,
    stored,
    until,
)
from fmqcore.errors import NoPermission, StorageFull
from fmqcore.journal.offsets import OffsetEntry, OffsetKey, tombstone
from fmqcore.words import Offset
from fmqproto.v1 import client_pb2


def billing(rig: Rig) -> ConsumerGroup:
    group = rig.fetch.groups.get("billing", TOPIC.id)
    assert group is not None
    return group


async def test_what_the_store_refuses_is_not_told_as_stored(tmp_path: Path) -> None:
    """A seek, say, of a group that lives: its term was over just before."""
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.held) == 4)
        await rig.fetch.groups.stored()
        billing(rig).seek(0, Offset(0), 0)
        rig.offsets.retire()
        with pytest.raises(NoPermission):
            await rig.fetch.groups.stored()


async def test_acks_that_found_no_room_are_stored_by_the_next_try(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            put, refused = rig.offsets.put, asyncio.Event()

            async def full(entries: Mapping[OffsetKey, OffsetEntry]) -> None:
                rig.offsets.put = put  # type: ignore[method-assign]
                refused.set()
                raise StorageFull("no room")

            rig.offsets.put = full  # type: ignore[method-assign]
            consumer.ack_range(0, 0, 1, token=7)
            await refused.wait()
            before = rig.hand.monotonic_ms()
            await until(lambda: rig.hand.sleeps_until(before + 1000), "a pause")
            assert not consumer.tokens
            rig.hand.advance(1000)
            await until(lambda: consumer.tokens == [7])
            assert stored(rig, 0).floor == 1


async def test_two_seeks_before_anything_is_stored(tmp_path: Path) -> None:
    """Each has a number of its own; none is above the version of what is stored."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            group = billing(rig)
            for offset in (1, 0):
                version = rig.offsets.next_version(key())
                group.seek(0, Offset(offset), rig.hand.monotonic_ms(), version)
            last = group.progress[0].sought
            rig.fetch.groups.changed(group)
            async with asyncio.timeout(20):
                await rig.fetch.groups.stored()
            assert stored(rig, 0).sought == last <= stored(rig, 0).version


async def test_acks_from_before_a_deletion_count_no_more(tmp_path: Path) -> None:
    """Who is told another seek's number forgets them."""
    async with running(Rig(tmp_path)) as rig:
        version = rig.offsets.next_version(key())
        await rig.offsets.put({key(): tombstone(version)})
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.sought) == 4)
            assert consumer.sought == {0: version, 1: 0, 2: 0, 3: 0}


async def test_a_moment_that_is_to_come_begins_behind_what_is_committed(tmp_path: Path) -> None:
    """What is not committed may be lost, and its offset be another message's."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a")
        await rig.committed()
        with commit_held(rig):
            rig.produce(0, b"b")
            later = rig.clock.wall_ms() + 3_600_000
            at = await rig.fetch.groups.position(TOPIC.id, 0, client_pb2.START_TIME, later)
            assert at == 1
