"""One link under faults: garbage, duplicates, cuts, stalls, silence; credit; no leak."""

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from fmqadapters.grpc import GrpcTransport
from fmqbroker.tests.journal_kit import headers
from fmqbroker.tests.replication_harness import Cluster, Node, Zoo, cluster, turns, until
from fmqcore.batch.header import BatchType
from fmqcore.ids import BrokerId, GroupName, Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState
from fmqport.transport import CallContext, Stream, TransportError
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import REPLICATE

NO_ACKS = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.DURABLE, HowMany.NONE)


def flipped(message: Any) -> list[Any]:
    raw = bytearray(message.append.batches)
    raw[len(raw) // 2] ^= 0x40
    message.append.batches = bytes(raw)
    return [message]


def cut_short(message: Any) -> list[Any]:
    message.append.batches = message.append.batches[:-8]
    return [message]


def garbage(message: Any) -> list[Any]:
    message.append.batches = b"\xa5" * len(message.append.batches)
    return [message]


def moved(message: Any) -> list[Any]:
    message.append.position += 8
    return [message]


def old(message: Any) -> list[Any]:
    message.append.epoch = message.epoch = 0
    return [message]


def twice(message: Any) -> list[Any]:
    return [message, message]


class Swapped:
    """Swap two appends."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def __call__(self, message: Any) -> list[Any]:
        self._kept.append(message)
        if len(self._kept) < 2:
            return []
        taken, self._kept = self._kept[::-1], []
        return taken


@pytest.mark.parametrize(
    "spoil", [flipped, cut_short, garbage, moved, old, twice, Swapped()], ids=lambda f: str(f)[:20]
)
async def test_an_append_that_does_not_fit_is_refused(
    tmp_path: Path, spoil: Callable[[Any], list[Any]]
) -> None:
    """The slave closes, dials again, reports its position, and gets the right bytes."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        dials = slave.tap.dials

        def change(message: Any) -> list[Any]:
            if slave.tap.dials == dials and message.HasField("append"):
                return spoil(message)
            return [message]

        slave.tap.change = change
        for _ in range(3):
            c.master.produce(5)
            await turns(5)
        await until(lambda: slave.tap.dials > dials, "it dials again")
        await c.in_sync()
        await c.committed()
        await c.equal()


async def test_stream_cut_in_a_flood_resumes_without_loss(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        for _ in range(5):
            c.master.produce(300)
            await turns(2)
            slave.tap.cut()
        await c.in_sync()
        await c.committed()
        await c.equal()


async def test_stalled_slave_is_bounded_by_its_credit(tmp_path: Path) -> None:
    """A sliding window: bytes sent and not yet acknowledged stay within the credit."""
    credit = 2 * 1024 * 1024
    async with cluster(
        tmp_path,
        1,
        NO_ACKS,
        tail_cache_bytes=1 << 20,
        credit_bytes=credit,
        dead_after_ms=60_000,
        segment_bytes=1 << 20,
    ) as c:
        slave, link = c.slaves[0], c.master.master.links[c.slaves[0].name]
        slave.tap.reading.clear()
        start = link.received_end
        tracemalloc.start()
        try:
            for _ in range(12):
                c.master.produce(100, 10_000)
                await c.master.journal.wait_durable(c.master.journal.end)
            await turns()
            sent = link.sent_end
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert c.master.journal.end - start > 5 * credit
        assert sent - start <= credit + 1024 * 1024  # an EOF may stand for the rest of a segment
        assert held < credit + (4 << 20)
        slave.tap.reading.set()
        await c.equal()


async def test_without_credit_no_messages_are_sent(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, NO_ACKS, in_sync=False) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        c.master.produce()
        connection = GrpcTransport().connect(c.master.address)
        stream = await say_hello(connection, c)
        await send_ack(stream, credit_bytes=0, epoch=1)
        control = b""
        for _ in range(4):
            message = await stream.receive()  # heartbeats, and the opening of the term
            control += message.append.batches
        assert [h.type for h in headers(control)] == [BatchType.SNAP, BatchType.EPOCH]
        await send_ack(stream, credit_bytes=2 << 20, epoch=1)
        while not message.HasField("append"):
            message = await stream.receive()
        assert message.append.position == len(control)
        assert message.end == c.master.journal.end
        await connection.close()


async def say_hello(connection: Any, c: Cluster, **more: Any) -> Stream:
    stream: Stream = await connection.open(REPLICATE, 5.0)
    hello = wire.Hello(cluster="c", group="g1", broker="g1-1", incarnation="hand", **more)
    await stream.send(wire.SlaveMessage(hello=hello))
    message = await stream.receive()
    assert message.welcome.action == wire.APPEND_FROM
    return stream


async def send_ack(stream: Stream, **fields: Any) -> None:
    await stream.send(wire.SlaveMessage(ack=wire.Ack(**fields)))


@pytest.mark.parametrize(
    "ack",
    [
        {"received_end": 1 << 40},  # never sent
        {"durable_end": 8},  # more durable than received
        {"epoch": 9},
        {"echo_ms": 2**60},
    ],
    ids=lambda ack: next(iter(ack)),
)
async def test_invalid_ack_ends_the_stream(tmp_path: Path, ack: dict[str, int]) -> None:
    async with cluster(tmp_path, 1, in_sync=False, dead_after_ms=60_000) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        connection = GrpcTransport().connect(c.master.address)
        stream = await say_hello(connection, c)
        await send_ack(stream, credit_bytes=0)
        await send_ack(stream, **ack)
        await until(lambda: not c.master.master.links[BrokerId("g1-1")].connected)
        with suppress(TransportError):
            while await stream.receive() is not None:
                pass
        await connection.close()
        assert c.master.commit.commit_end == 0


async def test_acks_never_fall_within_a_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, in_sync=False, dead_after_ms=60_000) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        connection = GrpcTransport().connect(c.master.address)
        stream = await say_hello(connection, c)
        await send_ack(stream, credit_bytes=1 << 20, epoch=1)
        message = await stream.receive()
        while not message.HasField("append"):
            message = await stream.receive()
        end = c.master.journal.end
        await send_ack(stream, received_end=end, durable_end=end, credit_bytes=1 << 20, epoch=1)
        await c.committed(end)
        await send_ack(stream, received_end=end, durable_end=0, credit_bytes=1 << 20, epoch=1)
        await until(lambda: not c.master.master.links[BrokerId("g1-1")].connected)
        assert c.master.commit.commit_end == end  # R4
        await connection.close()


async def test_acks_of_an_older_stream_count_for_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, in_sync=False, dead_after_ms=60_000) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        connection = GrpcTransport().connect(c.master.address)
        stream = await say_hello(connection, c)
        await send_ack(stream, credit_bytes=1 << 20, epoch=1)
        message = await stream.receive()
        while not message.HasField("append"):
            message = await stream.receive()
        end, view = c.master.journal.end, c.master.master.links[BrokerId("g1-1")]
        await send_ack(stream, received_end=end, durable_end=end, credit_bytes=1 << 20, epoch=1)
        await c.committed(end)
        again = await say_hello(connection, c)  # it came back empty
        await until(lambda: view.connected)
        assert (view.sent_end, view.received_end, view.durable_end, view.epoch) == (0, 0, 0, 0)
        again.cancel()
        await connection.close()


async def test_a_silent_slave_is_noticed(tmp_path: Path) -> None:
    """Its stream is up but silent: SIGSTOP, or a silent cut."""
    async with cluster(tmp_path, dead_after_ms=300) as c:
        slave = c.slaves[0]
        slave.tap.open.clear()
        await until(lambda: not c.master.master.links[slave.name].connected, "it is noticed")
        await until(lambda: not c.isr)
        await until(lambda: c.master.commit.unwritable_reason)
        slave.tap.open.set()
        await c.in_sync()
        c.master.produce()
        await c.committed()


async def test_a_silent_master_is_noticed(tmp_path: Path) -> None:
    async with cluster(tmp_path, dead_after_ms=300) as c:
        slave, hushed = c.slaves[0], []
        dials = slave.tap.dials

        def hush(message: Any) -> list[Any]:
            if slave.tap.dials > dials:
                return [message]
            hushed.append(message)
            return []

        slave.tap.change = hush
        await until(lambda: hushed)
        await until(lambda: not slave.slave.upstream.connected)
        await until(lambda: slave.tap.dials > dials)
        await c.in_sync()


async def test_another_configured_master_ends_the_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        config = c.zoo.config
        members = tuple(
            Member(m.id, "127.0.0.1:1" if m.id == config.master else m.address)
            for m in config.members
        )
        slave.group.config = GroupConfig(config.group, config.master, members, config.policy)
        await until(lambda: not slave.slave.upstream.connected)
        slave.group.see_all()
        await c.in_sync()


async def test_unrelated_configuration_change_keeps_the_stream(tmp_path: Path) -> None:
    """Permissions and zones do not concern the stream: the slave stays in sync."""
    async with cluster(tmp_path) as c:
        slave, config = c.slaves[0], c.zoo.config
        dials, reported = slave.tap.dials, len(slave.tap.sent)
        members = tuple(replace(m, permission=Permission.WRITE, zone="z") for m in config.members)
        c.zoo.config = replace(config, members=members)
        c.zoo.notify()
        await until(lambda: len(slave.tap.sent) > reported + 10, "it polls at each heartbeat")
        assert (slave.tap.dials, c.isr) == (dials, {slave.name})


async def test_own_stall_is_not_a_silent_peer(tmp_path: Path) -> None:
    """Both loops stalled for longer than a peer may be silent: all links continue."""
    async with cluster(tmp_path, dead_after_ms=300) as c:
        slave, states = c.slaves[0], len(c.zoo.history)
        dials = slave.tap.dials
        for _ in range(5):
            time.sleep(0.4)  # noqa: ASYNC251 - that is the point
            reported = len(slave.tap.sent)
            await until(partial(lambda before: len(slave.tap.sent) > before + 3, reported))
        assert slave.tap.dials == dials
        assert len(c.zoo.history) == states, "no slave was taken out of the in-sync set"


@pytest.mark.parametrize("gap_ms", [0, 5, 20, 45])
async def test_repeated_own_stall_is_not_a_silent_peer(tmp_path: Path, gap_ms: int) -> None:
    """The second stall starts before anything from the slave is read after the first."""
    async with cluster(tmp_path, dead_after_ms=300) as c:
        slave, states = c.slaves[0], len(c.zoo.history)
        dials = slave.tap.dials
        for _ in range(4):
            for _ in range(2):
                time.sleep(0.4)  # noqa: ASYNC251 - that is the point
                await asyncio.sleep(gap_ms / 1000)
            reported = len(slave.tap.sent)
            await until(partial(lambda before: len(slave.tap.sent) > before + 3, reported))
        assert slave.tap.dials == dials
        assert len(c.zoo.history) == states, [state.reason for state in c.zoo.history[states:]]


async def test_a_silent_peer_before_the_welcome(tmp_path: Path) -> None:
    """A server accepts the stream and never answers: the slave gives up and dials again."""
    dialled: list[Stream] = []

    async def swallow(_: CallContext, stream: Stream) -> None:
        dialled.append(stream)
        while await stream.receive() is not None:
            pass

    server = await GrpcTransport().serve("127.0.0.1:0", {REPLICATE: swallow})
    node = await lone_slave(tmp_path, server.port, dead_after_ms=100)
    await until(lambda: len(dialled) > 2)
    await node.stop()
    await server.close(0)


# ---- no leak


async def lone_slave(path: Path, port: int, **settings: Any) -> Node:
    me = BrokerId("g1-1")
    members = (Member(BrokerId("g1-0"), f"127.0.0.1:{port}"), Member(me, "127.0.0.1:1"))
    zoo = Zoo(GroupConfig(GroupName("g1"), members[0].id, members), GroupState())
    node = Node(zoo, me, path / me, redial_min_ms=1, redial_max_ms=1, **settings)
    return await node.start()


class Usage:
    """Resources that this process holds."""

    def __init__(self) -> None:
        gc.collect()
        self.process = psutil.Process()
        self.descriptors = self.process.num_fds()
        self.threads = threading.active_count()
        self.tasks = len(asyncio.all_tasks())
        self.objects = len(gc.get_objects())
        self.rss = self.process.memory_info().rss

    def __repr__(self) -> str:
        return str({k: v for k, v in vars(self).items() if k != "process"})


@pytest.mark.parametrize("listening", [True, False], ids=["drops", "dead port"])
async def test_a_thousand_redials_leak_nothing(tmp_path: Path, listening: bool) -> None:
    dials = 0

    async def drop(_: CallContext, stream: Stream) -> None:
        nonlocal dials
        dials += 1
        if dials % 2:  # with and without a message
            await stream.receive()

    server = await GrpcTransport().serve("127.0.0.1:0", {REPLICATE: drop})
    port = server.port
    if not listening:
        await server.close(0)
    node = await lone_slave(tmp_path, port)
    connect, tries = node.slave._transport.connect, 0

    def counting(address: str) -> Any:
        nonlocal tries
        tries += 1
        return connect(address)

    node.slave._transport.connect = counting  # type: ignore[method-assign]
    try:
        await until(lambda: tries > 100)
        before = Usage()
        for target in (600, 1100):  # `until` waits generously, but for one thing at a time
            await until(lambda n=target: tries > n, f"{target} redials")  # type: ignore[misc]
        after = Usage()
    finally:
        await node.stop()
        if listening:
            await server.close(0)
    assert after.descriptors <= before.descriptors + 8, (before, after)
    assert after.threads <= before.threads + 2, (before, after)
    assert after.tasks <= before.tasks + 8, (before, after)
    assert after.objects <= before.objects + 3000, (before, after)
    assert after.rss <= before.rss + (24 << 20), (before, after)
