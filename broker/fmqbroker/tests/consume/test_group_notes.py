"""Temporary groups are removed soon after their members; named groups keep their full time."""

from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.idle_groups import EVERY_S, TEMPORARY_MS
from fmqbroker.consume.offsets.write_round import Round
from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.consume.test_idle_groups import DAY_MS, WEEK_MS, World
from fmqbroker.tests.consume_harness import TOPIC, consuming, key, running, until
from fmqcore.ids import Permission
from fmqcore.journal.state import PRESENCE_QUEUE, TEMPORARY_QUEUE
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import SeekRequest

GROUP = key(0).group


async def opened(rig: World, group: str = GROUP, **fields: Any) -> None:
    """Open a session, store its progress, and drop it without a farewell."""
    async with consuming(rig, "a", group=group, **fields) as consumer:
        await until(lambda: len(consumer.held) == 4)
        await rig.fetch.groups.stored()
    await until(lambda: not rig.fetch.groups.get(group, TOPIC.id).sessions)  # type: ignore[union-attr]


async def minutes(rig: World, duty: Any, ms: int) -> int:
    """Look each minute for that long; return the removed entries."""
    went = 0
    for _ in range(round(ms / 1000 / EVERY_S)):
        rig.days.ahead_ms += round(EVERY_S * 1000)
        rig.permit(Permission.FULL)
        went += await duty.check_once()
    return went


@pytest.mark.parametrize("start", [client_pb2.START_EARLIEST, client_pb2.START_LATEST])
async def test_temporary_group_is_removed_after_its_member_dies(tmp_path: Path, start: int) -> None:
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await opened(rig, start=start, temporary=True)
        await opened(rig, "named", start=start)
        await duty.check_once()
        assert rig.offsets.is_temporary(GROUP, TOPIC.id)
        assert await minutes(rig, duty, 2 * TEMPORARY_MS) == 4
        assert rig.offsets.queues_of(GROUP, TOPIC.id) == []
        assert rig.offsets.queues_of("named", TOPIC.id) == [0, 1, 2, 3]


async def test_the_note_comes_in_one_write_with_the_progress(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        writes: list[set[int]] = []
        accept = rig.offsets.accept

        def spying(entries: Any) -> Round:
            if entries:
                writes.append({k.queue_id for k in entries})
            return accept(entries)

        rig.offsets.accept = spying  # type: ignore[method-assign]
        await opened(rig, temporary=True)
        assert writes[0] == {TEMPORARY_QUEUE, 0, 1, 2, 3}


async def test_a_temporary_group_with_a_member_stays(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig), consuming(rig, "a", temporary=True) as consumer:
        await until(lambda: len(consumer.held) == 4)
        await rig.fetch.groups.stored()
        assert await minutes(rig, rig.duty(), 3 * TEMPORARY_MS) == 0
        assert rig.offsets.is_temporary(GROUP, TOPIC.id)


async def test_a_temporary_group_opened_by_name_stays(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await opened(rig, temporary=True)
        await opened(rig)
        await opened(rig, temporary=True)
        await duty.check_once()
        assert not rig.offsets.is_temporary(GROUP, TOPIC.id)
        assert await minutes(rig, duty, 3 * TEMPORARY_MS) == 0


async def test_a_named_group_opened_as_temporary_stays(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await opened(rig)
        await opened(rig, temporary=True)
        assert await minutes(rig, duty, 3 * TEMPORARY_MS) == 0


@pytest.mark.parametrize("how", ["opened", "sought"])
@pytest.mark.parametrize("before", [PRESENCE_QUEUE, TEMPORARY_QUEUE])
async def test_group_that_starts_again_gets_its_full_retention(
    tmp_path: Path, how: str, before: int
) -> None:
    """The note of a group removed long ago is still there when the name is reused."""
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await opened(rig, temporary=before == TEMPORARY_QUEUE)
        await duty.check_once()
        assert await rig.live(duty, 10) == 4
        if how == "opened":
            await opened(rig)
        else:
            seek = SeekRequest(group=GROUP, topic=TOPIC.name, to=client_pb2.START_EARLIEST)
            assert not (await admin_of(rig).seek(seek)).error.code
        assert await rig.live(duty, WEEK_MS // DAY_MS) == 0
        assert rig.offsets.queues_of(GROUP, TOPIC.id)


async def test_reused_temporary_group_name_starts_again(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await opened(rig, temporary=True)
        assert await minutes(rig, duty, 2 * TEMPORARY_MS) == 4
        await opened(rig, temporary=True)
        assert await minutes(rig, duty, TEMPORARY_MS // 2) == 0
        assert await minutes(rig, duty, 2 * TEMPORARY_MS) == 4
