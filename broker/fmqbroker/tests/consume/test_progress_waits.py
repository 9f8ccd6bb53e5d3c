"""Waits before a consumer group's progress counts as stored."""

import asyncio
from pathlib import Path

import pytest

from fmqbroker.consume.offsets.write_round import Round
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
from fmqcore.errors import NoPermission
from fmqcore.ids import Offset
from fmqproto.v1 import client_pb2


async def test_entry_being_stored_does_not_count_as_stored(tmp_path: Path) -> None:
    """A seek, an orderly stop and a starting group wait for the write: it may still fail."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            with commit_held(rig):
                consumer.ack_range(0, 0, 1)
                await until(lambda: stored(rig, 0).floor == 1, "written")
                waiting = asyncio.create_task(rig.fetch.groups.stored())
                for _ in range(5):
                    await asyncio.sleep(0)
                assert not waiting.done()
            await waiting
            assert key() in rig.journal.state.offsets


async def test_group_dropped_while_its_start_is_stored_is_not_reused(
    tmp_path: Path,
) -> None:
    """The reads went and came back meanwhile: its members' acks would never be stored."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        await rig.committed()
        groups = rig.fetch.groups
        with commit_held(rig):
            opening = asyncio.create_task(
                groups.ensure("billing", TOPIC, client_pb2.START_LATEST, 0)
            )
            await until(lambda: groups.get("billing", TOPIC.id))
            await asyncio.sleep(0)
            groups.drop(NoPermission("the reads went"))
        with pytest.raises(NoPermission, match="dropped meanwhile"):
            await opening


async def test_move_during_a_write_that_is_refused_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal drops all groups, with what came since the write: a seek that waits for it."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        await rig.committed()
        groups = rig.fetch.groups
        group = await groups.ensure("billing", TOPIC, client_pb2.START_EARLIEST, 0)
        await groups.stored()
        refused, accept = Round(), rig.offsets.accept
        monkeypatch.setattr(rig.offsets, "accept", lambda _: refused)
        groups.move(group, {0: Offset(1)})
        await until(lambda: not groups._unstored, "taken")
        monkeypatch.setattr(rig.offsets, "accept", accept)
        groups.move(group, {0: Offset(2)})
        seeking = asyncio.create_task(groups.stored())
        await asyncio.sleep(0)
        refused.settle(NoPermission("the reads went"))
        with pytest.raises(NoPermission, match="the reads went"):
            await seeking
        assert groups.get("billing", TOPIC.id) is None
