"""A group of real brokers on a real ZooKeeper whose data is restored to an older state."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import fmqclient
from fmqadapters.grpc import GrpcTransport
from fmqadapters.process.free_ports import free_port
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqbroker.tests.app.test_broker import Process
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId, GroupName
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState
from fmqdev.group_nodes import Groups
from fmqproto.v1 import admin_pb2
from fmqwire import methods

G1 = GroupName("g1")
M, S, T = (BrokerId(f"g1-{number}") for number in range(3))

_BOUND_S: Final = 200.0
"""Long enough for three brokers to start while the machine is busy with other work.

A test's own limit must be longer, or a wait that is over does not report what was missing.
"""


class Restorable:
    """Brokers `g1-0`, `g1-1`, ... and a ZooKeeper of one server; `backup`, later `restore`."""

    def __init__(self, folder: Path, brokers: int = 2) -> None:
        self._folder = folder
        self._server = EmbeddedZooKeeper(folder / "zookeeper", free_port())
        self.brokers: dict[BrokerId, Process] = {}
        for broker in (M, S, T)[:brokers]:
            (folder / broker).mkdir()
            self.brokers[broker] = Process(folder / broker, self.zookeeper)
        self._groups: Groups | None = None

    def check_alive(self) -> None:
        """Raise if a broker has ended that should run: what it does would be waited for in vain."""
        for name, broker in self.brokers.items():
            assert not broker.ended_by_itself, f"{name} has ended: {broker.log}"

    @property
    def zookeeper(self) -> str:
        return self._server.address

    @property
    def url(self) -> str:
        return "fmq://" + ",".join(broker.address for broker in self.brokers.values())

    @property
    def groups(self) -> Groups:
        assert self._groups is not None
        return self._groups

    @property
    def config(self) -> GroupConfig:
        members = tuple(Member(name, broker.address) for name, broker in self.brokers.items())
        return GroupConfig(G1, M, members)

    async def start_zookeeper(self) -> None:
        self._server.start()
        await asyncio.to_thread(self._server.wait_ready)
        self._groups = Groups(self.zookeeper, "c")

    async def stop_zookeeper(self) -> None:
        if self._groups is not None:
            await self._groups.close()
            self._groups = None
        await asyncio.to_thread(self._server.stop)

    async def start(self, *brokers: BrokerId) -> None:
        for broker in brokers or self.brokers:
            self.brokers[broker].cut_log()
            await self.brokers[broker].start(id=broker)

    async def stop(self, *brokers: BrokerId) -> None:
        for broker in brokers or self.brokers:
            if self.brokers[broker].alive:
                assert await self.brokers[broker].stop() == 0, self.brokers[broker].log

    async def backup(self) -> Path:
        """Stop everything, copy ZooKeeper's data, start everything."""
        copy = self._folder / "backup"
        await self.stop()
        await self.stop_zookeeper()
        shutil.copytree(self._server.directory / "data", copy)
        await self.start_zookeeper()
        await self.start()
        return copy

    def backup_while_running(self) -> Path:
        """As after a crash: ZooKeeper goes on from its log at the next start."""
        copy = self._folder / "backup"
        shutil.copytree(self._server.directory / "data", copy)
        return copy

    async def restore(self, copy: Path | None) -> None:
        """Start ZooKeeper with that data (None: empty); brokers must be stopped."""
        await self.stop_zookeeper()
        shutil.rmtree(self._server.directory / "data")
        if copy is not None:
            shutil.copytree(copy, self._server.directory / "data")
        await self.start_zookeeper()

    async def kill(self) -> None:
        for broker in self.brokers.values():
            if broker.alive:
                await broker.stop(9)  # type: ignore[arg-type]
        await self.stop_zookeeper()

    async def until_state(self, condition: Callable[[GroupState], bool]) -> GroupState:
        """Wait until the group's state meets the condition; return it."""
        state = GroupState()
        try:
            async with asyncio.timeout(_BOUND_S):
                while not condition(state := await self.groups.state(G1)):
                    self.check_alive()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logs = "\n".join(f"{name}: {broker.log}" for name, broker in self.brokers.items())
            raise AssertionError(f"the state stays {state}\n{logs}") from None
        return state

    async def status(self, broker: BrokerId) -> admin_pb2.StatusReply | None:
        connection = GrpcTransport().connect(self.brokers[broker].address)
        try:
            reply: admin_pb2.StatusReply = await connection.call(
                methods.STATUS, admin_pb2.StatusRequest(), 5
            )
        except FmqError:
            return None
        finally:
            await connection.close()
        return reply

    async def until_status(
        self, broker: BrokerId, condition: Callable[[admin_pb2.StatusReply], bool]
    ) -> admin_pb2.StatusReply:
        last = None
        try:
            async with asyncio.timeout(_BOUND_S):
                while (last := await self.status(broker)) is None or not condition(last):
                    self.check_alive()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{broker} says {last}; {self.brokers[broker].log}") from None
        return last

    async def whole(self) -> GroupState:
        """Wait until the master serves and all slaves are in sync."""
        others = self.brokers.keys() - {M}
        state = await self.until_state(
            lambda s: (
                s.mode.value == "MASTER"
                and not s.required_epoch
                and s.isr == others | {M} - {s.master}
            )
        )
        await self.until_status(state.master, lambda s: s.permission == 3)
        return state

    async def send(self, topic: str, *values: bytes) -> list[fmqclient.SendResult]:
        async with fmqclient.connect(self.url) as client, client.producer() as producer:
            return [await producer.send(topic, value, key=value) for value in values]

    async def read(self, topic: str, count: int, group: str) -> dict[bytes, tuple[int, int]]:
        """Consume and ack `count` messages; return value → (queue, offset)."""
        found: dict[bytes, tuple[int, int]] = {}
        async with (
            fmqclient.connect(self.url) as client,
            client.consumer(topic, group=group) as consumer,
        ):
            async with asyncio.timeout(_BOUND_S):
                while len(found) < count:
                    self.check_alive()
                    for message in await consumer.fetch(100, 0.5):
                        found[message.value] = (message.queue, message.offset)
                        await message.ack()
        return found


@asynccontextmanager
async def restorable(folder: Path, brokers: int = 2) -> AsyncIterator[Restorable]:
    """Run a group that is whole."""
    cluster = Restorable(folder, brokers)
    try:
        await cluster.start_zookeeper()
        await cluster.groups.put_config(cluster.config)
        await cluster.start()
        await cluster.whole()
        yield cluster
    finally:
        await cluster.kill()
