"""Acks that are said to a later reader than the one that delivered: what they count for."""

from pathlib import Path

import pytest

from fmqbroker.tests.consume_harness import (
    Rig,
    consuming,
    key,
    numbers,
    running,
    take_over,
    until,
)
from fmqcore.words import Permission
from fmqproto.v1.client_pb2 import ConsumeRequest


@pytest.mark.parametrize("reader", ["master", "taker"])
async def test_an_ack_counts_for_no_other_message_that_has_its_offset(
    tmp_path: Path, reader: str
) -> None:
    """3 and 4 were acked in epoch 1 and lost; others have their place since epoch 3."""
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


async def test_a_reader_that_gets_more_of_an_epoch_counts_acks_of_it(tmp_path: Path) -> None:
    """The master is back and sends what it had not: it belongs to the epoch before the claim."""
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


async def test_a_reader_without_an_epoch_calls_no_ack_of_it_stored(tmp_path: Path) -> None:
    """Its offsets may lie below the reader's end: what is there are other messages."""
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


async def test_acks_of_an_epoch_that_is_too_old_to_be_remembered_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest thousand are: a group that reads what is older would never get on."""
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
