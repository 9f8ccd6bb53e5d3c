"""Progress of dropped groups becomes entries later: what the store learns meanwhile wins."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.session import Session
from fmqbroker.tests.consume_harness import TOPIC, Rig, key, running, stored
from fmqcore.batch.offset_entry import OffsetEntry, tombstone
from fmqcore.errors import NoPermission
from fmqcore.ids import Offset
from fmqproto.v1 import client_pb2

LOST = NoPermission("the reads are over")


async def acked(rig: Rig) -> tuple[ConsumerGroup, Session]:
    """Return a group whose session has acked the first 3 of 5 messages; nothing of that stored."""
    rig.produce(0, *[b"v"] * 5)
    group = await rig.fetch.groups.ensure("billing", TOPIC, client_pb2.START_EARLIEST, 0)
    await rig.fetch.groups.stored()
    session = Session("s1", "c", 60_000, 0, lambda: None)
    group.join(session, 0)
    ack(group, session, 0, 3)
    assert stored(rig, 0).floor == 0
    return group, session


def ack(group: ConsumerGroup, session: Session, first: int, end: int) -> None:
    group.progress[0].lease(Offset(first), Offset(end), 60_000)
    generation = next(m.generation for m, *_ in session.assigned.values() if m.queue_id == 0)
    group.ack(session, 0, generation, Offset(first), Offset(end), 0)


async def test_a_dropped_group_then_its_acks_are_stored(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await acked(rig)
        rig.fetch.groups.drop(LOST)
        await rig.fetch.groups.stored()
        assert stored(rig, 0).floor == 3


async def test_a_dropped_group_then_later_acks_do_not_count(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        group, session = await acked(rig)
        rig.fetch.groups.drop(LOST)
        ack(group, session, 3, 5)
        await rig.fetch.groups.stored()
        assert stored(rig, 0).floor == 3
        assert session.ignored


async def test_a_dropped_group_opened_again_then_it_goes_on(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await acked(rig)
        rig.fetch.groups.drop(LOST)
        again = await rig.fetch.groups._maker.make("billing", TOPIC, [Offset(0)] * 4)
        assert again.progress[0].floor == 3


def newer(version: int) -> Iterator[OffsetEntry]:
    yield OffsetEntry(version + 1, Offset(1), (), version + 1)  # a seek
    yield tombstone(version + 1)
    yield OffsetEntry(9 << 32, Offset(2))  # of another reader's term


@pytest.mark.parametrize("number", range(3), ids=["seek", "deletion", "later term"])
async def test_a_dropped_group_then_what_came_since_stands(tmp_path: Path, number: int) -> None:
    async with running(Rig(tmp_path)) as rig:
        await acked(rig)
        rig.fetch.groups.drop(LOST)
        entry = list(newer(stored(rig, 0).version))[number]
        await rig.offsets.put({key(0): entry})
        await rig.fetch.groups.stored()
        assert stored(rig, 0) == entry


async def test_a_deleted_group_then_its_acks_are_not_stored(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await acked(rig)
        rig.fetch.groups.drop(LOST)
        rig.fetch.groups.forget("billing", TOPIC.id)
        await rig.fetch.groups.stored()
        assert stored(rig, 0).floor == 0


async def test_a_deleted_group_then_what_a_full_disk_gave_back_goes(tmp_path: Path) -> None:
    """Seeks that were not stored have versions above its tombstone's."""
    async with running(Rig(tmp_path)) as rig:
        group, _ = await acked(rig)
        for _ in range(2):
            rig.fetch.groups.move(group, {0: Offset(2)})
        entries = rig.fetch.groups._unstored.take()
        rig.fetch.groups._unstored.give_back(entries)
        rig.fetch.groups.forget("billing", TOPIC.id)
        deleted = tombstone(rig.offsets.next_version(key(0)))
        await rig.offsets.put({key(0): deleted})
        await rig.fetch.groups.stored()
        assert stored(rig, 0) == deleted
