"""The client with real brokers on a real ZooKeeper: its guarantees through faults."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import fmqclient
from fmqclient.tests.double import until
from fmqcore.ids import BrokerId
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
G1_MASTER = BrokerId("g1-0")


@pytest.fixture
async def dev(tmp_path: Path, zookeeper: str) -> AsyncIterator[DevCluster]:
    async with DevCluster(tmp_path / "dev", ClusterOptions(zookeeper=zookeeper)) as running:
        yield running


class Traffic:
    """Keyed messages in and out at the same time, and the checks at the end."""

    def __init__(self, client: fmqclient.Client) -> None:
        self._client = client
        self.stored: dict[tuple[str, int, int], bytes] = {}
        self.seen: Counter[tuple[str, int, int]] = Counter()
        self.values: dict[tuple[str, int, int], bytes] = {}
        self.stop = asyncio.Event()

    async def produce(self) -> None:
        number = 0
        async with self._client.producer() as p:
            while not self.stop.is_set():
                futures = []
                for _ in range(50):
                    key = b"%d" % (number % 31)
                    futures.append(p.send_nowait("orders", b"%d" % number, key=key))
                    number += 1
                for future in futures:
                    future.add_done_callback(self._keep)
                await asyncio.sleep(0.005)
        self.sent = number

    def _keep(self, future: "asyncio.Future[fmqclient.SendResult]") -> None:
        r = future.result()
        place = (str(r.group), r.queue, int(r.offset))
        assert place not in self.stored, "two messages in one place"
        self.stored[place] = b""

    async def consume(self) -> None:
        async with self._client.consumer("orders", group="billing") as sub:
            async for m in sub:
                place = (m.group, m.queue, m.offset)
                self.seen[place] += 1
                self.values[place] = m.value
                await m.ack()

    def check(self) -> None:
        """Check: no loss, no invention, order per queue and key, no number stored twice."""
        assert len(self.stored) == self.sent
        assert set(self.seen) >= set(self.stored)
        assert max(self.seen.values()) == 1, "acked messages came again"
        numbers = Counter(int(v) for v in self.values.values())
        assert sorted(numbers) == list(range(self.sent))
        assert max(numbers.values()) == 1, "a number was stored twice"
        last: dict[tuple[str, int, int], int] = {}
        for (group, queue, _), value in sorted(self.values.items()):
            buffer = (group, queue, int(value) % 31)
            assert last.get(buffer, -1) < int(value), "order within a queue"
            last[buffer] = int(value)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_traffic_continues_after_the_loss_of_a_master(
    dev: DevCluster, how: signal.Signals
) -> None:
    """Killed: reset at once. Stopped: silence. Either way a pause, no loss and no duplicates."""
    async with fmqclient.connect(dev.url) as c, asyncio.TaskGroup() as tasks:
        await c.admin().create_topic("orders", queues=4)
        traffic = Traffic(c)
        producing = tasks.create_task(traffic.produce())
        consuming = tasks.create_task(traffic.consume())
        await until(lambda: len(traffic.seen) > 1000, 30)
        dev.kill(G1_MASTER, how)

        async def slave_reads() -> bool:
            rows = {s.broker: s for s in await c.admin().status()}
            return "READ" in (rows["g1-1"].permission.name or "")

        async with asyncio.timeout(60):
            while not await slave_reads():
                await asyncio.sleep(0.1)
        g1_before = sum(1 for g, _, _ in traffic.seen if g == "g1")
        g2_before = sum(1 for g, _, _ in traffic.stored if g == "g2")
        await until(lambda: sum(1 for g, _, _ in traffic.stored if g == "g2") > g2_before + 500, 30)
        if how is signal.SIGKILL:
            await dev.ended(G1_MASTER)
            dev.start_broker(G1_MASTER)
        else:
            dev.resume(G1_MASTER)
        await until(lambda: sum(1 for g, _, _ in traffic.seen if g == "g1") > g1_before + 500, 60)
        traffic.stop.set()
        await producing
        await until(lambda: set(traffic.seen) >= set(traffic.stored), 60)
        consuming.cancel()
    traffic.check()
