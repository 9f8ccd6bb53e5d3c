"""`fmq` as a user types it, on one cluster of real processes shared by these tests."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fmqcore.policy import AckPolicy, HowMany
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
FMQ = [sys.executable, "-m", "fmqcli.main"]


class Fmq:
    """Runs the command."""

    def __init__(self, url: str) -> None:
        self.environment = {**os.environ, "FMQ_BROKERS": url}

    async def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        process = await self.start(*arguments)
        out, err = await process.communicate(stdin)
        return process.returncode or 0, out.decode(), err.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *FMQ,
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )


@pytest.fixture
async def fmq(tmp_path: Path, zookeeper: str) -> AsyncIterator[Fmq]:
    alone = AckPolicy(how_many=HowMany.NONE)
    options = ClusterOptions(groups=2, slaves=0, policy=alone, zookeeper=zookeeper)
    async with DevCluster(tmp_path / "dev", options) as running:
        yield Fmq(running.url)


async def test_a_day_with_fmq(fmq: Fmq, tmp_path: Path) -> None:
    """One story, because starting a cluster costs more than the whole test."""
    await topics(fmq)
    await produce_and_consume(fmq, tmp_path)
    await groups(fmq)
    await status(fmq)
    await ends(fmq)


async def topics(fmq: Fmq) -> None:
    code, out, _ = await fmq("topic", "create", "orders", "--queues", "4")
    assert (code, out.split()[:4]) == (0, ["TOPIC", "ID", "QUEUES", "GROUPS"])
    code, out, err = await fmq("topic", "create", "orders")
    assert (code, out) == (1, "")
    assert err.startswith("fmq: ")
    assert "orders" in err
    code, _, _ = await fmq("topic", "create", "orders", "--if-not-exists")
    assert code == 0
    code, out, _ = await fmq("topic", "create", "heavy", "-g", "g1:3", "-q", "2", "-o", "json")
    assert json.loads(out)[0]["groups"] == [{"group": "g1", "queues": 2, "weight": 3}]
    code, out, _ = await fmq("topic", "list", "-o", "json")
    assert [t["name"] for t in json.loads(out)] == ["heavy", "orders"]
    code, out, _ = await fmq("topic", "describe", "orders")
    assert len(out.splitlines()) == 1 + 8
    code, _, err = await fmq("topic", "delete", "heavy", "--yes")
    assert (code, err) == (0, "fmq: topic heavy is deleted\n")
    code, _, err = await fmq("topic", "describe", "heavy")
    assert code == 1
    assert err.startswith("fmq: there is no topic 'heavy'; create it: fmq topic create heavy")


async def produce_and_consume(fmq: Fmq, tmp_path: Path) -> None:
    events = tmp_path / "events.txt"
    events.write_bytes(b"".join(b"k%d:value %d\n" % (n % 10, n) for n in range(1000)))
    code, out, err = await fmq("produce", "orders", "-f", str(events), "-K", ":", "-H", "a=1")
    assert (code, out) == (0, "")
    assert "1,000 stored" in err
    code, out, _ = await fmq("produce", "orders", "-k", "42", "-p", "-f", "-", stdin=b"one\ntwo")
    assert code == 0
    places = [line.split() for line in out.splitlines()]
    assert places[0][:2] == places[1][:2]  # one key, one queue
    assert int(places[1][2]) == int(places[0][2]) + 1
    for lines in (b"x\n", b""):  # even before anything is typed
        code, _, err = await fmq("produce", "nope", stdin=lines)
        assert (code, "there is no topic 'nope'" in err) == (1, True)
        for wanted, *place in (
            (1, "--group=g9"),  # unknown, as the queue and the topic
            (1, "--group=g1", "--queue=99"),
            (64, "--queue=0"),
        ):
            code, _, err = await fmq("produce", "orders", *place, stdin=lines)
            assert (code, "queue" in err, "stored" in err) == (wanted, True, False)
    code, out, err = await fmq(
        "consume", "orders", "-g", "billing", "-e", "--format", r"%k|%v|%h\n"
    )
    assert code == 0
    assert sorted(out.splitlines()) == sorted(
        [*(f"k{n % 10}|value {n}|a=1" for n in range(1000)), "42|one|", "42|two|"]
    )
    code, out, _ = await fmq("consume", "orders", "-g", "billing", "-e")
    assert (code, out) == (0, "")
    code, out, _ = await fmq("consume", "orders", "-n", "3", "-o", "json")
    assert [json.loads(line)["topic"] for line in out.splitlines()] == ["orders"] * 3
    code, out, err = await fmq("consume", "orders", "-g", "x", "--from", "latest", "--timeout", "1")
    assert (code, out) == (0, "")


async def groups(fmq: Fmq) -> None:
    code, out, _ = await fmq("group", "list", "-o", "json")
    found: dict[str, Any] = {g["group"]: g for g in json.loads(out)}
    assert sorted(found) == ["billing", "x"]  # unnamed groups are gone
    assert found["billing"]["lag"] == 0
    code, out, err = await fmq("group", "lag", "billing")
    assert (code, "0 messages behind in 8 queues" in err) == (0, True)
    code, out, _ = await fmq("group", "seek", "billing", "orders", "--to", "earliest", "-o", "json")
    assert sum(row["lag"] for row in json.loads(out)) == 1002
    code, _, _ = await fmq("group", "seek", "billing", "orders", "--offset", "3", "-q", "g1/0")
    assert code == 0
    code, _, err = await fmq("group", "delete", "billing", "-y")
    assert (code, err) == (0, "fmq: forgot billing in 8 queues\n")
    code, _, err = await fmq("group", "lag", "billing")
    assert (code, err) == (1, "fmq: there is no consumer group 'billing'\n")
    code, _, err = await fmq("group", "seek", "billing", "orders", "--to", "latest", "--create")
    assert (code, err) == (0, "")


async def status(fmq: Fmq) -> None:
    code, out, err = await fmq("status")
    assert code == 0
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [
        ["g1", "g1-0", "master", "FULL"],
        ["g2", "g2-0", "master", "FULL"],
    ]
    assert "2 groups, 2 brokers, 1 topic" in err


async def ends(fmq: Fmq) -> None:
    """A closed pipe, Ctrl-C and SIGTERM end it quietly, with their exit codes."""
    for number, wanted in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = await fmq.start("consume", "orders", "-g", f"end-{wanted}")
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(number)
        _, err = await process.communicate()
        assert process.returncode == wanted
        assert "Traceback" not in err.decode()
    await hang_ups(fmq)
    process = await fmq.start("produce", "orders", "-p")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one\ntwo\n")  # and there may be more
    for _ in range(2):
        await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"fmq: cut short: of 2 sent 2 are stored\n")
    # Everything fits into the pipe before its reader goes: no later write would notice.
    assert (await fmq("topic", "create", "small", "-q", "1"))[0] == 0
    assert (await fmq("produce", "small", stdin=b"1\n2\n3\n"))[0] == 0
    for topic in ("orders", "small"):
        await one_line_of(fmq, topic)


async def hang_ups(fmq: Fmq) -> None:
    """A closed terminal ends it in order and deletes its group. Under nohup it continues."""
    before = await group_names(fmq)
    process = await fmq.start("consume", "orders")
    assert process.stdout is not None
    await process.stdout.readline()
    for _ in range(2):  # the kernel's and the shell's
        process.send_signal(signal.SIGHUP)
    _, err = await process.communicate()
    assert (process.returncode, "Traceback" in err.decode()) == (129, False)
    assert await group_names(fmq) == before
    ignored = await asyncio.create_subprocess_exec(
        "nohup",
        *FMQ,
        "consume",
        "orders",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=fmq.environment,
    )
    assert ignored.stdout is not None
    await ignored.stdout.readline()
    ignored.send_signal(signal.SIGHUP)
    assert await group_names(fmq) != before
    ignored.terminate()
    await ignored.communicate()
    assert ignored.returncode == 143
    assert await group_names(fmq) == before


async def group_names(fmq: Fmq) -> set[str]:
    _, out, _ = await fmq("group", "list", "-o", "json")
    return {g["group"] for g in json.loads(out)}


async def one_line_of(fmq: Fmq, topic: str) -> None:
    shell = await asyncio.create_subprocess_shell(
        f"{' '.join(FMQ)} consume {topic} -g pipe | head -1; exit ${{PIPESTATUS[0]}}",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=fmq.environment,
        executable="/bin/bash",
    )
    out, err = await shell.communicate()
    assert out.count(b"\n") == 1
    assert (shell.returncode, err) == (141, b"")


async def test_lone_restarted_master_shows_what_waits(tmp_path: Path, zookeeper: str) -> None:
    """It knows as committed what its last checkpoint noted; its slave may lack the rest."""
    settings = {"checkpoint_interval_ms": 600_000}  # none comes after the messages
    options = ClusterOptions(groups=1, slaves=1, zookeeper=zookeeper, settings=settings)
    async with DevCluster(tmp_path / "dev", options) as running:
        fmq = Fmq(running.url)
        assert (await fmq("topic", "create", "orders", "-q", "1"))[0] == 0
        lines = b"".join(b"%d\n" % n for n in range(1000))
        assert (await fmq("produce", "orders", stdin=lines))[0] == 0
        assert (await fmq("consume", "orders", "-g", "billing", "-n", "500"))[0] == 0
        for broker in ("g1-0", "g1-1"):
            running.kill(broker)
        for broker in ("g1-0", "g1-1"):
            assert await running.ended(broker)
        running.start_broker("g1-0")
        waits = "may not be read yet: they wait for slave g1-1"
        async with asyncio.timeout(120):
            while waits not in (found := await fmq("status"))[2]:
                await asyncio.sleep(0.1)
        assert (found[0], "1,000 messages on g1-0" in found[2]) == (1, True)
        _, out, err = await fmq("group", "lag", "billing", "-o", "json")
        row = json.loads(out)[0]
        assert (row["committed"], row["end"], row["stored_end"], row["withheld"]) == (
            500, 0, 1000, 1000,
        )  # fmt: skip
        assert f"1,000 messages of topic orders {waits}" in err
        process = await fmq.start("consume", "orders", "-g", "billing", "-e")
        assert process.stderr is not None
        assert waits in (await process.stderr.readline()).decode()
        late = await fmq.start("consume", "orders", "-g", "late", "--from", "latest")
        assert late.stderr is not None
        reason = "late starts on orders is not stored yet: the policy needs one in-sync slave"
        while reason not in (line := (await late.stderr.readline()).decode()):
            assert line, "it has ended"
        late.terminate()
        await late.communicate()
        running.start_broker("g1-1")
        consumed, _ = await process.communicate()
        assert (process.returncode, consumed) == (0, lines[lines.index(b"500\n") :])
        _, out, err = await fmq("group", "lag", "billing", "-o", "json")
        assert (json.loads(out)[0]["committed"], json.loads(out)[0]["withheld"]) == (1000, 0)
        assert waits not in err
