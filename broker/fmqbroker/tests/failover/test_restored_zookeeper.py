"""ZooKeeper restored from an older backup: states that contradict the journals are refused."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fmqclient
from fmqbroker.tests.restored_kit import G1, M, Restorable, S, T, restorable
from fmqcore.ids import BrokerId
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_state import GroupState, Mode

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]

EARLY = [b"early-%d" % n for n in range(8)]
LATE = [b"late-%d" % n for n in range(24)]
AUDIT = [b"audit-%d" % n for n in range(8)]


async def fmq(cluster: Restorable, *arguments: str) -> tuple[int, str]:
    """Run a command as a person would; return its exit status and output."""
    names = {"FMQ_ZOOKEEPER": cluster.zookeeper, "FMQ_CLUSTER": "c", "FMQ_BROKERS": cluster.url}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fmqcli.main",
        *arguments,
        env=os.environ | names,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def go_on(cluster: Restorable) -> GroupState:
    """Change things after the backup: topics, a failover, other settings."""
    async with fmqclient.connect(cluster.url) as client:
        await client.admin().create_topic("audit", queues=2)
        await client.admin().delete_topic("orders")
    assert (await fmq(cluster, "topic", "alter", "salaries", "--queues", "4"))[0] == 0
    await cluster.send("salaries", *LATE)
    await cluster.send("audit", *AUDIT)
    await cluster.brokers[M].stop(9)  # type: ignore[arg-type]
    await cluster.until_state(lambda s: s.reader == S)
    assert len(await cluster.read("salaries", 32, "billing")) == 32
    await cluster.start(M)
    await cluster.groups.put_config(replace(cluster.config, strict_takeover=True))
    return await cluster.whole()


async def start_with_backup(cluster: Restorable) -> GroupState:
    """Start the group as it was, on the older ZooKeeper."""
    async with fmqclient.connect(cluster.url) as client:
        for topic in ("salaries", "orders"):
            await client.admin().create_topic(topic, queues=2)
    await cluster.send("salaries", *EARLY)
    await cluster.send("orders", b"order")
    copy = await cluster.backup()
    await cluster.whole()
    last = await go_on(cluster)
    await cluster.stop()
    await cluster.restore(copy)
    return last


async def test_a_restored_backup_is_refused_then_mended(tmp_path: Path) -> None:
    async with restorable(tmp_path) as cluster:
        last = await start_with_backup(cluster)
        await cluster.start(S)
        await begin_again_is_named(cluster, S)
        await cluster.start(M)
        await begin_again_is_named(cluster, M)
        old = await cluster.groups.state(G1)
        code, printed = await fmq(cluster, "cluster", "begin-again", "g1")
        assert (code, f"--epoch {old.epoch}" in printed) == (64, True), printed
        code, printed = await fmq(
            cluster, "cluster", "begin-again", "g1", "--epoch", str(old.epoch)
        )
        assert code == 0, printed
        assert (await cluster.whole()).epoch > last.epoch
        await all_is_back(cluster)


async def begin_again_is_named(cluster: Restorable, broker: BrokerId) -> None:
    """Check that a broker serves and changes nothing, and names the remedy."""
    refused = await cluster.until_status(broker, lambda s: "newer epoch" in s.reason)
    assert "fmq cluster begin-again g1" in refused.reason
    assert refused.permission == 0


async def let_the_second_slave_read(cluster: Restorable) -> None:
    """Stop the master, then the slave that it gave the reads to: the other slave takes over.

    On a busy machine the master may choose either slave, and may have dropped the other from the
    in-sync set just before.
    """
    while True:
        await cluster.whole()
        await cluster.stop(M)
        first = await cluster.until_state(lambda s: s.reader in (S, T))
        other = {S: T, T: S}[first.reader]
        if other in first.isr:
            break
        await cluster.start(M)
    await cluster.stop(first.reader)
    await cluster.until_state(lambda s: (s.mode, s.reader) == (Mode.SLAVE_CONSUME, other))


@pytest.mark.parametrize("reading", [False, True], ids=["as it stops", "while a slave reads"])
async def test_a_backup_from_before_a_promotion(tmp_path: Path, *, reading: bool) -> None:
    """The master of the backup has an old journal: it must not open beside the newer ones."""
    async with restorable(tmp_path, brokers=3) as cluster:
        async with fmqclient.connect(cluster.url) as client:
            await client.admin().create_topic("salaries", queues=4)
        await cluster.send("salaries", *EARLY)
        if reading:
            await let_the_second_slave_read(cluster)
        copy = await cluster.backup()
        await cluster.whole()
        await cluster.brokers[M].stop(9)  # type: ignore[arg-type]
        taken = await cluster.until_state(lambda s: s.reader not in ("", M))
        code, printed = await fmq(cluster, "failover", "g1", "--to", taken.reader, "--lost", M)
        assert code == 0, printed
        await cluster.until_state(lambda s: s.master == taken.reader and not s.required_epoch)
        sent = await cluster.send("salaries", *LATE)
        last = await cluster.groups.state(G1)
        await cluster.stop()
        await cluster.restore(copy)
        await cluster.start(S, T)
        await begin_again_is_named(cluster, S)
        await cluster.start(M)
        await begin_again_is_named(cluster, M)
        old = await cluster.groups.state(G1)
        assert (await fmq(cluster, "cluster", "begin-again", "g1", "--epoch", str(old.epoch)))[
            0
        ] == 0
        assert (await cluster.whole()).epoch > last.epoch
        read = await cluster.read("salaries", 32, "readers")
        assert set(read) == {*EARLY, *LATE}
        assert [read[value] for value in LATE] == [(r.queue, r.offset) for r in sent]


async def test_group_starts_again_while_serving(tmp_path: Path) -> None:
    """Nothing is lost and nothing is stored twice, although the command was not needed."""
    async with restorable(tmp_path) as cluster:
        async with fmqclient.connect(cluster.url) as client:
            await client.admin().create_topic("salaries", queues=2)
            before = await cluster.groups.state(G1)
            async with client.producer() as producer:
                sends = []
                for number in range(300):
                    sends.append(asyncio.create_task(producer.send("salaries", b"%d" % number)))
                    if number == 100:
                        code, printed = await fmq(
                            cluster, "cluster", "begin-again", "g1", "--epoch", str(before.epoch)
                        )
                        assert code == 0, printed
                    await asyncio.sleep(0.01)
                stored = [await send for send in sends]
        assert (await cluster.whole()).epoch > before.epoch
        read = await cluster.read("salaries", 300, "readers")
        assert [read[b"%d" % n] for n in range(300)] == [(s.queue, s.offset) for s in stored]
        assert len(set(read.values())) == 300


async def test_a_backup_of_the_same_epoch(tmp_path: Path) -> None:
    """No broker can detect its too wide in-sync set: the group starts again first."""
    async with restorable(tmp_path) as cluster:
        alone = replace(cluster.config, policy=AckPolicy(how_many=HowMany.NONE))
        await cluster.groups.put_config(alone)
        async with fmqclient.connect(cluster.url) as client:
            await client.admin().create_topic("salaries", queues=2)
        await cluster.send("salaries", *EARLY)
        before = await cluster.whole()
        copy = cluster.backup_while_running()
        await cluster.stop(S)
        await cluster.until_state(lambda s: not s.isr)
        await cluster.send("salaries", *LATE)
        await cluster.brokers[M].stop(9)  # type: ignore[arg-type]
        await cluster.restore(copy)
        restored = await cluster.groups.state(G1)
        assert (restored.epoch, restored.isr) == (before.epoch, frozenset({S})), (
            "S lacks the late ones"
        )
        code, printed = await fmq(
            cluster, "cluster", "begin-again", "g1", "--epoch", str(restored.epoch)
        )
        assert code == 0, printed
        await cluster.start(S)
        async with asyncio.timeout(300):
            while set(await cluster.groups.live(G1)) != {S}:
                await asyncio.sleep(0.05)
        waits = await cluster.until_status(S, lambda s: s.mode == "NEW" and bool(s.reason))
        assert waits.permission == 0
        await cluster.start(M)
        assert (await cluster.whole()).master == M
        assert set(await cluster.read("salaries", 32, "readers")) == {*EARLY, *LATE}


async def all_is_back(cluster: Restorable) -> None:
    async with fmqclient.connect(cluster.url) as client:
        made = await client.admin().create_topic("audit", queues=2)
        assert made.id == 3, "its own number"
        (lag,) = {row.lag for row in await client.admin().lag("billing") if row.topic == "salaries"}
        assert lag == 0, "what was consumed stays consumed"
    again = await cluster.read("audit", len(AUDIT), "auditors")
    assert set(again) == set(AUDIT)
    read = await cluster.read("salaries", 32, "readers")
    assert set(read) == {*EARLY, *LATE}
    places = [(queue, offset) for queue, offset in read.values()]
    assert len(set(places)) == 32
    assert {queue for queue, _ in places} == {0, 1, 2, 3}
    for result in await cluster.send("salaries", *(b"new-%d" % n for n in range(16))):
        assert (result.queue, result.offset) not in places
