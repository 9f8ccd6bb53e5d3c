"""Every `fmq` command of the runbooks, run as it stands against a cluster of real processes.

A command with arguments runs at the point of the story where a person would need it. A command that
the runbooks only name, without arguments, must exist.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

import fmqclient
from fmqcore.zk.group_state import Mode
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "runbooks.md"
ONLY_NAMED: Final = {
    "fmq topic create",
    "fmq topic alter",
    "fmq journal dump",
    "fmq job archive",
    "fmq job check",
    "fmq consume",
}


def documented() -> set[str]:
    """Return the commands in spans, without the `kubectl exec` before them."""
    prose = re.sub(r"^```.*?^```", "", PAGE.read_text(), flags=re.M | re.S)
    spans = re.findall(r"`([^`]+)`", prose)
    words = (re.sub(r"^kubectl exec \w+ -- ", "", " ".join(span.split())) for span in spans)
    return {word for word in words if word.startswith("fmq ")}


class Person:
    """Types commands of the runbooks, with names for the placeholders."""

    def __init__(self, dev: DevCluster, zookeeper: str, folder: Path) -> None:
        self.dev = dev
        self.folder = folder
        self.done: set[str] = set()
        self._zookeeper = zookeeper
        self._environment = os.environ | {
            "FMQ_BROKERS": dev.url,
            "FMQ_ZOOKEEPER": zookeeper,
            "FMQ_CLUSTER": dev.options.cluster,
        }

    async def types(self, command: str, wanted: int = 0, **names: str) -> str:
        """Run a documented command; return its output. `names` fill its placeholders."""
        assert command in documented(), "it is in no runbook"
        self.done.add(command)
        return await self.runs(self._with(command, names), wanted)

    async def runs(self, line: str, wanted: int = 0) -> str:
        arguments = shlex.split(line)[1:]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fmqcli.main", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
        )
        printed, _ = await process.communicate(b"y\n")  # the answer to its question
        assert process.returncode == wanted, f"{line}\n{printed.decode()}"
        return printed.decode()

    def _with(self, command: str, names: dict[str, str]) -> str:
        own = {
            "ZOOKEEPER": self._zookeeper,
            "CONNECT": self._zookeeper,
            "CLUSTER": self.dev.options.cluster,
            "GROUP": "g1",
        }
        for word, name in (own | names).items():
            command = re.sub(rf"\b{word}\b(\.\.\.)?", name, command)
        left = re.findall(r"\b[A-Z]{2,}\b", command.replace("NONE", ""))
        assert not left, f"{command}: what is {left}?"
        return command

    async def master(self) -> str:
        """Return the group's master, once the group is whole."""
        await self.dev.wait_healthy()
        return (await self.dev.groups.state("g1")).master


@pytest.fixture
async def person(tmp_path: Path, zookeeper: str) -> AsyncIterator[Person]:
    options = ClusterOptions(groups=2, zookeeper=zookeeper)
    async with DevCluster(tmp_path / "dev", options) as dev:
        yield Person(dev, zookeeper, tmp_path)


async def test_every_fmq_command_of_the_runbooks_runs(person: Person) -> None:
    """One story, as starting a cluster costs more than the story itself."""
    await looks(person)
    await orders_over_groups(person)
    await changes(person)
    await moves(person)
    await topics_come_and_go(person)
    await reads_journals(person)
    for command in sorted(ONLY_NAMED & documented()):
        await person.runs(f"{command} --help")
    assert documented() - person.done - ONLY_NAMED == set(), "no test runs it"


async def looks(person: Person) -> None:
    await person.types("fmq topic create NAME", NAME="orders")
    async with fmqclient.connect(person.dev.url) as client:
        async with client.producer() as producer:
            for number in range(10):
                await producer.send("orders", b"%d" % number)
        async with client.consumer("orders", group="billing") as consumer:
            await (await anext(aiter(consumer))).ack()
    assert "FULL" in await person.types("fmq status")
    assert "g1-1" in await person.types("fmq cluster show")
    assert "billing" in await person.types("fmq group list")
    assert "orders" in await person.types("fmq group lag GROUP", GROUP="billing")
    await person.types("fmq group delete GROUP", GROUP="billing")


async def orders_over_groups(person: Person) -> None:
    """The end of a segment is given as soon as it closes: to release it then changes nothing."""
    await person.runs("fmq topic create changes --ordered --groups g1,g2")
    async with (
        fmqclient.connect(person.dev.url) as client,
        client.ordered_producer("changes") as producer,
    ):
        await producer.send(b"1")
        assert "g1" in await person.types("fmq ordered status TOPIC", TOPIC="changes")
        await person.runs("fmq ordered switch changes")
        await producer.send(b"2")
        release = "fmq ordered release TOPIC SEGMENT"
        assert "segment 2" in await person.types(release, TOPIC="changes", SEGMENT="1")


async def changes(person: Person) -> None:
    printed = await person.types("fmq cluster show -o json")
    (file := person.folder / "cluster.json").write_text(printed)
    await person.types("fmq cluster apply -f FILE", FILE=str(file))
    await person.types("fmq broker permit BROKER NONE", BROKER="g1-1")
    await person.runs("fmq broker permit g1-1 FULL")


async def moves(person: Person) -> None:
    """A switchover, then the loss of the new master, then a group that begins again."""
    switch = "fmq failover GROUP --to BROKER -z ZOOKEEPER -c CLUSTER"
    assert await person.master() == "g1-0"
    await person.types(switch, BROKER="g1-1")
    dev = person.dev
    for command, lost, reader in (
        ("fmq failover GROUP --to READER --lost MASTER -z ZOOKEEPER -c CLUSTER", "g1-1", "g1-0"),
        ("fmq failover GROUP --to READER --lost MASTER -z CONNECT -c CLUSTER", "g1-0", "g1-1"),
    ):
        assert await person.master() == lost
        dev.kill(lost)
        assert await dev.ended(lost)
        async with asyncio.timeout(60):
            while (await dev.groups.state("g1")).mode is not Mode.SLAVE_CONSUME:
                await asyncio.sleep(0.05)
        await person.types(command, READER=reader, MASTER=lost)
        dev.start_broker(lost)
    epoch = (await dev.groups.state("g1")).epoch if await person.master() == "g1-1" else 0
    output = await person.types("fmq cluster begin-again GROUP", wanted=64)
    assert f"--epoch {epoch}" in output
    await person.types("fmq cluster begin-again GROUP --epoch N", N=str(epoch))
    async with asyncio.timeout(60):
        while (await dev.groups.state("g1")).epoch <= epoch:
            await asyncio.sleep(0.05)
    await person.master()


async def topics_come_and_go(person: Person) -> None:
    assert "g1" in await person.runs("fmq topic describe orders")
    await person.types("fmq topic delete NAME", NAME="orders")
    await person.types("fmq topic create NAME", NAME="orders")


async def reads_journals(person: Person) -> None:
    """Read the journals of stopped brokers."""
    folders = [str(broker.data) for broker in person.dev.group("g1")]
    for broker in person.dev.brokers:
        assert await person.dev.stop_broker(broker)
    assert "orders" in await person.types("fmq journal dump DIR", DIR=folders[0])
    await person.types("fmq journal verify DIR", DIR=folders[0])
    await person.types("fmq job check DIR...", DIR=" ".join(folders))
    await person.types("fmq job rebuild-index DIR...", DIR=" ".join(folders))


def test_the_commands_are_found() -> None:
    found = documented()
    assert {"fmq status", "fmq journal verify DIR", *ONLY_NAMED} <= found
    assert len(found) >= 20
