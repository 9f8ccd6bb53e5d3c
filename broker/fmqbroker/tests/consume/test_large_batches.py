"""Deliveries with credit smaller than any batch, and messages delayed for long."""

import asyncio
from pathlib import Path

import pytest

from fmqbroker.tests.consume_harness import Rig, consuming, numbers, running, until
from fmqproto.v1.client_pb2 import ConsumeRequest, QueueControl


@pytest.mark.parametrize("once", [True, False])
async def test_batches_larger_than_the_credit_all_come(tmp_path: Path, once: bool) -> None:
    async with running(Rig(tmp_path)) as rig:
        for n in range(12):
            rig.produce(n % 3, bytes(100_000), b"x")
        await rig.committed()
        async with consuming(rig, credit=1024, accepts_omitted_batch=once) as consumer:
            seen = 0
            while seen < 12:
                while len(consumer.got) <= seen:
                    await asyncio.sleep(0.002)
                delivery = consumer.got[seen]
                seen += 1
                if seen == 3:
                    pause = QueueControl(queue_id=3, generation=consumer.held[3], pause=True)
                    consumer.send(ConsumeRequest(controls=[pause]))
                consumer.send(ConsumeRequest(credit_bytes=len(delivery.batch)))
            assert all(numbers(consumer, q) == list(range(8)) for q in range(3))


async def test_a_long_delay_leaves_no_timers_behind(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a")
        await rig.committed()
        async with consuming(rig, ack_timeout_ms=100) as consumer:
            await until(lambda: consumer.got)
            consumer.nack(consumer.got[0], 3_600_000)
            for n in range(50):
                rig.produce(0, b"b")
                while len(consumer.got) < n + 2:
                    await asyncio.sleep(0.002)
                consumer.ack(consumer.got[-1])
                rig.hand.advance(150)
                await asyncio.sleep(0)
            far_ms = rig.hand.monotonic_ms() + 1_000_000
            assert sum(due_ms > far_ms for due_ms, *_ in rig.fetch._timers._heap) < 10
