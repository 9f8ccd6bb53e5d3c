"""The special cases of replication, on real processes. (Their other half runs in the simulator.)

Replicated but not flushed on the master, then a crash: that needs a disk that forgets, see
`e2e/chaos/tests/test_run.py`, fault `power-loss-unflushed`.
"""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

import fmqclient
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqbroker.tests.scenario_harness import FULL, MASTER, SLAVE, Scenario, scenario
from fmqcore.errors import ErrorCode
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_state import Mode
from fmqdev.demo.replica_comparison import compare_journals
from fmqproto.v1 import admin_pb2, client_pb2

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
ALONE = AckPolicy(how_many=HowMany.NONE)
LONG_MS = 60_000
MIB = 1 << 20
LARGE = MIB - 8192
UNSURE = ErrorCode.DELIVERY_UNKNOWN


async def status(stage: Scenario, broker: str) -> admin_pb2.StatusReply:
    async with asyncio.timeout(30):
        while (reply := await stage.cluster.broker_status(broker)) is None:
            await asyncio.sleep(0.05)
    return reply


async def equal_journals(stage: Scenario) -> None:
    """Stop all brokers in order, then compare their journals."""
    await stage.cluster.stop()
    master, *slaves = stage.cluster.group("g1")
    for slave in slaves:
        compared = compare_journals("g1", master.data, slave.data)
        assert compared.finding is None, compared.finding


async def flood(stage: Scenario, count: int, size: int) -> None:
    """Send that many large messages, beside the traffic, in a topic of their own."""
    admin = stage.traffic.client.admin()
    await admin.create_topic("flood", queues=1)
    async with stage.traffic.client.producer() as producer:
        for _ in range(count):
            await producer.send("flood", bytes(size))


async def test_slave_and_consumer_below_the_log_start_resume_there(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """Slave and consumer come back below the log start: each continues at what is left."""
    small = {"segment_bytes": MIB // 4, "retention_bytes": MIB // 2, "tail_cache_bytes": MIB}
    async with scenario(tmp_path, zookeeper_server, policy=ALONE, settings=small) as stage:
        client, stored = stage.traffic.client, 120
        await client.admin().create_topic("edge", queues=1)
        async with client.producer() as producer:
            for number in range(stored):
                await producer.send("edge", b"%d " % number + bytes(MIB // 32))
                if number == 10:
                    seen = [await one_of(client, "edge", "slow")]
                    await stage.kill(SLAVE)
                    had = (await status(stage, MASTER)).end
        async with asyncio.timeout(60):
            while (await status(stage, MASTER)).journal_start <= had:
                await asyncio.sleep(0.05)
            # The broker reports `journal_start` before the queues start there; the next look may
            # remove more.
            while (await client.admin().offsets(topic="edge"))[0].begin < stored - 16:
                await asyncio.sleep(0.05)
        stage.cluster.start_broker(SLAVE)
        async with client.consumer("edge", group="slow") as consumer, asyncio.timeout(60):
            while seen[-1] < stored - 1:
                for message in await consumer.fetch(10):
                    seen.append(int(message.value.split(b" ")[0]))
                    assert seen[-1] == message.offset, "each is what was stored there"
                    message.ack_now()
        assert seen == sorted(set(seen)), "in order, nothing twice"
        jumps = [one for one, later in pairwise(seen) if later != one + 1]
        assert jumps == [seen[0]], "one jump, to what is left; from there on without a hole"
        await stage.cluster.wait_healthy()
        assert (await status(stage, SLAVE)).journal_start > had, "it begins where its master does"
        await stage.flow()
        await equal_journals(stage)


async def one_of(client: fmqclient.Client, topic: str, group: str) -> int:
    """Take the first message of a consumer group and ack it."""
    async with client.consumer(topic, group=group, buffer_bytes=4096) as consumer:
        [first, *_] = await consumer.fetch(1)
        await first.ack()
        await consumer.commit()
    return int(first.value.split(b" ")[0])


async def test_sliding_window_under_a_stalled_slave(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """Data in flight to a stalled slave is bounded by its credit, and so is memory."""
    settings = {
        "credit_bytes": 2 * MIB,
        "tail_cache_bytes": MIB,
        "dead_after_ms": LONG_MS,
        "grant_ms": 800,
        "session_timeout_ms": 30_000,
    }
    async with scenario(tmp_path, zookeeper_server, policy=ALONE, settings=settings) as stage:
        master = psutil.Process(stage.cluster.pid(MASTER))
        await flood(stage, 30, LARGE)  # now the master holds what it holds at most in calm times
        stage.cluster.pause(SLAVE)
        before = master.memory_info().rss
        async with stage.traffic.client.producer() as producer:
            for _ in range(96):
                await producer.send("flood", bytes(LARGE))
        grown = master.memory_info().rss - before
        [replica] = (await status(stage, MASTER)).replicas
        assert replica.lag_bytes > 64 * MIB, "it did stand still"
        assert grown < 32 * MIB, f"the master has grown by {grown >> 20} MiB for 96 that were sent"
        stage.cluster.resume(SLAVE)
        await stage.cluster.wait_healthy()
        await stage.flow()


async def test_idle_heartbeats(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    """Nothing to send for longer than the time to detect a dead link: the link stays up."""
    soon = {"dead_after_ms": 1200}
    async with scenario(tmp_path, zookeeper_server, proxied=True, settings=soon) as stage:
        await stage.stop_consumer()
        stage.traffic.enough.set()
        state, link = await stage.state(), stage.cluster.broker_links[MASTER]
        who = stage.cluster._who_calls
        opened = [writer for writer, at in link._open.items() if who(at.port) == SLAVE]
        assert opened
        await asyncio.sleep(3)  # two and a half times `dead_after_ms`, and nothing is sent
        assert [writer for writer in opened if writer in link._open] == opened
        assert await stage.state() == state
        assert (await status(stage, MASTER)).replicas[0].in_sync
        assert not stage.watch.violations()


async def test_dead_link_then_waiting_producers_get_an_error_at_once(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """A cable is pulled. Without detection the answer would come only with `ack_timeout_ms`."""
    settings = {"dead_after_ms": 1200, "ack_timeout_ms": 10 * LONG_MS}
    async with scenario(tmp_path, zookeeper_server, proxied=True, settings=settings) as stage:
        link = stage.cluster.broker_links[MASTER]
        async with stage.raw(MASTER) as raw:
            link.hold(SLAVE)
            await raw.send(client_pb2.REPLICATED)
            assert await raw.answers() == [UNSURE]
        assert not (await stage.state()).isr, "it left the in-sync set first"
        assert await stage.answer() is ErrorCode.NOT_ENOUGH_REPLICAS, "refused at once"
        stage.heal()
        await stage.cluster.wait_healthy()
        await stage.flow()
        await stage.verdict()


async def test_a_new_empty_slave_fills_up_under_live_traffic(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """Throttled, not counted until it has everything, and no other part notices."""
    throttle = {"learner_bytes_per_s": 8 * MIB}
    late = frozenset(["g1-2"])
    async with scenario(
        tmp_path, zookeeper_server, slaves=2, late=late, settings=throttle
    ) as stage:
        await flood(stage, 12, LARGE)
        epoch, full = (await stage.state()).epoch, (await status(stage, MASTER)).end
        stage.cluster.start_broker("g1-2")
        async with asyncio.timeout(60):
            while "g1-2" not in (await stage.state()).isr:
                await asyncio.sleep(0.05)
        assert (await status(stage, "g1-2")).end >= full, "it counts only once it has all"
        await stage.flow(100)
        await stage.cluster.wait_healthy()
        state = await stage.state()
        assert (state.mode, state.epoch, len(state.isr)) == (Mode.MASTER, epoch, 2)
        await stage.flow()
        await stage.verdict()
        await equal_journals(stage)


async def test_slave_disconnected_in_mid_batch(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """Cut again and again in a flood of batches that are larger than one socket read."""
    async with scenario(tmp_path, zookeeper_server, proxied=True, policy=ALONE) as stage:
        link, pid = stage.cluster.broker_links[MASTER], stage.cluster.pid(SLAVE)
        flooding = asyncio.create_task(flood(stage, 48, MIB // 2))
        for _ in range(8):
            had = (await status(stage, SLAVE)).end
            async with asyncio.timeout(60):
                while (await status(stage, SLAVE)).end == had and not flooding.done():
                    await asyncio.sleep(0.005)
            link.cut(SLAVE)
            link.resume(SLAVE)
        await flooding
        await stage.cluster.wait_healthy()
        assert stage.cluster.pid(SLAVE) == pid
        assert stage.cluster.alive(SLAVE)
        await stage.flow()
        await stage.verdict()
        await equal_journals(stage)


async def test_ack_all_with_one_slave_away(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """Waiting sends fail at once; then the in-sync set is enough, but not for `strict`."""
    policy = AckPolicy(how_many=HowMany.ALL)
    settings = {"ack_timeout_ms": 10 * LONG_MS}
    async with scenario(
        tmp_path, zookeeper_server, slaves=2, policy=policy, settings=settings
    ) as stage:
        stage.cluster.pause("g1-2")
        async with stage.raw(MASTER) as raw:
            await raw.send(client_pb2.REPLICATED)
            await stage.kill("g1-2")  # its link breaks: no send waits for a timeout
            assert await raw.answers() in ([UNSURE], [ErrorCode.OK])  # OK: of the slaves left
        await stage.until_state(lambda s: s.isr == {SLAVE}, "it is out of the in-sync set")
        assert await stage.answer() is ErrorCode.OK
        config = await stage.cluster.groups.config("g1")
        strict = replace(config, policy=replace(policy, strict=True))
        await stage.cluster.groups.put_config(strict)
        async with asyncio.timeout(60):
            while (code := await stage.answer()) is ErrorCode.OK:
                pass  # the master has not seen it yet
        assert code in (ErrorCode.NOT_ENOUGH_REPLICAS, UNSURE)
        assert await stage.answer() is ErrorCode.NOT_ENOUGH_REPLICAS, "refused at once"
        stage.cluster.start_broker("g1-2")
        await stage.cluster.wait_healthy()
        await stage.serves(MASTER, FULL)
        await stage.flow()
        await stage.verdict()
