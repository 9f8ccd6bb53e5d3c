"""Seeks by time in a journal whose newest store times are in the future."""

from pathlib import Path

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.tests.admin.test_admin import admin_of, progress_of
from fmqbroker.tests.consume_harness import TOPIC, Rig, running, until
from fmqcore.clocks import FUTURE_MS
from fmqcore.errors import InvalidArgument
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import SeekReply, SeekRequest

DAY_MS = 24 * 3600 * 1000


class Wrong(SystemClock):
    """The journal's clock, which may run ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


async def seek(rig: Rig, at_ms: int, *queues: int) -> SeekReply:
    reply: SeekReply = await admin_of(rig).seek(
        SeekRequest(
            topic="orders",
            group="billing",
            to=client_pb2.START_TIME,
            to_ms=at_ms,
            queues=queues,
        )
    )
    return reply


@pytest.mark.parametrize("ahead_ms", [DAY_MS, FUTURE_MS // 2])
async def test_a_time_among_future_store_times_is_refused(tmp_path: Path, ahead_ms: int) -> None:
    rig, clock = Rig(tmp_path), Wrong()
    rig.clock = clock
    async with running(rig):
        rig.produce(0, b"a", b"b")
        rig.produce(1, b"a")
        await rig.committed()
        at_ms = clock.wall_ms() + 1
        await until(lambda: clock.wall_ms() > at_ms)
        clock.ahead_ms = ahead_ms
        rig.produce(0, b"c")
        clock.ahead_ms = 0
        rig.produce(0, b"d")
        await rig.committed()
        reply = await seek(rig, at_ms, 0)
        if ahead_ms == DAY_MS:
            assert reply.error.code == client_pb2.INVALID_ARGUMENT
            assert "from offset 2 on its messages carry the store time" in reply.error.message
            assert "begin at offset 2, earliest or latest" in reply.error.message
        else:
            assert progress_of(reply.queues)[0].committed == 2


async def test_times_before_the_wrong_ones_are_found(tmp_path: Path) -> None:
    rig, clock = Rig(tmp_path), Wrong()
    rig.clock = clock
    async with running(rig):
        before_ms = clock.wall_ms()
        rig.produce(0, b"a", b"b")
        await rig.committed()
        at_ms = clock.wall_ms() + 1
        await until(lambda: clock.wall_ms() > at_ms)
        rig.produce(1, b"a")
        rig.produce(0, b"c")
        clock.ahead_ms = DAY_MS
        rig.produce(0, b"d")
        clock.ahead_ms = 0
        await rig.committed()
        for wanted_ms, offset in ((before_ms, 0), (at_ms, 2), (clock.wall_ms() + DAY_MS, 4)):
            reply = await seek(rig, wanted_ms, 0)
            assert progress_of(reply.queues)[0].committed == offset
        reply = await seek(rig, clock.wall_ms(), 1)
        assert progress_of(reply.queues)[1].committed == 1, "no message is in the future"


async def test_a_group_cannot_begin_among_them(tmp_path: Path) -> None:
    rig, clock = Rig(tmp_path), Wrong()
    rig.clock = clock
    async with running(rig):
        clock.ahead_ms = DAY_MS
        rig.produce(0, b"a")
        clock.ahead_ms = 0
        await rig.committed()
        now_ms = clock.wall_ms()
        with pytest.raises(InvalidArgument, match="queue 0 has no place for"):
            await rig.fetch.groups.ensure("billing", TOPIC, client_pb2.START_TIME, now_ms)
        assert rig.fetch.groups.get("billing", TOPIC.id) is None
