"""Acks sent to a later reader than the one that delivered, and what they count for."""

from pathlib import Path

import pytest

from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.session import Session
from fmqbroker.journal.journal import BatchDraft
from fmqbroker.tests.consume_harness import (
    ME,
    TOPIC,
    Rig,
    consuming,
    key,
    numbers,
    running,
    take_over,
    until,
)
from fmqcore.batch.control import encode_epoch
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.consume.in_flight import Limits, QueueProgress
from fmqcore.ids import Epoch, Offset, Permission, TopicId
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest


@pytest.mark.parametrize("reader", ["master", "taker"])
async def test_ack_does_not_count_for_another_message_at_its_offset(
    tmp_path: Path, reader: str
) -> None:
    """Offsets 3 and 4 were acked in epoch 1 and lost; epoch 3 reused them."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"0", b"1", b"2")
        await rig.lead(3)
        rig.produce(0, b"another 3", b"another 4")
        if reader == "master":
            await rig.lead(5)
        else:
            await take_over(rig, 4)
            rig.permit(Permission.READ, 4)
        await rig.committed()
        async with consuming(rig, credit=0) as consumer:
            await until(lambda: consumer.held)
            consumer.ack_range(0, 1, 5, epoch=1)
            consumer.ack_range(0, 0, 5, epoch=2, token=1)  # nothing of that epoch is here
            await until(lambda: consumer.tokens)
            consumer.send(ConsumeRequest(credit_bytes=10**6))
            await until(lambda: len(consumer.values()) == 3)
            assert numbers(consumer, 0) == [0, 3, 4]
            consumer.ack_range(0, 0, 3, epoch=1)
            consumer.ack_range(0, 3, 5, epoch=3, token=2)
            await until(lambda: 2 in consumer.tokens)
            entry = rig.offsets.get(key())
            assert entry is not None
            assert entry.floor == 5


async def test_reader_counts_acks_of_epoch_records_it_gets_later(tmp_path: Path) -> None:
    """The returned master sends records of the epoch before the claim, which the reader lacked."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"0", b"1", b"2")
        await take_over(rig, 2)
        rig.permit(Permission.READ, 2)
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 3)
            consumer.ack_range(0, 0, 3, epoch=1, token=1)
            await until(lambda: 1 in consumer.tokens)
            rig.produce(0, b"3", b"4")
            await until(lambda: len(consumer.values()) == 5)
            consumer.ack_range(0, 3, 5, epoch=1, token=2)
            await until(lambda: 2 in consumer.tokens)
            entry = rig.offsets.get(key())
            assert entry is not None
            assert entry.floor == 5
            rig.produce(0, b"5", b"6")
            await until(lambda: len(consumer.values()) == 7)
            payload = encode_epoch(Epoch(3), ME)  # the next term starts: this epoch is over
            rig.journal.append(BatchDraft(BatchType.EPOCH, payload, crc32c(payload)))
            consumer.ack_range(0, 5, 7, epoch=1, token=3)
            await until(lambda: 3 in consumer.tokens)
            entry = rig.offsets.get(key())
            assert entry is not None
            assert entry.floor == 7


@pytest.mark.parametrize(
    ("queue", "epoch", "learns"),
    [
        (0, 2, True),
        (1, 2, True),
        (1, 1, False),  # it is known
        (0, 3, False),  # it is not over: it may grow
        (0, 4, False),
        (0, 0, False),  # the client does not know it
        (2, 2, False),  # no such queue
        (-1, 2, False),
    ],
)
def test_epochs_whose_end_is_looked_up(queue: int, epoch: int, learns: bool) -> None:
    group = of_two_queues()
    group.epoch_ends[1, 1] = Offset(5)
    assert group.lacks_epoch_end(queue, epoch) is learns


def of_two_queues() -> ConsumerGroup:
    """Append ten messages to each queue, and start the third epoch."""
    names = ("billing", "orders", TopicId(1))
    group = ConsumerGroup(*names, [], 0, lambda *_: Offset(10), lambda: Epoch(3))
    group.grow([QueueProgress(Offset(0), (), Limits(99, 9)) for _ in range(2)], 0)
    return group


@pytest.mark.parametrize(("known", "floor"), [(None, 0), (0, 0), (4, 4), (6, 6), (9, 6)])
def test_an_ack_counts_up_to_where_its_epoch_is_known_to_end(known: int | None, floor: int) -> None:
    group = of_two_queues()
    if known is not None:
        group.epoch_ends[0, 2] = Offset(known)
    session = member(group)
    group.ack(session, 0, group.delivering(session, 0), Offset(0), Offset(6), 0, epoch=2)
    assert group.progress[0].floor == floor
    assert not session.unstorable


def member(group: ConsumerGroup) -> Session:
    session = Session("s", "c", 1000, 0, lambda: None)
    group.join(session, 0)
    return session


@pytest.mark.parametrize(
    ("first", "end", "epoch", "unstorable"),
    [
        (8, 10, 3, False),
        (8, 11, 3, True),  # an earlier reader had more
        (8, 11, 0, True),
        (0, 2, 4, True),  # nothing of that epoch is here
        (8, 11, 2, True),
    ],
)
def test_ack_of_missing_records_cannot_be_stored(
    first: int, end: int, epoch: int, unstorable: bool
) -> None:
    group = of_two_queues()
    session = member(group)
    generation = group.delivering(session, 0)
    group.ack(session, 0, generation, Offset(first), Offset(end), 0, epoch=epoch)
    assert session.unstorable is unstorable


def test_acks_above_the_range_limit_cannot_be_stored() -> None:
    group = of_two_queues()
    group.progress[0] = QueueProgress(Offset(0), (), Limits(1, 1))
    session, generation = member(group), 1
    for first in range(1, 10, 2):
        group.ack(session, 0, generation, Offset(first), Offset(first + 1), 0)
        aside = len(group.progress[0].acked)
        assert session.unstorable is (aside <= first // 2)
    assert session.unstorable


async def test_reader_lacking_an_epoch_reports_none_of_its_acks_stored(tmp_path: Path) -> None:
    """The offsets may lie below the reader's end, but hold other messages there."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"0", b"1", b"2")
        await take_over(rig, 4)
        rig.permit(Permission.READ, 4)
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 3)
            consumer.ack_range(0, 1, 3, epoch=3, token=1)
            consumer.ack_range(0, 0, 1, epoch=1)
            consumer.send(ConsumeRequest(leave=True))
            await until(lambda: consumer.left)
            assert consumer.tokens == []
            entry = rig.offsets.get(key())
            assert entry is not None
            assert (entry.floor, entry.ranges) == (1, ())


async def test_acks_of_a_forgotten_old_epoch_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest thousand epochs are remembered; a group reading older ones must go on."""
    monkeypatch.setattr("fmqcore.journal.state.MAX_EPOCHS", 3)
    monkeypatch.setattr("fmqbroker.journal.journal.MAX_EPOCHS", 3)
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"0", b"1", b"2")
        for epoch in (3, 5, 7):
            await rig.lead(epoch)
            rig.produce(0, b"more")
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 6)
            consumer.ack_range(0, 0, 6, epoch=1, token=1)
            await until(lambda: consumer.tokens)
            entry = rig.offsets.get(key())
            assert entry is not None
            assert (entry.floor, entry.ranges) == (3, ())
            consumer.ack_range(0, 3, 6, epoch=3, token=2)  # the oldest remembered one
            await until(lambda: 2 in consumer.tokens)
            entry = rig.offsets.get(key())
            assert entry is not None
            assert (entry.floor, entry.ranges) == (4, ())


async def test_epoch_ending_during_another_lookup_is_looked_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a known end, acks of that epoch count for nothing and are reported stored."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"0", b"1")
        await rig.lead(3)
        rig.produce(0, b"2")
        group = await rig.fetch.groups.ensure("billing", TOPIC, client_pb2.START_EARLIEST, 0)
        find = rig.journal.epoch_end

        async def slow(topic_id: TopicId, queue_id: int, epoch: Epoch) -> Offset:
            found = await find(topic_id, queue_id, epoch)
            if epoch == 1:
                payload = encode_epoch(Epoch(5), ME)
                rig.journal.append(BatchDraft(BatchType.EPOCH, payload, crc32c(payload)))
            return found

        monkeypatch.setattr(rig.journal, "epoch_end", slow)
        acks = [client_pb2.AckRange(epoch=epoch) for epoch in (1, 3)]
        await rig.fetch.groups.find_epoch_ends(group, acks)
        assert group.epoch_ends == {(0, 1): 2, (0, 3): 3}


async def test_the_ends_that_are_known_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer can name epochs that never existed."""
    monkeypatch.setattr("fmqbroker.consume.registry._MOST_EPOCH_ENDS", 5)
    async with running(Rig(tmp_path)) as rig:
        await rig.lead(30)
        group = await rig.fetch.groups.ensure("billing", TOPIC, client_pb2.START_EARLIEST, 0)
        for first in range(2, 14, 4):
            names = {(0, epoch) for epoch in range(first, first + 4)}
            acks = [client_pb2.AckRange(epoch=epoch) for _, epoch in names]
            await rig.fetch.groups.find_epoch_ends(group, acks)
            assert names <= set(group.epoch_ends)
            assert len(group.epoch_ends) <= 5
