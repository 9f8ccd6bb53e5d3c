"""Produce sessions: changes while one waits, or after one has ended."""

from dataclasses import dataclass
from pathlib import Path

from fmqbroker.produce.producer_sessions import Sessions
from fmqbroker.tests.produce_harness import G1, batch, bench
from fmqcore.errors import ErrorCode
from fmqcore.ids import TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import client_pb2


async def test_role_lost_during_topic_lookup_appends_nothing(
    tmp_path: Path,
) -> None:
    """The role is checked where the batch is appended, not before the wait for ZooKeeper."""
    async with bench(tmp_path) as b, b.session() as s:
        b.view.there = (*b.view.there, TopicConfig("new", TopicId(7), (TopicGroup(G1, 4),)))
        refresh = b.view.refresh

        async def meanwhile() -> None:
            await refresh()
            b.gate.close("another took over")

        b.view.refresh = meanwhile  # type: ignore[method-assign]
        end = b.journal.end
        await s.send(batch(topic_id=7))
        assert (await s.ack()).code is ErrorCode.NO_PERMISSION
        assert b.journal.end == end


async def test_retry_at_disk_level_gets_the_fsync_its_first_try_lacked(
    tmp_path: Path,
) -> None:
    """The policy makes none, so no other batch asks for one: the retry would wait until timeout."""
    async with bench(tmp_path) as b, b.session() as s:
        b.journal.set_flush(sync=False, interval_ms=0)
        await b.journal.wait_durable(b.journal.end)
        await s.send(batch(ack=client_pb2.RECEIVED))
        first = await s.ack()
        assert b.journal.durable_end < b.journal.end
        await s.send(batch(ack=client_pb2.PERSISTED))
        again = await s.ack()
        assert (again.code, again.base_offset) == (ErrorCode.OK, first.base_offset)
        assert b.journal.durable_end == b.journal.end


@dataclass(eq=False)
class Numbered:
    producer_epoch: int
    producer_id: int = 5
    superseded: bool = False
    attempt: int = 0


def test_a_session_that_was_given_up_is_over_for_good() -> None:
    """P7: even if the later one has ended and its producer returns with an older one."""
    sessions = Sessions()
    first, later, late = Numbered(1), Numbered(2), Numbered(1)
    for session in (first, later):
        sessions.opened(session)
    assert (first.superseded, later.superseded) == (True, False)
    sessions.closed(later)
    sessions.opened(late)
    assert first.superseded
    for session in (first, late):
        sessions.closed(session)
    assert len(sessions) == 0


def test_producer_without_session_numbers_supersedes_no_session() -> None:
    sessions = Sessions()
    for producer in (0, 5, 6):
        older, newer = Numbered(1, producer_id=producer), Numbered(2, producer_id=producer)
        for session in (older, newer):
            sessions.opened(session)
        assert older.superseded is bool(producer)
        for session in (older, newer):
            sessions.closed(session)
    assert not sessions._of
