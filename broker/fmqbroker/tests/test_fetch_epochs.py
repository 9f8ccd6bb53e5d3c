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
