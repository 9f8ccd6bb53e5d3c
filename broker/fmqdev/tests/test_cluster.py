"""A development cluster of real processes: up, faults, down, and nothing left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

import fmqclient
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_state import Mode
from fmqdev.broker_process import broker_command
from fmqdev.cluster import ClusterFailed, DevCluster
from fmqdev.cluster_plan import ClusterOptions, read_file

pytestmark = pytest.mark.processes

ALONE = AckPolicy(how_many=HowMany.NONE)
SMALL = {"segment_bytes": 1 << 20}


def fmq(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fmqcli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


def processes_of(directory: Path) -> list[psutil.Process]:
    """Return the live processes that the state file names."""
    file = read_file(directory)
    found = []
    for known in file.processes if file else []:
        try:
            process = psutil.Process(known.pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.05)


async def send_and_read(url: str) -> bytes:
    async with fmqclient.connect(url) as client:
        await client.admin().create_topic("orders", queues=2, if_not_exists=True)
        async with client.producer() as producer:
            await producer.send("orders", b"hello", key=b"42")
        async with client.consumer("orders", group="billing") as consumer:
            async for message in consumer:
                await message.ack()
                return message.value
    raise AssertionError("unreachable")


def one_broker_comes_and_goes(here: tuple[str, str]) -> None:
    """After a manual kill -9: start, kill, start, restart, stop; each reports what it finds."""
    for command, broker, code, message in (
        ("start", "g1-1", 0, "g1-1 runs, process"),
        ("start", "g1-1", 69, "runs already"),
        ("kill", "g1-1", 0, "is killed"),
        ("kill", "g1-1", 69, "fmq dev start g1-1"),
        ("restart", "g1-1", 0, "runs"),
        ("stop", "g1-1", 0, "is stopped"),
        ("start", "g9-0", 64, "there are: g1-0, g1-1"),
    ):
        done = fmq("dev", command, broker, *here)
        assert (done.returncode, message in done.stderr) == (code, True), (command, done.stderr)


def started_by_hand(directory: Path, here: tuple[str, str]) -> "subprocess.Popen[bytes]":
    """A broker not started by `fmq dev` is still recognised."""
    known = DevCluster.attach(directory)
    assert known is not None
    command = broker_command(known.options, known.brokers["g1-1"])
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until_s:
        if asyncio.run(known.broker_status("g1-1")) is not None:
            break
        known = DevCluster.attach(directory)
        assert known is not None
    status = json.loads(fmq("dev", "status", "-o", "json", *here).stdout)
    assert (status[1]["pid"], status[1]["role"]) == (process.pid, "slave")
    return process


def test_cluster_goes_up_down_and_up_again(tmp_path: Path) -> None:
    """As a developer would; one group, to be quick."""
    here = ("--dir", str(tmp_path / "dev"))
    up = fmq("dev", "up", "--groups", "1", "--port", "0", "--set", "segment_bytes=1048576", *here)
    assert up.returncode == 0, up.stderr
    url = up.stdout.strip()
    try:
        assert asyncio.run(send_and_read(url)) == b"hello"
        again = fmq("dev", "up", "--groups", "1", *here)
        assert (again.returncode, again.stdout.strip()) == (0, url), "what was wanted is there"
        assert "is up already" in again.stderr
        other = fmq("dev", "up", "--groups", "2", *here)
        assert (other.returncode, other.stdout) == (69, "")
        assert "runs in" in other.stderr

        status = json.loads(fmq("dev", "status", "-o", "json", *here).stdout)
        assert [(b["broker"], b["role"], b["permission"]) for b in status] == [
            ("g1-0", "master", "FULL"),
            ("g1-1", "slave", "NONE"),
        ]
        os.kill(status[1]["pid"], signal.SIGKILL)
        psutil.wait_procs([psutil.Process(status[1]["pid"])], timeout=30)
        status = json.loads(fmq("dev", "status", "-o", "json", *here).stdout)
        assert (status[1]["pid"], status[1]["reason"]) == (None, "ended")
        one_broker_comes_and_goes(here)
        by_hand = started_by_hand(tmp_path / "dev", here)
    finally:
        down = fmq("dev", "down", *here)
    assert down.returncode == 0, down.stderr
    assert not processes_of(tmp_path / "dev")
    assert by_hand.wait(30) == 0, "it was not stopped in order"
    ended = fmq("dev", "status", *here)
    assert ended.returncode == 69
    assert "fmq dev up --groups 1 --slaves 1 --dir" in ended.stderr.replace("\n", " ")

    other_shape = fmq("dev", "up", "--groups", "2", *here)
    assert other_shape.returncode == 69
    assert "--wipe" in other_shape.stderr
    up = fmq("dev", "up", "--groups", "1", "--port", "0", *here)
    try:
        assert up.stdout.strip() == url  # the same port, which is free again
        topics = fmq("topic", "list", "-o", "json", "--brokers", url)
        assert [topic["name"] for topic in json.loads(topics.stdout)] == ["orders"]
    finally:
        fmq("dev", "down", "--wipe", *here)
    assert not (tmp_path / "dev").exists()


async def test_faults_of_one_group(tmp_path: Path) -> None:
    """The brokers notice each kind of fault, and recover."""
    options = ClusterOptions(groups=1, settings=SMALL, proxied=True)
    async with DevCluster(tmp_path / "c", options) as cluster:
        assert await send_and_read(cluster.url) == b"hello"

        # The slave is cut from its master; clients of the same address keep their connections.
        cluster.broker_links["g1-0"].cut("g1-1")

        async def out_of_sync() -> bool:
            return not (await cluster.groups.state("g1")).isr

        await until(out_of_sync)
        async with fmqclient.connect(cluster.url) as client:
            assert [t.name for t in await client.admin().topics()] == ["orders"]
        cluster.broker_links["g1-0"].resume("g1-1")
        await cluster.wait_healthy()

        # A stopped process exists but does not answer.
        cluster.pause("g1-1")
        assert cluster.alive("g1-1")
        assert await cluster.broker_status("g1-1") is None
        cluster.resume("g1-1")
        await cluster.wait_healthy()

        # The master is cut from ZooKeeper and loses its ephemeral node there.
        cluster.zookeeper_links["g1-0"].cut()

        async def announced() -> bool:
            return "g1-0" in await cluster.groups.live("g1")

        async def gone() -> bool:
            return not await announced()

        await until(gone)
        cluster.zookeeper_links["g1-0"].resume()
        await until(announced)
        await cluster.wait_healthy()

        # With the master dead, its slave serves the reads.
        cluster.kill("g1-0")
        assert await cluster.ended("g1-0")

        async def taken_over() -> bool:
            reply = await cluster.broker_status("g1-1")
            return reply is not None and bool(reply.permission & Permission.READ)

        await until(taken_over)
        assert (await cluster.groups.state("g1")).mode is Mode.SLAVE_CONSUME
        with pytest.raises(ClusterFailed, match="g1-0 has ended with status -9"):
            await cluster.wait_healthy()
        cluster.start_broker("g1-0")
        await cluster.wait_healthy()
    assert not processes_of(tmp_path / "c")


async def test_cluster_on_an_external_ensemble(tmp_path: Path, zookeeper: str) -> None:
    """It is used as it is; wiping removes only what the cluster left in it."""
    options = ClusterOptions(groups=1, slaves=0, zookeeper=zookeeper, policy=ALONE)
    async with DevCluster(tmp_path / "c", options) as cluster:
        assert await send_and_read(cluster.url) == b"hello"
    session = ZooKeeperSession(zookeeper, timeout_ms=4000)
    await session.start(30)
    try:
        await session.create("/fmq/other/groups", b"", make_parents=True)
        assert await session.children("/fmq") == ["dev", "other"]
        await cluster.wipe()
        assert await session.children("/fmq") == ["other"]
        assert not (tmp_path / "c").exists()
    finally:
        await session.close()


async def test_broker_that_cannot_start_is_reported_with_its_log(
    tmp_path: Path, zookeeper: str
) -> None:
    wrong = {"segment_bytes": "many"}
    options = ClusterOptions(groups=1, slaves=0, settings=wrong, zookeeper=zookeeper)
    with pytest.raises(ClusterFailed, match=r"g1-0 has ended with status 64.*\n.*segment_bytes"):
        await DevCluster(tmp_path / "c", options).start()
    assert not processes_of(tmp_path / "c")


def test_cluster_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("needs PR_SET_PDEATHSIG")
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from fmqdev.cluster import DevCluster\n"
        "from fmqdev.cluster_plan import ClusterOptions\n"
        "async def main():\n"
        "    async with DevCluster(Path(sys.argv[1]), ClusterOptions(groups=1, slaves=1)):\n"
        "        print('up', flush=True)\n"
        "        await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        while "up" not in (line := maker.stdout.readline()):
            assert line, "it ended"
        running = processes_of(tmp_path)
        assert len(running) == 3
        maker.kill()
    until_s = time.monotonic() + 30
    while processes_of(tmp_path) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not processes_of(tmp_path)
