"""Seeks on an ordered topic: one compare-and-set for both broker groups, or none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.admin.test_progress_rows import lags_of
from fmqbroker.tests.consume.chain_kit import APP, OPEN, Broker, Stage, reading, staged
from fmqbroker.tests.consume_harness import commit_held, until
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName
from fmqcore.zk.chain import Chain, Floor, Segment
from fmqproto.v1.admin_pb2 import OffsetsRequest, SeekRequest
from fmqproto.v1.client_pb2 import START_EARLIEST, START_LATEST, START_TIME

pytestmark = pytest.mark.processes

SECOND = Segment(2, GroupName("g2"), 1, (3,), (0,), opened_ms=5_000_000)
TWO = replace(
    OPEN,
    segments=(replace(OPEN.segments[0], end=(2,), opened_ms=1_000), SECOND),
    heads=(("app", (2,)),),
)
AT_ONE = replace(TWO, heads=APP)


async def seek(broker: Broker, **fields: Any) -> Any:
    request = SeekRequest(topic="changes", group="app", **fields)
    return await admin_of(broker.rig).seek(request)


async def filled(stage: Stage) -> None:
    for broker in (stage.one, stage.two):
        broker.produce(b"a", b"b")
        broker.held = 2
        await broker.rig.committed()


def refused(reply: Any, code: ErrorCode, text: str) -> None:
    assert reply.error.code == code
    assert text in reply.error.message


async def test_one_seek_moves_live_members_of_all_groups(tmp_path: Path, zookeeper: str) -> None:
    """Segment 1 is acked; the broker that serves it hears of the seek by the chain alone."""
    async with staged(tmp_path, zookeeper, AT_ONE) as stage:
        await filled(stage)
        one, two = stage.one, stage.two
        async with reading(one) as first, reading(two, "s2") as second:
            await until(lambda: first.got)
            first.ack(first.got[0], token=1)
            await until(lambda: first.tokens)
            await stage.move_heads(one, {"app": (2,)})
            await until(lambda: second.got)
            reply = await seek(two, to=START_EARLIEST)
            assert not reply.HasField("error"), reply.error.message
            assert not reply.ask_group
            chain = await stage.chain()
            assert chain.heads == APP
            assert [row.seek_number for row in reply.queues] == [chain.last_start]
            await until(lambda: len(first.got) == 2)
            assert [(d.first_offset, d.end_offset) for d in first.got] == [(0, 2), (0, 2)]
            assert first.begins == {0: 0}


@pytest.mark.parametrize(("to", "to_ms"), [(START_LATEST, 0), (START_TIME, 9_000_000)])
async def test_seek_names_the_group_that_knows_the_offset(
    tmp_path: Path, zookeeper: str, to: int, to_ms: int
) -> None:
    async with staged(tmp_path, zookeeper, AT_ONE) as stage:
        await filled(stage)
        elsewhere = await seek(stage.one, to=to, to_ms=to_ms)
        assert (elsewhere.ask_group, list(elsewhere.queues)) == ("g2", [])
        assert await stage.chain() == AT_ONE, "nothing is moved"
        reply = await seek(stage.two, to=to, to_ms=to_ms)
        assert not reply.ask_group
        chain = await stage.chain()
        begin = 2 if to == START_LATEST else 0
        assert (chain.heads_of("app"), chain.start_offsets_of("app")) == ((2,), (begin,))


async def test_seek_to_an_offset_starts_there(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, TWO) as stage:
        await filled(stage)
        assert (await seek(stage.one, by_offset=True, offset=1)).ask_group == "g2"
        refused(
            await seek(stage.one, by_offset=True, offset=1, queues=[0]),
            ErrorCode.INVALID_ARGUMENT,
            "reads queue 0 of ordered topic changes in segment 2, in group g2",
        )
        async with reading(stage.two) as consumer:
            await until(lambda: consumer.got)
            reply = await seek(stage.two, by_offset=True, offset=1)
            assert not reply.HasField("error"), reply.error.message
            rows = [(row.begin, row.committed, row.end, row.acked_ahead) for row in reply.queues]
            assert rows == [(0, 1, 2, 0)], "shown where it starts"
            await until(lambda: len(consumer.got) == 2)
            assert [d.first_offset for d in consumer.got] == [0, 1]


async def test_seek_to_an_offset_fails_once_the_head_has_moved(
    tmp_path: Path, zookeeper: str, monkeypatch: Any
) -> None:
    """The head leaves the segment after the check: the seek must not seem to have worked."""
    async with staged(tmp_path, zookeeper, AT_ONE) as stage:
        await filled(stage)
        read = stage.one.chains.read

        async def read_then_moved(topic: str) -> Chain:
            chain = await read(topic)
            await stage.move_heads(stage.one, {"app": (2,)})
            return chain

        monkeypatch.setattr(stage.one.chains, "read", read_then_moved)
        reply = await seek(stage.one, by_offset=True, offset=1)
        refused(reply, ErrorCode.INVALID_ARGUMENT, "in segment 2, in group g2")
        assert (await stage.chain()).start_numbers == ()


async def test_seek_into_a_dropped_segment_starts_at_the_first_kept(
    tmp_path: Path, zookeeper: str, monkeypatch: Any
) -> None:
    async with staged(tmp_path, zookeeper, TWO) as stage:
        await filled(stage)
        read = stage.one.chains.read

        async def read_then_dropped(topic: str) -> Chain:
            chain = await read(topic)
            floor = Floor(1, 1, (2,))
            await stage.edit(lambda c: replace(c, segments=TWO.segments[1:], floor=floor))
            return chain

        monkeypatch.setattr(stage.one.chains, "read", read_then_dropped)
        assert (await seek(stage.one, to=START_TIME, to_ms=2_000_000)).ask_group == "g2"
        reply = await seek(stage.two, to=START_TIME, to_ms=2_000_000)
        assert not reply.HasField("error"), reply.error.message
        chain = await stage.chain()
        assert (chain.heads_of("app"), chain.start_offsets_of("app")) == ((2,), (0,))


async def test_seek_that_another_one_preceded_is_refused(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, TWO) as stage:
        await filled(stage)
        expected = {"expected_seek_numbers": {0: 0}}
        assert not (await seek(stage.one, to=START_EARLIEST, **expected)).HasField("error")
        late = await seek(stage.two, to=START_LATEST, **expected)
        refused(late, ErrorCode.STALE_ASSIGNMENT, "in queue 0 of topic")
        chain = await stage.chain()
        assert chain.heads == APP
        now = {0: chain.last_start}
        none = await seek(stage.two, to=START_LATEST, expected_seek_numbers=now, queues=[0])
        assert not none.HasField("error")


async def test_group_without_a_place_cannot_be_moved(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, OPEN) as stage:
        for fields in ({"to": START_EARLIEST}, {"by_offset": True, "offset": 1}):
            reply = await seek(stage.one, **fields)
            refused(reply, ErrorCode.INVALID_ARGUMENT, "has no place in the chain")


async def test_reader_that_never_came_has_its_segment_to_read(
    tmp_path: Path, zookeeper: str
) -> None:
    """Its head came to this broker group while it was away: no progress is stored here."""
    async with staged(tmp_path, zookeeper, AT_ONE) as stage:
        await filled(stage)
        assert await lags_of(stage.one.rig) == {"app": 2}


async def test_row_ends_at_stored_records_that_are_to_come(tmp_path: Path, zookeeper: str) -> None:
    """Withheld are an orphan of the ended segment in g1, and a record of the open one in g2."""
    async with staged(tmp_path, zookeeper, TWO) as stage:
        await filled(stage)
        ends = []
        for broker in (stage.one, stage.two):
            with commit_held(broker.rig):
                broker.produce(b"c")
                request = OffsetsRequest(topic="changes", group="app")
                (row,) = (await admin_of(broker.rig).offsets(request)).queues
                ends.append((row.end, row.stored_end))
        assert ends == [(2, 2), (2, 3)]


async def test_row_shows_that_an_orphan_at_the_end_never_comes(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper, AT_ONE) as stage:
        await filled(stage)
        ends = []
        for broker in (stage.one, stage.two):
            broker.produce(b"c")
            await broker.rig.committed()
            request = OffsetsRequest(topic="changes", group="app")
            (row,) = (await admin_of(broker.rig).offsets(request)).queues
            ends.append((row.end, row.end_to_come))
        assert ends == [(3, 2), (3, 3)]
