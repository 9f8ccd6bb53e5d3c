"""Failover on a real ZooKeeper under random kills, stops and cuts, then calm."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from fmqbroker.tests.failover_harness import M, Net, Node, S, T, group_of, until, whole
from fmqcore.errors import FmqError
from fmqcore.ids import Permission

pytestmark = pytest.mark.processes

FULL, READ = Permission.FULL, Permission.READ


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_trouble_then_calm(zookeeper: str, tmp_path: Path, seed: int) -> None:
    """Random kills, stops and cuts of both kinds: never two readers, in the end all is whole."""
    chance = random.Random(seed)
    async with group_of(zookeeper, tmp_path, M, S, T) as net:
        await whole(net, S, T)
        consumer = asyncio.create_task(consume(net))
        for _ in range(12):
            await trouble(net, chance)
            await asyncio.sleep(chance.uniform(0, 1.2))
        net.unlinked.clear()
        for broker in (M, S, T):
            await net.proxies[broker].mend()
            if not net.nodes[broker].alive:
                await Node(net, broker).start()
        await until(lambda: net.nodes[M].serves is FULL)
        await until(lambda: net.nodes[M].state.isr == {S, T}, "all are in sync again")
        consumer.cancel()
        await asyncio.gather(consumer, return_exceptions=True)
        assert net.terms == sorted(net.terms, key=lambda t: t[1])


async def trouble(net: Net, chance: random.Random) -> None:
    """Cause one fault, or repair one."""
    node = net.nodes[chance.choice((M, S, T))]
    match chance.choice(("kill", "stop", "start", "start", "cut", "mend", "unlink", "link")):
        case "kill" if node.alive:
            await node.kill()
        case "stop" if node.alive:
            await node.stop()
        case "start" if not node.alive:
            await Node(net, node.me).start()
        case "cut":
            await node.proxy.cut()
        case "mend":
            await node.proxy.mend()
        case "unlink" if node.me != M:
            net.unlinked.add(node.me)
        case "link":
            net.unlinked.clear()
        case _:
            pass


async def consume(net: Net) -> None:
    """Advance a consumer's progress wherever reads are served."""
    version = 1
    while True:
        for node in list(net.nodes.values()):
            if node.serves & READ:
                version += 1
                with suppress(FmqError, TimeoutError):
                    async with asyncio.timeout(1):
                        await node.ack(version, version)
        await asyncio.sleep(0.02)
