"""Redelivered pieces of one batch: the bytes come once for clients that support it."""

from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.consume_harness import Consumer, Rig, consuming, running, until
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest

_RECORDS = 400
_BYTES = 100


async def _scatter(rig: Rig, consumer: Consumer) -> int:
    """Ack every other record of one batch, nack the rest; return its length."""
    rig.produce(0, *[b"%0*d" % (_BYTES, number) for number in range(_RECORDS)])
    rig.produce(0, b"after it")
    await until(lambda: len(consumer.got) == 2)
    fields: dict[str, Any] = {"queue_id": 0, "generation": consumer.held[0]}
    ranges = [
        (fields | {"first_offset": number, "end_offset": number + 1}) for number in range(_RECORDS)
    ]
    acks = [client_pb2.AckRange(**each) for each in ranges[::2]]
    nacks = [client_pb2.NackRange(**each) for each in ranges[1::2]]
    length = len(consumer.got[0].batch)
    consumer.bytes = 0
    consumer.send(ConsumeRequest(acks=acks, nacks=nacks))
    return length


@pytest.mark.parametrize("credit", [10**8, 130_000])
async def test_scattered_acks_redeliver_the_batch_once(tmp_path: Path, credit: int) -> None:
    async with (
        running(Rig(tmp_path)) as rig,
        consuming(rig, accepts_omitted_batch=True, credit=credit) as consumer,
    ):
        length = await _scatter(rig, consumer)
        await until(lambda: len(consumer.got) == 2 + _RECORDS // 2)
        assert consumer.bytes == length
        again = [(offset, value, count) for _, offset, value, count in consumer.values(since=2)]
        assert again == [(n, b"%0*d" % (_BYTES, n), 2) for n in range(1, _RECORDS, 2)]
        rig.produce(0, b"more")
        await until(lambda: len(consumer.got) == 3 + _RECORDS // 2)


async def test_an_older_client_gets_the_batch_with_each_piece(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        length = await _scatter(rig, consumer)
        await until(lambda: len(consumer.got) == 2 + _RECORDS // 2)
        assert consumer.bytes == length * _RECORDS // 2
