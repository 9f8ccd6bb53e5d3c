"""A broker process on a real ZooKeeper: start, refusals, garbage, stop."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import fmqclient
from fmqadapters.grpc import GrpcTransport
from fmqadapters.process.free_ports import free_port
from fmqcore.ids import BrokerId, GroupName
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.version import VERSION
from fmqcore.zk.group_config import GroupConfig, Member
from fmqdev.group_nodes import Groups
from fmqdev.start_wait import StartWait, Steps
from fmqport.transport import TransportError
from fmqproto.v1 import admin_pb2
from fmqwire import methods

pytestmark = pytest.mark.processes

ALONE = AckPolicy(how_many=HowMany.NONE)


class Process:
    """One `fmq broker run`."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self._zookeeper = zookeeper
        self._log = folder / "broker.log"
        self._process: asyncio.subprocess.Process | None = None
        self._journal_start = 0  # of this run
        self._steps = Steps()
        self._stopping = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def start(self, **changes: str) -> "Process":
        options = {
            "cluster": "c",
            "group": "g1",
            "id": "g1-0",
            "data": str(self.data),
            "zookeeper": self._zookeeper,
            **changes,
        }
        command = [sys.executable, "-m", "fmqcli.main", "broker", "run"]
        for name, value in options.items():
            command += [f"--{name}", value]
        with self._log.open("ab") as output:
            self._journal_start = self._log.stat().st_size
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=output, stderr=output
            )
            self._steps.follow(self._log, self._process.pid)
        self._stopping = False
        return self

    def cut_log(self) -> None:
        """Ignore the log so far."""
        self._log.write_text("")
        self._journal_start = 0

    async def says(self, text: str) -> None:
        """Wait until the log of this run contains the text, while the broker makes progress."""

        async def missing() -> str:
            if text.encode() in self._log.read_bytes()[self._journal_start :]:
                return ""
            assert self.alive, self.log
            return f"{text!r} is not in the log"

        await StartWait(self._steps, print).until(missing)

    async def serves(self) -> None:
        """Wait until it may serve reads and writes, which is later than `master_opened`."""
        await self.says("permission=FULL")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def ended_by_itself(self) -> bool:
        return self._process is not None and not self.alive and not self._stopping

    async def ended(self) -> int:
        assert self._process is not None
        process = self._process

        async def missing() -> str:
            return "it has not ended" if process.returncode is None else ""

        await StartWait(self._steps, print).until(missing)
        assert process.returncode is not None
        return process.returncode

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.alive:
            assert self._process is not None
            self._stopping = True
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
        return await self.ended()


@pytest.fixture
async def broker(tmp_path: Path, zookeeper: str) -> AsyncIterator[Process]:
    """Return a broker that is not started, in a group that is configured with it alone."""
    broker = Process(tmp_path, zookeeper)
    me = BrokerId("g1-0")
    groups = Groups(zookeeper, "c")
    await groups.put_config(GroupConfig(GroupName("g1"), me, (Member(me, broker.address),), ALONE))
    await groups.close()
    yield broker
    await broker.stop(signal.SIGKILL)


async def test_broker_keeps_its_data_over_an_orderly_restart(broker: Process) -> None:
    await (await broker.start()).serves()
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        await client.admin().create_topic("orders", queues=2)
        async with client.producer() as producer:
            sent = [await producer.send("orders", b"%d" % n, key=b"k") for n in range(10)]
    assert await broker.stop() == 0
    await (await broker.start()).serves()
    await broker.says("clean=true")
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        async with client.consumer("orders", group="billing") as subscription:
            got = [await anext(aiter(subscription)) for _ in range(10)]
    assert [m.value for m in got] == [b"%d" % n for n in range(10)]
    assert [m.offset for m in got] == [s.offset for s in sent]


async def test_broker_logs_its_version_and_each_state(broker: Process) -> None:
    """An operator asks first for version, role, permission and reason."""
    await (await broker.start()).serves()
    lines = broker.log.splitlines()
    (starts,) = [line for line in lines if "broker_starts" in line]
    assert f"version={VERSION} " in f"{starts} "
    parts = [line for line in lines if "event=part" in line]
    assert "part=master permission=FULL epoch=1" in parts[-1]
    assert "reason=" in parts[-1]


async def test_sends_in_flight_at_orderly_stop_are_acknowledged(broker: Process) -> None:
    await (await broker.start()).serves()
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        await client.admin().create_topic("orders", queues=1)
        async with client.producer(delivery_timeout_s=20) as producer:
            await producer.send("orders", b"first")
            sends = [producer.send_nowait("orders", bytes(1000)) for _ in range(5000)]
            await sends[0]
            assert await broker.stop() == 0
            await broker.start()
            offsets = [(await sent).offset for sent in sends]
    assert offsets == list(range(1, 5001)), "all stored, none twice"


async def test_a_taken_port_is_a_clear_refusal(broker: Process) -> None:
    taken = await GrpcTransport().serve(broker.address, {})
    try:
        assert await (await broker.start()).ended() == 69
        assert f"cannot listen on {broker.address}" in broker.log
        assert "Traceback" not in broker.log
    finally:
        await taken.close(0)


async def test_a_second_broker_on_the_directory_refuses(broker: Process, tmp_path: Path) -> None:
    await (await broker.start()).serves()
    (tmp_path / "other").mkdir()
    other = Process(tmp_path / "other", broker._zookeeper)
    other.data = broker.data
    assert await (await other.start()).ended() == 75
    assert "Traceback" not in other.log
    assert broker.alive


async def test_a_second_broker_of_the_same_id_refuses(broker: Process, tmp_path: Path) -> None:
    """The second broker has another directory and port; it names the first, which serves on."""
    await (await broker.start()).serves()
    (tmp_path / "other").mkdir()
    other = Process(tmp_path / "other", broker._zookeeper)
    await (await other.start(listen=other.address)).says("name_in_use")
    assert await other.ended() == 75
    _, _, incarnation = (broker.data / "incarnations").read_text().split()
    assert f"incarnation {incarnation} at {broker.address}" in other.log
    assert "Traceback" not in other.log
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        await client.admin().create_topic("orders", queues=1)
    assert "term_over" not in broker.log


async def test_broker_serves_at_once_after_a_crash(broker: Process) -> None:
    """The old session has not expired: the live node under that name is the broker's own."""
    await (await broker.start()).serves()
    await broker.stop(signal.SIGKILL)
    await (await broker.start()).says("no broker had taken over")
    assert "name_in_use" not in broker.log


async def test_a_damaged_journal_is_a_clear_refusal(broker: Process) -> None:
    await (await broker.start()).serves()
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        await client.admin().create_topic("orders", queues=1)
        async with client.producer() as producer:
            for _ in range(5):
                await producer.send("orders", bytes(1000))
    assert await broker.stop() == 0
    segment = next(iter(sorted(broker.data.glob("*.journal"))))
    with segment.open("r+b") as file:
        file.seek(1500)
        file.write(b"damage")
    assert await (await broker.start()).ended() == 65
    assert segment.name in broker.log
    assert "Traceback" not in broker.log


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"group": "g7"}, "create the group first"),
        ({"id": "g1-9"}, "is no member of group g1"),
    ],
)
async def test_unconfigured_broker_reports_it_and_exits(
    broker: Process, changes: dict[str, str], text: str
) -> None:
    assert await (await broker.start(**changes)).ended() == 78
    assert text in broker.log
    assert "Traceback" not in broker.log


async def test_broker_waiting_for_zookeeper_can_be_stopped(broker: Process) -> None:
    none = "nowhere.invalid"  # RFC 2606: no name service knows it
    await broker.start(zookeeper=f"127.0.0.1:{free_port()},{none}:2181")
    await broker.says("waiting_for_zookeeper")
    await broker.says("zookeeper_name_does_not_resolve")
    assert await broker.stop() == 0


async def test_garbage_at_broker_port_harms_no_client(broker: Process) -> None:
    await (await broker.start()).serves()
    host, port = "127.0.0.1", broker.port
    for garbage in (os.urandom(50_000), b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage)
        with suppress(OSError):
            await writer.drain()
        writer.close()
    connection = GrpcTransport().connect(broker.address)
    for method in (methods.PRODUCE, methods.CONSUME, methods.REPLICATE):
        stream = await connection.open(method, 10)
        await stream.send(method.request())  # no stream starts with an empty message
        with suppress(TransportError):
            while await stream.receive() is not None:
                pass
    reply = await connection.call(methods.STATUS, admin_pb2.StatusRequest(), 10)
    assert reply.broker == "g1-0"
    await connection.close()
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        await client.admin().create_topic("orders", queues=1)
        async with client.producer() as producer:
            assert (await producer.send("orders", b"x")).offset == 0
    assert "this is a bug" not in broker.log
    assert await broker.stop(signal.SIGINT) == 0
