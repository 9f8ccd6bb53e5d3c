"""Acks for which there was no room: their token waits until they count, not for ever."""

from pathlib import Path

from fmqbroker.tests.consume.test_group import deliver, group_of, reported, session_of
from fmqbroker.tests.consume_harness import (
    TOPIC,
    Rig,
    commit_held,
    consuming,
    running,
    until,
)
from fmqcore.consume.in_flight import Limits
from fmqcore.ids import Offset
from fmqproto.v1.client_pb2 import ConsumeRequest

FEW = Limits(100, 100, most_acked=3)


async def test_token_is_answered_once_a_refused_ack_counts(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"v"] * 10)
        await rig.committed()
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            group = rig.fetch.groups.get("billing", TOPIC.id)
            assert group is not None
            group.progress[0]._limits = FEW
            for n in (2, 4, 6, 8):
                consumer.ack_range(0, n, n + 1, token=n)
            await until(lambda: consumer.tokens == [2, 4, 6])
            consumer.ack_range(0, 0, 4)  # there is room again
            await until(lambda: group.progress[0].floor == 5)
            await rig.fetch.groups.stored()
            assert consumer.tokens == [2, 4, 6], "8 is in flight"
            consumer.ack_range(0, 8, 9)  # as it comes again
            await until(lambda: consumer.tokens == [2, 4, 6, 8])
            consumer.send(ConsumeRequest(commit_token=9))
            await until(lambda: consumer.tokens[-1] == 9)


def test_refused_ack_in_a_queue_that_went_is_reported() -> None:
    """Its holder would take it for stored: nothing else comes for it from that queue."""
    group, a = group_of(2), session_of("a")
    group.join(a, 0)
    assert reported(a) == ([0, 1], [])
    deliver(group, 1)
    group.progress[1]._limits = Limits(100, 100, most_acked=0)
    group.ack(a, 1, 1, Offset(1), Offset(2), 0)
    assert not group.all_acks_count(a)
    group.join(session_of("b"), 0)
    assert not group.all_acks_count(a), "it drains"
    group.on_timer(10**9)
    assert group.all_acks_count(a)
    assert a.ignored == {(1, 1)}


def test_many_refused_acks_count_when_all_between_do() -> None:
    """Above 1,000 ranges of a queue, what they span counts as one."""
    a = session_of("a")
    for n in range(0, 4002, 2):
        a.refuse(0, 1, Offset(n), Offset(n + 1))
    assert len(a.uncounted[0, 1]) <= 1001
    first, *_ = a.uncounted[0, 1]
    assert first[0] == 0
    assert a.uncounted[0, 1].last_end == 4001


async def test_ack_after_a_leave_is_reported_with_its_token(tmp_path: Path) -> None:
    """The leave waits for its own token meanwhile; the queue was not revoked."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()
            with commit_held(rig):
                consumer.ack_range(0, 0, 1)
                consumer.send(ConsumeRequest(commit_token=1, leave=True))
                consumer.ack_range(0, 1, 2, token=2)
                await until(lambda: consumer.ignored)
                assert consumer.ignored == [(0, consumer.held[0])]
                assert not consumer.left
            await until(lambda: consumer.left)
            assert consumer.tokens == [1, 2]
