"""`python -m bench.ordered`: ordered topics beside an ordinary one, and the pauses of switches.

A cluster of three groups, each a master and a slave, in a process each; fsync on both before
each ack. `rate`: ordinary and ordered sends in turns, pipelined and one at a time. `single`: what
one send waits for, beside what the machine itself takes for its parts. `pauses`: the time without
an ack while sends are pipelined, when the slave or the master of the sending group is killed, and
at a planned switch. Medians and the highest percentiles that the number of tries shows.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer

import fmqclient
from bench.load import cpu_s
from bench.raw import fdatasync_per_s, round_trips_per_s
from fmqclient.client import Client
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

GROUPS: Final = ("g1", "g2", "g3")
SIZE: Final = 1024
WINDOW: Final = 128
_DURABLE: Final = AckPolicy(Flush.FSYNC, counts=SlaveCounts.DURABLE, how_many=HowMany.ALL)
_SETTLE_S: Final = 1.0
_AROUND_S: Final = 8.0

Send = Callable[[bytes], "asyncio.Future[Any]"]
Work = Callable[[DevCluster, Client], Awaitable[None]]
app = typer.Typer(help=__doc__)


@app.command()
def rate(
    seconds: Annotated[float, typer.Option(help="seconds of each turn")] = 5.0,
    turns: Annotated[int, typer.Option(help="number of turns of each kind")] = 5,
) -> None:
    """Compare the rates of ordered and ordinary sends, in turns."""
    asyncio.run(_with_topics(lambda _, client: _rates(client, seconds, turns)))


@app.command()
def pauses(
    tries: Annotated[int, typer.Option(help="number of switches of each kind")] = 10,
) -> None:
    """Measure the longest time without an ack around a switch."""
    asyncio.run(_with_topics(lambda cluster, client: _pauses(cluster, client, tries)))


@app.command()
def single(
    seconds: Annotated[float, typer.Option(help="seconds of each turn")] = 3.0,
    turns: Annotated[int, typer.Option(help="number of turns of each kind")] = 5,
) -> None:
    """Show what one ordered send waits for, if the next waits for its ack."""
    asyncio.run(_with_topics(lambda cluster, client: _single(cluster, client, seconds, turns)))


async def on_cluster(options: ClusterOptions, work: Work) -> None:
    """Do the work on a new cluster."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            DevCluster(Path(folder), options) as cluster,
            fmqclient.connect(cluster.url, name="bench") as client,
        ):
            await work(cluster, client)


async def _with_topics(work: Work) -> None:
    async def prepared(cluster: DevCluster, client: Client) -> None:
        await client.admin().create_topic("plain", queues=1, groups=["g1"])
        await client.admin().ordered.create("chain", list(GROUPS))
        await work(cluster, client)

    options = ClusterOptions(cluster="bench", groups=len(GROUPS), policy=_DURABLE)
    await on_cluster(options, prepared)


# ---- rates
async def _rates(client: Client, seconds: float, turns: int) -> None:
    value = bytes(SIZE)
    found: dict[str, list[float]] = {}
    async with (
        client.producer(linger_ms=0) as plain,
        client.ordered_producer("chain", name="bench") as chain,
    ):
        kinds: dict[str, Send] = {
            "ordinary": lambda value: plain.send_nowait("plain", value),
            "ordered": chain.send_nowait,
        }
        for turn in range(turns + 1):  # the first one warms up
            for kind, send in kinds.items():
                for way, window in (("pipelined", WINDOW), ("one at a time", 1)):
                    sent = await _send_for(send, value, window, seconds)
                    if turn:
                        found.setdefault(f"{kind}, {way}", []).append(sent / seconds)
    for name, rates in found.items():
        low, high = min(rates), max(rates)
        print(f"{name:24} {statistics.median(rates):10,.0f}/s  ({low:,.0f} to {high:,.0f})")


async def _send_for(send: Send, value: bytes, window: int, seconds: float) -> int:
    """Keep `window` records without an ack for `seconds`; return how many were acknowledged."""
    until_s, done = time.monotonic() + seconds, 0
    waiting: set[asyncio.Future[Any]] = set()
    while time.monotonic() < until_s:
        while len(waiting) < window:
            waiting.add(send(value))
        ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done += len(ended)
    await asyncio.gather(*waiting)
    return done


# ---- one at a time
async def _single(cluster: DevCluster, client: Client, seconds: float, turns: int) -> None:
    """In turns: a send; a bare round trip between two processes; a bare fdatasync."""
    value, found, used = bytes(SIZE), dict[str, list[float]](), dict[str, float]()
    async with client.ordered_producer("chain", name="bench") as producer:
        pids = await _pids(cluster, client)
        for turn in range(turns + 1):  # the first one warms up
            before = {name: cpu_s(psutil.Process(pid)) for name, pid in pids.items()}
            sent = await _send_for(producer.send_nowait, value, 1, seconds)
            for name, pid in pids.items():
                used[name] = (cpu_s(psutil.Process(pid)) - before[name]) / sent * 1000
            rates = {
                "one ordered send": sent / seconds,
                "a bare gRPC round trip": await round_trips_per_s(SIZE, seconds),
                "a bare fdatasync": await asyncio.to_thread(
                    fdatasync_per_s, cluster.directory / "raw.bin", SIZE, seconds
                ),
            }
            for name, rate in rates.items() if turn else ():
                found.setdefault(name, []).append(1000 / rate)
    for name, times_ms in found.items():
        print(f"{name:24} {statistics.median(times_ms):6.2f} ms  "
              f"({min(times_ms):.2f} to {max(times_ms):.2f})")  # fmt: skip
    for name, cpu_ms in used.items():
        print(f"processor of the {name:8} {cpu_ms:6.2f} ms for each send, in the last turn")


async def _pids(cluster: DevCluster, client: Client) -> dict[str, int]:
    """Return the processes that a send goes through, by their part in it."""
    (topic,) = await client.admin().ordered.status("chain")
    assert topic.chain.last is not None
    group = topic.chain.last.group
    master = (await cluster.groups.state(group)).master
    brokers = {plan.id: cluster.pid(plan.id) for plan in cluster.group(group)}
    parts = {"master" if each == master else "slave": pid for each, pid in brokers.items()}
    return {"client": os.getpid()} | parts


# ---- pauses
async def _pauses(cluster: DevCluster, client: Client, tries: int) -> None:
    async with client.ordered_producer("chain", name="bench") as producer:
        acked: list[float] = []
        stop = asyncio.Event()
        sending = asyncio.create_task(_send_on(producer.send_nowait, acked, stop))
        for kind in ("slave killed", "master killed", "planned"):
            found = [await _pause(cluster, client, kind, acked) for _ in range(tries)]
            ranked = sorted(found)
            p99 = ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
            print(
                f"{kind:16} median {statistics.median(found):7,.0f} ms, p99 {p99:7,.0f} ms, "
                f"of {tries}: {', '.join(f'{pause:,.0f}' for pause in ranked)}",
                flush=True,
            )
        stop.set()
        await sending


async def _send_on(send: Send, acked: list[float], stop: asyncio.Event) -> None:
    waiting: set[asyncio.Future[Any]] = set()
    while not stop.is_set():
        while len(waiting) < WINDOW:
            waiting.add(send(bytes(SIZE)))
        ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for future in ended:
            future.result()
        acked.append(time.monotonic())
        await asyncio.sleep(0.005)
    await asyncio.gather(*waiting)


async def _pause(cluster: DevCluster, client: Client, kind: str, acked: list[float]) -> float:
    """Cause one switch; return the longest time without an ack around it, in milliseconds."""
    await cluster.wait_healthy()
    await asyncio.sleep(_SETTLE_S)
    (topic,) = await client.admin().ordered.status("chain")
    last = topic.chain.last
    assert last is not None
    from_s, killed = time.monotonic(), ""
    if kind == "planned":
        await client.admin().ordered.switch("chain", reason="measured")
    else:
        master = (await cluster.groups.state(last.group)).master
        members = [plan.id for plan in cluster.group(last.group)]
        killed = next(m for m in members if (m == master) == (kind == "master killed"))
        cluster.kill(killed)
    await asyncio.sleep(_AROUND_S)
    moments = [from_s, *(moment for moment in acked if moment > from_s)]
    longest_s = max((b - a for a, b in pairwise(moments)), default=_AROUND_S)
    if killed:
        cluster.start_broker(killed)
    return longest_s * 1000


if __name__ == "__main__":
    app()
