"""The whole way of an ordered topic over two groups of real brokers, as a client sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqbroker.tests.scenario_harness import SETTINGS
from fmqcore.batch.columns import decode, encode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import HEADER_LEN, parse_header
from fmqcore.ids import BrokerId
from fmqcore.zk.chain import Chain
from fmqcore.zk.chain_json import chain_from_json
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqport.transport import Stream, TransportError
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire.methods import CREATE_TOPIC, ORDERED_STATUS, ORDERED_SWITCH, PRODUCE

pytestmark = pytest.mark.processes

TOPIC = "changes"
BOUND_S = 60


class Session:
    """One stream of an ordered producer."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.opened = client_pb2.ProduceOpened()
        self.states: list[client_pb2.SenderState] = []
        self.acks: dict[int, client_pb2.ProduceAck] = {}
        self.heard = asyncio.Event()
        self.ended: TransportError | None = None
        self.error: client_pb2.Error | None = None

    async def read(self) -> None:
        try:
            while (reply := await self.stream.receive()) is not None:
                if reply.HasField("opened"):
                    self.opened = reply.opened
                if reply.HasField("sender_state"):
                    self.states.append(reply.sender_state)
                if reply.HasField("error"):
                    self.error = reply.error
                for ack in reply.acks:
                    self.acks[ack.correlation] = ack
                self.heard.set()
        except TransportError as error:
            self.ended = error
            self.heard.set()

    async def until(self, seen: "object") -> None:
        async with asyncio.timeout(BOUND_S):
            while not seen():  # type: ignore[operator]
                assert self.ended is None, self.ended
                await self.heard.wait()
                self.heard.clear()

    async def state(self, seen: "object") -> client_pb2.SenderState:
        """Return the first state that is so, from the newest on."""
        await self.until(lambda: self.states and seen(self.states[-1]))  # type: ignore[operator]
        return self.states[-1]


class Rig:
    """A cluster, and a client that speaks the protocol by hand."""

    def __init__(self, cluster: DevCluster, stack: AsyncExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.transport = GrpcTransport()
        self._correlation = 0

    def connect(self, broker: str) -> "object":
        connection = self.transport.connect(self.cluster.brokers[BrokerId(broker)].listen)
        self._stack.push_async_callback(connection.close)
        return connection

    async def create(self) -> int:
        connection = self.connect("g1-0")
        groups = [admin_pb2.ChainGroup(group=g, weight=w) for g, w in (("g1", 2), ("g2", 1))]
        request = admin_pb2.CreateTopicRequest(
            name=TOPIC, queues=1, ordered=admin_pb2.OrderedTopic(groups=groups)
        )
        reply = await connection.call(CREATE_TOPIC, request, 10)  # type: ignore[attr-defined]
        assert not reply.HasField("error"), reply.error
        return int((await self.chain()).topic_id)

    async def chain(self, broker: str = "g2-0") -> Chain:
        connection = self.connect(broker)
        request = admin_pb2.OrderedStatusRequest(topic=TOPIC)
        reply = await connection.call(ORDERED_STATUS, request, 10)  # type: ignore[attr-defined]
        assert not reply.HasField("error"), reply.error
        return chain_from_json(reply.topics[0].chain)

    async def switch(self, segment: int) -> None:
        request = admin_pb2.OrderedSwitchRequest(topic=TOPIC, chain_segment=segment, reason="test")
        connection = self.connect("g2-0")
        reply = await connection.call(ORDERED_SWITCH, request, 10)  # type: ignore[attr-defined]
        assert not reply.HasField("error"), reply.error

    async def open(self, broker: str, name: str = "copier", id: str = "") -> Session:
        stream = await self.connect(broker).open(PRODUCE, 10)  # type: ignore[attr-defined]
        sender = client_pb2.SenderOpen(topic=TOPIC, name=name, sender_id=id)
        opening = client_pb2.ProduceOpen(sender=sender)
        await stream.send(client_pb2.ProduceRequest(open=opening))
        session = Session(stream)
        task = asyncio.create_task(session.read())
        self._stack.callback(task.cancel)
        self._stack.callback(stream.cancel)
        await session.until(lambda: session.states or session.opened.HasField("error"))
        assert not session.opened.HasField("error"), session.opened.error
        return session

    async def send(
        self, to: Session, topic_id: int, state: client_pb2.SenderState, first: int, count: int = 1
    ) -> int:
        """Send one batch, and return its number."""
        self._correlation += 1
        attrs, payload = encode([b"%d" % n for n in range(first, first + count)])
        batch = client_pb2.ProduceBatch(
            correlation=self._correlation,
            topic_id=topic_id,
            record_count=count,
            attrs=attrs,
            payload_crc=crc32c(payload),
            payload=payload,
            chain_segment=state.chain_segment,
            sender_epoch=state.sender_epoch,
            ordered_sequence=first,
        )
        await to.stream.send(client_pb2.ProduceRequest(batches=[batch]))
        return self._correlation

    async def acked(self, by: Session, *numbers: int) -> list[client_pb2.ProduceAck]:
        await by.until(lambda: all(n in by.acks for n in numbers))
        return [by.acks[n] for n in numbers]


@asynccontextmanager
async def rigged(path: Path, **settings: int) -> AsyncIterator[Rig]:
    options = ClusterOptions(groups=2, slaves=1, settings={**SETTINGS, **settings})
    cluster = DevCluster(path, options)
    await cluster.start()
    try:
        async with AsyncExitStack() as stack:
            yield Rig(cluster, stack)
    finally:
        await cluster.stop()


async def test_sends_go_on_in_another_group_when_a_slave_is_killed(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        topic = await rig.create()
        place = await rig.open("g2-1")  # any broker keeps the place
        first = await place.state(lambda s: s.active)
        assert (first.chain_segment, first.group, dict(first.first_sequence)) == (1, "g1", {0: 1})
        data = await rig.open("g1-0", id=place.opened.sender_id)
        sent = [await rig.send(data, topic, first, n, 2) for n in (1, 3, 5)]
        assert [a.code for a in await rig.acked(data, *sent)] == [0, 0, 0]
        assert [data.acks[n].base_offset for n in sent] == [0, 2, 4]

        rig.cluster.kill("g1-1")
        closing = await place.state(lambda s: s.closing_reason)
        assert closing.closing_reason == "g1 lacks g1-1"
        report = client_pb2.SenderReport(chain_segment=1, first_unacked={0: 7})
        await place.stream.send(client_pb2.ProduceRequest(sender_report=report))
        second = await place.state(lambda s: s.chain_segment == 2)
        assert (second.active, second.group, second.closing_reason) == (True, "g2", "")
        assert (dict(second.first_sequence), second.sender_epoch) == ({0: 7}, 1)

        late = await rig.send(data, topic, first, 7)
        [refused] = await rig.acked(data, late)
        assert client_pb2.ErrorCode.Name(refused.code) == "SEGMENT_CLOSED"
        other = await rig.open("g2-0", id=place.opened.sender_id)
        [ack] = await rig.acked(other, await rig.send(other, topic, second, 7, 3))
        assert (ack.code, ack.base_offset) == (0, 0)
        chain = await rig.chain()
        assert (chain.segments[0].end, chain.closing) == ((6,), None)


async def test_next_sender_learns_the_last_record(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        topic = await rig.create()
        place = await rig.open("g1-0", "one")
        state = await place.state(lambda s: s.active)
        waiting = await rig.open("g2-0", "two")
        assert waiting.states[-1].reason.startswith("sender one-")
        await rig.acked(place, await rig.send(place, topic, state, 1, 3))
        place.stream.cancel()
        taken = await waiting.state(lambda s: s.active)
        assert (taken.sender_epoch, dict(taken.first_sequence)) == (2, {0: 4})
        last = taken.last_records[0]
        header = parse_header(last.batch)
        payload = last.batch[HEADER_LEN : HEADER_LEN + header.payload_len]
        values = decode(header.attrs, header.record_count, payload).values
        assert (last.ordered_sequence, values[last.offset - header.base_offset]) == (3, b"3")


async def test_silent_sender_loses_its_place_and_cannot_send(tmp_path: Path) -> None:
    limits = {"consumer_heartbeat_ms": 100, "consumer_dead_after_ms": 2000}
    async with rigged(tmp_path, **limits) as rig:
        topic = await rig.create()
        silent = await rig.open("g2-0", "one")
        assert silent.opened.heartbeat_ms == 100
        state = await silent.state(lambda s: s.active)
        data = await rig.open("g1-0", id=silent.opened.sender_id)  # has no place: no limit
        await rig.acked(data, await rig.send(data, topic, state, 1))
        other = await rig.open("g2-1", "two")

        async def beat() -> None:
            while True:
                await other.stream.send(client_pb2.ProduceRequest())
                await asyncio.sleep(0.1)

        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(beat())
            taken = await other.state(lambda s: s.active)
            assert (taken.sender_epoch, dict(taken.first_sequence)) == (2, {0: 2})
            await data.until(lambda: data.error)
            assert data.error is not None
            code = client_pb2.ErrorCode.Name(data.error.code)
            assert code in ("SENDER_FENCED", "UNAVAILABLE"), data.error
            again = await rig.open("g1-0", id=other.opened.sender_id)
            late = await rig.send(again, topic, state, 2)
            [refused] = await rig.acked(again, late)
            assert client_pb2.ErrorCode.Name(refused.code) == "SENDER_FENCED"
            beating.cancel()


async def test_planned_switch_goes_there_and_back(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        topic = await rig.create()
        place = await rig.open("g1-1")
        masters = {g: await rig.open(f"{g}-0", id=place.opened.sender_id) for g in ("g1", "g2")}
        sequence = 1
        for segment, group in ((1, "g1"), (2, "g2"), (3, "g1")):
            state = await place.state(lambda s, k=segment: s.chain_segment == k and s.active)
            assert (state.group, dict(state.first_sequence)) == (group, {0: sequence})
            sent = [await rig.send(masters[group], topic, state, sequence + i) for i in range(3)]
            assert [a.code for a in await rig.acked(masters[group], *sent)] == [0, 0, 0]
            sequence += 3
            if segment < 3:
                await rig.switch(segment)
                await place.state(lambda s: s.closing_reason)
                report = client_pb2.SenderReport(chain_segment=segment, first_unacked={0: sequence})
                await place.stream.send(client_pb2.ProduceRequest(sender_report=report))
        chain = await rig.chain()
        assert [(s.start, s.end) for s in chain.segments] == [
            ((0,), (3,)),
            ((0,), (3,)),
            ((3,), None),
        ]
