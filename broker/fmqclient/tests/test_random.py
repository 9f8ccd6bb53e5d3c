"""Producer and consumer under seeded faults and virtual time, with only the ports replaced.

Batches are refused or answered as unknown, their streams cut before or after the append;
permissions come and go; consumers lose sessions with acks in flight. The guarantees are checked at
the end; a failing seed can be run again by its number. Few seeds, because elsewhere whole clusters
are simulated with thousands.
"""

import asyncio
from collections import Counter
from random import Random

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster
from fmqclient.tests.double_parts import ConsumeDouble
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqcore.errors import ErrorCode
from fmqcore.ids import Permission
from fmqproto.v1 import client_pb2

RECORDS = 400
KEYS = 12
_FATES = (
    "lose",
    "drop",
    "unknown",
    ErrorCode.OVERLOADED,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NO_PERMISSION,
    ErrorCode.UNKNOWN_TOPIC,
    ErrorCode.TOO_LARGE,
)


class Chaos:
    """Faults drawn from a seed; none after `calm`."""

    def __init__(self, double: ClusterDouble, random: Random) -> None:
        self._double = double
        self._random = random
        self._evil = random.choice((0.05, 0.2, 0.5))
        self._calm = asyncio.Event()
        for broker in double.brokers.values():
            broker.script = self._fate
            broker.slow = self._slow

    def _fate(self, batch: client_pb2.ProduceBatch) -> ErrorCode | str | None:
        if self._calm.is_set() or self._random.random() > self._evil:
            return None
        fate = self._random.choice(_FATES)
        if fate is ErrorCode.TOO_LARGE and batch.record_count < 2:
            return None
        return fate

    def _slow(self) -> float:
        if self._calm.is_set() or self._random.random() > self._evil / 2:
            return 0.0
        return self._random.choice((0.005, 0.05, 0.5))

    async def run(self) -> None:
        while not self._calm.is_set():
            await asyncio.sleep(self._random.uniform(0.01, 0.5))
            if self._calm.is_set():
                return
            group = self._random.choice(sorted(self._double.groups))
            master = self._double.brokers[f"{group}-0"]
            match self._random.randrange(4):
                case 0:
                    master.reset_streams()
                case 1:
                    master.permission ^= Permission.FULL
                    self._double.groups[group].epoch += 1
                case 2:
                    await master.stop()
                    await asyncio.sleep(self._random.uniform(0, 2))
                    await master.start()
                case _:
                    master.tokens = not master.tokens

    def calm(self) -> None:
        self._calm.set()
        for name, broker in self._double.brokers.items():
            broker.permission = Permission.FULL if name.endswith("-0") else Permission.NONE
            broker.tokens = True


def check_stored(
    double: ClusterDouble, results: list[fmqclient.SendResult], numbers: range
) -> None:
    """Check that each record is stored once, at the reported place, in send order per key."""
    places: dict[tuple[str, int, int], int] = {}
    for group in double.groups.values():
        for queue, batches in group.stored.items():
            last: dict[int, int] = {}
            for batch in batches:
                for at, value in enumerate(batch.values):
                    number = int(value)
                    places[(group.name, queue, batch.base_offset + at)] = number
                    assert last.get(number % KEYS, -1) < number, "order of one key in one queue"
                    last[number % KEYS] = number
    counted = Counter(places.values())
    assert [n for n, times in counted.items() if times > 1] == [], "stored twice"
    assert sorted(counted) == list(numbers), "lost"
    assert [places[(str(r.group), r.queue, int(r.offset))] for r in results] == list(numbers)


@pytest.mark.parametrize("seed", [*range(8), 130, 155, 212, 503])  # these found something
def test_producer(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce(seed))


async def produce(seed: int) -> None:
    random = Random(seed)
    transport = MemoryTransport(seed)
    groups = random.choice((1, 2, 3))
    async with cluster(groups, queues=random.choice((1, 3)), transport=transport) as double:
        chaos = Chaos(double, random)
        client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(seed))
        pipeline = random.choice((1, 2, 4))
        async with client as c, c.producer(delivery_timeout_s=3600, pipeline=pipeline) as p:
            shaking = asyncio.create_task(chaos.run())
            futures = []
            for n in range(RECORDS):
                key = b"%d" % (n % KEYS)
                futures.append(p.send_nowait("orders", b"%d" % n, key=key))
                if random.random() < 0.1:
                    await asyncio.sleep(random.choice((0, 0.002, 0.1)))
            await asyncio.sleep(random.uniform(0, 5))
            chaos.calm()
            await shaking
            results = await asyncio.gather(*futures)
        check_stored(double, results, range(RECORDS))


@pytest.mark.parametrize("seed", range(8))
def test_consumer(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(consume(seed))


async def consume(seed: int) -> None:
    """Check that every message is seen, none again after its ack, and all acks are stored."""
    random = Random(seed)
    transport = MemoryTransport(seed)
    async with cluster(2, transport=transport) as double:
        client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(seed))
        async with client as c:
            async with c.producer() as p:
                for at in range(0, RECORDS, 20):
                    values = [b"%d" % n for n in range(at, at + 20)]
                    await p.send_batch("orders", values, keys=[v[-1:] for v in values])
            chaos = Chaos(double, random)
            shaking = asyncio.create_task(chaos.run())
            seen: Counter[int] = Counter()
            acked: set[int] = set()
            async with c.consumer("orders", group="billing", buffer_bytes=2000) as sub:
                while len(acked) < RECORDS:
                    for m in await sub.fetch(random.randrange(1, 40), 5):
                        number = int(m.value)
                        assert number not in acked, "what was acked came again"
                        seen[number] += 1
                        match random.randrange(8):
                            case 0:
                                await m.nack()
                            case 1:
                                continue  # forgotten: redelivered in a new session
                            case _:
                                await m.ack()
                                acked.add(number)
                    await asyncio.sleep(random.choice((0, 0.01, 0.2)))
                    if random.random() < 0.2:
                        double.brokers[f"g{random.choice((1, 2))}-0"].reset_streams()
                    if len(acked) > RECORDS * 0.9 and not shaking.done():
                        chaos.calm()
                        await shaking
                await sub.commit()
            assert sorted(seen) == list(range(RECORDS))
        floors = {k: f for g in double.groups.values() for k, f in g.floors.items()}
        assert floors
        for group in double.groups.values():
            for queue in group.stored:
                assert group.floors[("billing", queue)] == group.next_offset(queue)
    assert ConsumeDouble.generation
