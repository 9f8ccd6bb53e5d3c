"""An ordered topic, archived and sent to another ordered topic by real brokers, through kills."""

import asyncio
import signal
from pathlib import Path

import pytest

import fmqclient
from fmqcore.policy import AckPolicy, HowMany
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqspark.tests.test_replay import fmq, rows_noted, start, stored_and_not_noted

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(300)]
COUNT = 24_000
Rows = list[tuple[bytes, bytes | None, bytes | None, dict[str, bytes]]]


async def fill(client: fmqclient.Client) -> None:
    """Send to both queues, over a switch, and end the last segment."""
    ordered = client.admin().ordered
    for topic in ("changes", "copy"):
        await ordered.create(topic, ["g1", "g2"], queues=2, allow_single=True)
    async with client.ordered_producer("changes", name="copier") as p:
        for half in range(2):
            for n in range(half * COUNT // 2, (half + 1) * COUNT // 2):
                p.send_nowait(b"%d" % n, key=b"%d" % (n % 5), headers={"n": str(n)}, tag=b"t")
            await p.flush()
            await ordered.switch("changes", reason="a test")


async def consumed(client: fmqclient.Client, topic: str) -> list[Rows]:
    """Return the records by queue; no more than `COUNT` may come."""
    queues: list[Rows] = [[], []]
    async with client.consumer(topic, group="check") as consumer:
        while fetched := await consumer.fetch(timeout=60 if sum(map(len, queues)) < COUNT else 1):
            for m in fetched:
                queues[m.queue].append((m.value, m.key, m.tag, dict(m.headers)))
                await m.ack()
    return queues


async def archived(cluster: DevCluster, folder: Path, chain: Path) -> None:
    """Archive all that has ended: the checkpoint of a broker learns the commit end late."""
    members = [f"{name[:2]}={b.directory / 'data'}" for name, b in cluster.brokers.items()]
    command = ("job", "archive", "--chain", chain, *members, "--out", folder)
    for _ in range(100):
        code, output = await fmq(cluster.url, *command)
        if code == 0:
            return
        await asyncio.sleep(0.5)
    pytest.fail(output)


async def test_killed_replay_into_an_ordered_topic(tmp_path: Path, zookeeper: str) -> None:
    options = ClusterOptions(
        groups=2, slaves=0, policy=AckPolicy(how_many=HowMany.NONE), zookeeper=zookeeper
    )
    folder = tmp_path / "archive"
    async with DevCluster(tmp_path / "dev", options) as cluster:
        async with fmqclient.connect(cluster.url) as client:
            await fill(client)
        code, status = await fmq(cluster.url, "ordered", "status", "changes", "-o", "json")
        assert code == 0, status
        chain = tmp_path / "chain.json"
        chain.write_text(status)
        await archived(cluster, folder, chain)

        again = ("job", "replay", folder, "--topic", "changes", "--to", "copy")
        progress = folder / "_fmq" / "replay-all-changes-to-copy.json"
        code, output = await fmq(cluster.url, *again, "--acks", "all")
        assert (code, "topic copy is ordered" in output) == (64, True), output
        noted = -1
        for _ in range(2):
            killed = await start(cluster.url, *again)
            while killed.returncode is None and rows_noted(progress) <= noted:
                await asyncio.sleep(0.001)
            assert killed.returncode is None, "it is killed before its end"
            killed.send_signal(signal.SIGKILL)
            await killed.communicate()
            noted = rows_noted(progress)
        await stored_and_not_noted(folder, cluster.url, "changes")
        code, output = await fmq(cluster.url, *again)
        assert code == 0, output
        code, output = await fmq(cluster.url, *again)
        assert (code, f"0 records stored in copy; {COUNT:,} were before" in output) == (0, True)
        async with fmqclient.connect(cluster.url) as client:
            sent, came = await consumed(client, "changes"), await consumed(client, "copy")
    assert sum(map(len, sent)) == COUNT
    assert came == sent
