"""`python -m bench.ordered_many`: many ordered topics, and a chain with many past segments.

A cluster of two groups, each a master and a slave, in a process each. `lost`: each topic has one
sender; both brokers of the group that takes the sends are killed, and the time is measured until
each topic has an ack again. `idle`: the processor time of the brokers while all topics are open and
no sender sends, beside the same brokers before the first topic. `past`: the chain and a new
consumer after many switches.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Final

import psutil
import typer

from bench.load import cpu_s
from bench.ordered import Work, on_cluster
from fmqclient.client import Client
from fmqclient.producer.ordered import OrderedProducer
from fmqcore.ids import GroupName
from fmqcore.zk.chain_json import chain_to_json
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

GROUPS: Final = ("g1", "g2")
_AT_ONCE: Final = 32

Topics = Annotated[int, typer.Option(help="number of ordered topics")]
app = typer.Typer(help=__doc__)


@app.command()
def lost(topics: Topics = 1000) -> None:
    """Measure how long the sends of all topics need to leave a group that is lost."""
    asyncio.run(_with_cluster(lambda cluster, client: _lost(cluster, client, topics)))


@app.command()
def idle(
    topics: Topics = 1000,
    seconds: Annotated[float, typer.Option(help="seconds of each measurement")] = 20,
) -> None:
    """Measure what open topics without sends cost."""
    asyncio.run(_with_cluster(lambda cluster, client: _idle(cluster, client, topics, seconds)))


@app.command()
def past(switches: Annotated[int, typer.Option(help="number of planned switches")] = 300) -> None:
    """Measure a chain with many past segments."""
    asyncio.run(_with_cluster(lambda _, client: _past(client, switches)))


async def _with_cluster(work: Work) -> None:
    await on_cluster(ClusterOptions(cluster="bench", groups=len(GROUPS)), work)


# ---- many topics
async def _open(client: Client, stack: AsyncExitStack, count: int) -> list[OrderedProducer]:
    """Create the topics; return a sender of each, which has sent one record."""
    started_s = time.monotonic()
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> OrderedProducer:
        async with slots:
            name = f"changes-{number}"
            await client.admin().ordered.create(name, list(GROUPS))
            producer = client.ordered_producer(name, name="bench")
            await stack.enter_async_context(producer)
            await producer.send(b"first")
            return producer

    producers = await asyncio.gather(*(one(number) for number in range(count)))
    print(f"{count} topics opened in {time.monotonic() - started_s:.1f} s", flush=True)
    return list(producers)


async def _lost(cluster: DevCluster, client: Client, count: int) -> None:
    async with AsyncExitStack() as stack:
        producers = await _open(client, stack, count)
        groups = Counter(
            topic.chain.last.group
            for topic in await client.admin().ordered.status()
            if topic.chain.last is not None
        )
        group = max(groups, key=lambda name: groups[name])
        print(f"open segments: {dict(groups)}; {group} is killed", flush=True)
        for plan in cluster.group(group):
            cluster.kill(plan.id)
        waits = await _time_acks(producers)
        ranked = sorted(waits)
        print(
            f"an ack again after: median {statistics.median(ranked):.1f} s, "
            f"p99 {ranked[int(len(ranked) * 0.99)]:.1f} s, last {ranked[-1]:.1f} s "
            f"({groups[GroupName(group)]} topics had to leave {group})",
            flush=True,
        )


async def _time_acks(producers: Sequence[OrderedProducer]) -> list[float]:
    from_s = time.monotonic()

    async def one(producer: OrderedProducer) -> float:
        await producer.send(b"after")
        return time.monotonic() - from_s

    return list(await asyncio.gather(*map(one, producers)))


async def _idle(cluster: DevCluster, client: Client, count: int, seconds: float) -> None:
    before = await _busy(cluster, seconds)
    async with AsyncExitStack() as stack:
        await _open(client, stack, count)
        await asyncio.sleep(seconds / 2)
        after = await _busy(cluster, seconds)
    for broker, share in before.items():
        print(f"{broker}: {share * 100:.1f} % of a core without topics, {after[broker] * 100:.1f} "
              f"% with {count} open ones")  # fmt: skip


async def _busy(cluster: DevCluster, seconds: float) -> dict[str, float]:
    """Return the share of a core that each broker uses, within `seconds`."""
    brokers = [plan.id for name in GROUPS for plan in cluster.group(name)]
    processes = {broker: psutil.Process(cluster.pid(broker)) for broker in brokers}
    before = {broker: cpu_s(process) for broker, process in processes.items()}
    await asyncio.sleep(seconds)
    return {b: (cpu_s(process) - before[b]) / seconds for b, process in processes.items()}


# ---- many segments
async def _past(client: Client, switches: int) -> None:
    admin = client.admin().ordered
    await admin.create("changes", list(GROUPS))
    async with client.ordered_producer("changes", name="bench") as producer:
        started_s = time.monotonic()
        for number in range(switches):
            await producer.send(b"%d" % number)
            await admin.switch("changes", reason="measured")
        await producer.send(b"last")
        spent_s = time.monotonic() - started_s
        (topic,) = await admin.status("changes")
        chain = topic.chain
        started_s = time.monotonic()
        async with client.consumer("changes", group="new", start="latest") as consumer:
            while not await consumer.fetch(1, 0.05):
                await producer.send(b"seen")
        opened_s = time.monotonic() - started_s
    assert chain.last is not None
    print(
        f"{switches} switches in {spent_s:.1f} s; the chain is at segment {chain.last.number}, "
        f"holds {len(chain.segments)} of them in {len(chain_to_json(chain))} bytes; a new consumer "
        f"got its first record after {opened_s:.2f} s"
    )


if __name__ == "__main__":
    app()
