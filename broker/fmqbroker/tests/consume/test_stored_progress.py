"""A consumer group's memory and the offset store agree on what is stored.

No unstored progress is reported as stored, and no accepted progress is forgotten.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.offsets.write_round import Round
from fmqbroker.consume.registry import IDLE_MS
from fmqbroker.tests.consume_harness import (
    TOPIC,
    Rig,
    at,
    commit_held,
    consuming,
    key,
    running,
    stored,
    until,
)
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.errors import NoPermission, StorageFull
from fmqcore.ids import Offset, Permission
from fmqproto.v1 import client_pb2


def consumer_group(rig: Rig, name: str) -> ConsumerGroup:
    group = rig.fetch.groups.get(name, TOPIC.id)
    assert group is not None
    return group


def billing(rig: Rig) -> ConsumerGroup:
    return consumer_group(rig, "billing")


def no_room() -> Round:
    failed = Round()
    failed.settle(StorageFull("no room"))
    return failed


async def test_entry_refused_by_the_store_is_not_reported_stored(tmp_path: Path) -> None:
    """Such as a seek of a live group whose term has just ended."""
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
            accept, refused = rig.offsets.accept, asyncio.Event()

            def full(entries: Mapping[OffsetKey, OffsetEntry]) -> Round:
                rig.offsets.accept = accept  # type: ignore[method-assign]
                refused.set()
                return no_room()

            rig.offsets.accept = full  # type: ignore[method-assign]
            consumer.ack_range(0, 0, 1, token=7)
            await refused.wait()
            before = rig.hand.monotonic_ms()
            await until(lambda: rig.hand.sleeps_until(before + 1000), "a pause")
            assert not consumer.tokens
            rig.hand.advance(1000)
            await until(lambda: consumer.tokens == [7])
            assert stored(rig, 0).floor == 1


async def test_retry_does_not_undo_acks_made_without_room(
    tmp_path: Path,
) -> None:
    """The reads were lost for a moment: the leftover of the group is the newer one."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            accept, group, generation = rig.offsets.accept, billing(rig), consumer.held[0]
            refused = asyncio.Event()

            def full(entries: Mapping[OffsetKey, OffsetEntry]) -> Round:
                rig.offsets.accept = accept  # type: ignore[method-assign]
                group.ack(group.sessions["s1"], 0, generation, Offset(1), Offset(2), 0)
                rig.fetch.groups.drop(NoPermission("a moment"))
                refused.set()
                return no_room()

            rig.offsets.accept = full  # type: ignore[method-assign]
            consumer.ack_range(0, 0, 1)
            await refused.wait()
            before = rig.hand.monotonic_ms()
            await until(lambda: rig.hand.sleeps_until(before + 1000), "a pause")
            rig.hand.advance(1000)
            await until(lambda: stored(rig, 0).floor)
            assert stored(rig, 0).floor == 2


@pytest.mark.parametrize("token", [7, 0], ids=["token", "no token"])
async def test_leave_is_answered_once_its_acks_are_stored(tmp_path: Path, token: int) -> None:
    """The program ends then, and no client sends its acks again.

    A client sends no token with its leave while an earlier one is not answered.
    """
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            fields = {"queue_id": 0, "generation": consumer.held[0], "end_offset": 1}
            acks = [client_pb2.AckRange(**fields)]
            with commit_held(rig):
                end = rig.journal.end
                consumer.send(client_pb2.ConsumeRequest(acks=acks, commit_token=token, leave=True))
                await until(lambda: rig.journal.end > end, "written, and not committed")
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not consumer.left
            await until(lambda: consumer.left)
            assert consumer.tokens == ([token] if token else [])


async def test_two_seeks_before_a_store_get_distinct_versions(tmp_path: Path) -> None:
    """Each seek has its own number; none is above the version of the stored entry."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            group = billing(rig)
            for offset in (1, 0):
                version = rig.offsets.next_version(key())
                group.seek(0, Offset(offset), rig.hand.monotonic_ms(), version)
            last = group.progress[0].seek_number
            rig.fetch.groups.changed(group)
            async with asyncio.timeout(20):
                await rig.fetch.groups.stored()
            assert stored(rig, 0).seek_number == last <= stored(rig, 0).version


@pytest.mark.parametrize("deleted", [True, False])
async def test_acks_from_before_a_deletion_or_a_seek_count_no_more(
    tmp_path: Path, deleted: bool
) -> None:
    """A consumer that hears another seek's number forgets those acks."""
    async with running(Rig(tmp_path)) as rig:
        version = rig.offsets.next_version(key())
        seek_number = OffsetEntry(version, Offset(0), (), version)
        await rig.offsets.put({key(): tombstone(version) if deleted else seek_number})
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.seek_number) == 4)
            assert consumer.seek_number == {0: version, 1: 0, 2: 0, 3: 0}


async def test_start_at_a_future_time_is_the_commit_end(tmp_path: Path) -> None:
    """Uncommitted records may be lost, and their offsets reused."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a")
        await rig.committed()
        with commit_held(rig):
            rig.produce(0, b"b")
            later = rig.clock.wall_ms() + 3_600_000
            at = await rig.fetch.groups.position(TOPIC.id, 0, client_pb2.START_TIME, later)
            assert at == 1


LATEST, EARLIEST = client_pb2.START_LATEST, client_pb2.START_EARLIEST


async def test_opening_a_started_group_waits_for_nothing(tmp_path: Path) -> None:
    """Other acks may be unstored; only the group's start must be stored."""
    async with running(Rig(tmp_path)) as rig, AsyncExitStack() as stack:
        for queue in range(4):
            await rig.offsets.put(at(rig, 0, queue))
        a = await stack.enter_async_context(consuming(rig, "a", group="new", start=LATEST))
        await until(lambda: a.held)
        with commit_held(rig):
            end = rig.journal.end
            a.send(client_pb2.ConsumeRequest(commit_token=1))
            consumer_group(rig, "new").seek(0, Offset(0), 0, 9)
            await until(lambda: rig.journal.end > end, "written, and not committed")
            for name in ("new", "billing"):
                opening = consuming(rig, "b", group=name, start=LATEST)
                b = await stack.enter_async_context(opening)
                await until(partial(getattr, b, "held"))


@pytest.mark.parametrize("given_up", [False, True])
async def test_group_without_members_is_forgotten(tmp_path: Path, given_up: bool) -> None:
    async with running(Rig(tmp_path)) as rig:
        groups = rig.fetch.groups
        with commit_held(rig):
            opening = asyncio.create_task(groups.ensure("billing", TOPIC, LATEST, 0))
            await until(lambda: groups.get("billing", TOPIC.id))
            if given_up:
                opening.cancel()
                await asyncio.wait((opening,))
        await asyncio.wait((opening,))
        await groups.stored()
        rig.hand.advance(IDLE_MS)
        await until(lambda: not groups.get("billing", TOPIC.id))


async def test_unstored_changes_keep_a_memberless_group(tmp_path: Path) -> None:
    """The group is checked again later: its changes are kept, but not for ever."""
    async with running(Rig(tmp_path)) as rig:
        groups = rig.fetch.groups
        with commit_held(rig):
            end = rig.journal.end
            group = await groups.ensure("billing", TOPIC, EARLIEST, 0)
            await until(lambda: rig.journal.end > end, "the store waits for the commit")
            group.seek(0, Offset(0), 0, 9)
            groups.idle(group)
            rig.hand.advance(IDLE_MS)
            now_ms = rig.hand.monotonic_ms()
            await until(lambda: rig.hand.sleeps_until(now_ms + IDLE_MS))
            assert groups.get("billing", TOPIC.id) is group
        await until(lambda: stored(rig, 0).seek_number == 9)
        rig.hand.advance(IDLE_MS)
        await until(lambda: not groups.get("billing", TOPIC.id))


async def test_timer_of_a_dropped_group_does_not_forget_its_successor(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        groups = rig.fetch.groups
        groups.idle(await groups.ensure("billing", TOPIC, EARLIEST, 0))
        await groups.stored()
        groups.drop(NoPermission("a moment"))
        group = await groups.ensure("billing", TOPIC, EARLIEST, 0)
        looked: list[bool] = []
        rig.fetch._timers.at(rig.hand.monotonic_ms() + IDLE_MS, lambda: looked.append(True))
        rig.hand.advance(IDLE_MS)
        await until(lambda: looked)
        assert groups.get("billing", TOPIC.id) is group


async def test_start_of_added_queues_is_stored_without_members(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.fetch.groups.ensure("billing", TOPIC, EARLIEST, 0)
        await until(lambda: stored(rig, 0).version)
        rig.cluster.set(replace(TOPIC, groups=(replace(TOPIC.groups[0], queues=6),)))
        await until(lambda: stored(rig, 5).version)


async def test_group_losing_reads_while_start_is_stored_stays_closed(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        stored_then = rig.fetch.groups.stored

        async def gone() -> None:
            await stored_then()
            rig.gate.grant(Permission.NONE, "another reads")

        rig.fetch.groups.stored = gone  # type: ignore[method-assign]
        with pytest.raises(NoPermission, match="another reads"):
            await rig.fetch.groups.ensure("billing", TOPIC, LATEST, 0)


async def test_start_of_a_memberless_group_is_stored(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.fetch.groups.ensure("billing", TOPIC, EARLIEST, 0)
        await until(lambda: stored(rig, 0).version)


async def test_leftover_of_a_dropped_group_loses_to_newer_entry(
    tmp_path: Path,
) -> None:
    """The leftover found no room, and another reader has stored more since."""
    async with running(Rig(tmp_path)) as rig:
        old = at(rig, 1)
        rig.produce(0, *[b"v"] * 5)
        for floor in (2, 3):
            await rig.offsets.put(at(rig, floor))
        rig.fetch.groups._unstored.entries = old
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.held) == 4)
            assert consumer.begins[0] == 3
