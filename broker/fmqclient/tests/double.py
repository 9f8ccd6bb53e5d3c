"""A small cluster that speaks the real protocol over the real transport, for edge cases.

Not a broker: queues are lists in memory, nothing is stored or replicated. A test sets faults with
`script`: the outcomes of the next batches.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fmqadapters.grpc import GrpcTransport
from fmqclient.tests.double_parts import ConsumeDouble, GroupDouble
from fmqcore.errors import ErrorCode, OutOfSequence, ProducerFenced
from fmqcore.ids import Permission
from fmqport.tests.held_port import held_port
from fmqport.transport import CallContext, Handler, Server, Stream, Transport, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import CONSUME, PRODUCE, ROUTES

Script = Callable[[client_pb2.ProduceBatch], "ErrorCode | str | None"]
"""The outcome of a batch: a code (refused), "lose" (appended, the stream dies), "drop" (not
appended, the stream dies), "unknown" (appended, DELIVERY_UNKNOWN), "hang" (no answer), None: OK."""


class BrokerDouble:
    """One broker of the double."""

    def __init__(self, cluster: "ClusterDouble", name: str, group: GroupDouble) -> None:
        self.cluster = cluster
        self.name = name
        self.group = group
        self.permission = Permission.FULL
        self.settles = False  # without WRITE, answer repeats of what is stored
        self.address = ""
        self.script: Script = lambda batch: None
        self.slow: Callable[[], float] = lambda: 0.0
        self.opened = 0
        self.openings: list[client_pb2.ProduceOpen] = []
        self.requests: list[client_pb2.ProduceRequest] = []
        self.acks: list[tuple[int, int, int]] = []
        self.tokens = True  # answer commit tokens
        self.streams: list[Stream] = []
        self.consumers: list[ConsumeDouble] = []
        self.max_batch_bytes = 0
        self._server: Server | None = None

    async def start(self, routes: Handler | None = None) -> None:
        real = isinstance(self.cluster.transport, GrpcTransport)
        self.address = self.address or f"127.0.0.1:{held_port(self) if real else 0}"
        self._server = await self.cluster.transport.serve(
            self.address,
            {
                ROUTES: routes or self.cluster.routes,
                PRODUCE: self._produce,
                CONSUME: self._consume,
            },
        )
        self.address = f"127.0.0.1:{self._server.port}"

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close(0)

    def reset_streams(self) -> None:
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.cancel()

    async def _produce(self, _: CallContext, stream: Stream) -> None:
        opening = (await stream.receive()).open
        self.opened += 1
        self.openings.append(opening)
        reply = client_pb2.ProduceReply(
            opened=client_pb2.ProduceOpened(
                window_bytes=1 << 20, max_batch_bytes=self.max_batch_bytes
            ),
            epoch=self.group.epoch,
        )
        if self.settles and opening.settle and not self.permission & Permission.WRITE:
            reply.opened.settles_only = True
        elif not self.permission & Permission.WRITE:
            refused = client_pb2.Error(code=client_pb2.NO_PERMISSION, message="not the master")
            reply.opened.error.CopyFrom(refused)
        await stream.send(reply)
        if reply.opened.HasField("error"):
            return
        self.streams.append(stream)
        while (request := await stream.receive()) is not None:
            self.requests.append(request)
            if delay_s := self.slow():
                await asyncio.sleep(delay_s)  # although the producer may have gone
            acks = [self._take(b, opening, stream) for b in request.batches]
            acks = [a for a in acks if a is not None]
            if acks:
                await stream.send(client_pb2.ProduceReply(acks=acks, epoch=self.group.epoch))

    def _take(
        self, batch: client_pb2.ProduceBatch, opening: client_pb2.ProduceOpen, stream: Stream
    ) -> Any:
        ack: Any = client_pb2.ProduceAck(correlation=batch.correlation)
        takes_messages = self.permission & Permission.WRITE
        fate = self.script(batch)
        if not takes_messages:
            fate = ErrorCode.NO_PERMISSION
            if opening.settle and self.settles:
                fate = self.group.settled(batch, opening)
                ack.never_appended = fate is ErrorCode.NO_PERMISSION
        if fate == "hang":
            return None
        if fate == "drop":
            stream.cancel()
            raise TransportError("dropped")
        if isinstance(fate, ErrorCode):
            ack.code, ack.message = int(fate), fate.name
            return ack
        try:
            producer_id = 0 if batch.ack == client_pb2.ONE_WAY else opening.producer_id
            ack.base_offset = self.group.append(batch, producer_id, opening.producer_epoch)
        except (OutOfSequence, ProducerFenced) as error:
            ack.code, ack.message = int(error.code), str(error)
            return ack
        if fate == "lose":
            stream.cancel()
            raise TransportError("lost")
        if fate == "unknown":
            ack.code, ack.message = int(ErrorCode.DELIVERY_UNKNOWN), "not in time"
        return None if batch.ack == client_pb2.ONE_WAY else ack

    async def _consume(self, _: CallContext, stream: Stream) -> None:
        opening = await stream.receive()
        reply = client_pb2.ConsumeReply(
            opened=client_pb2.ConsumeOpened(
                topic_id=self.group.topic_id, queues=4, heartbeat_ms=300
            ),
            epoch=self.group.epoch,
        )
        if not self.permission & Permission.READ:
            refused = client_pb2.Error(code=client_pb2.NO_PERMISSION, message="no reads here")
            reply.opened.error.CopyFrom(refused)
            await stream.send(reply)
            return
        session = ConsumeDouble(self, stream, opening)
        self.consumers.append(session)
        self.streams.append(stream)
        await stream.send(reply)
        await session.run()


class ClusterDouble:
    """Groups of two brokers each: `g1-0` the master, `g1-1` the slave."""

    def __init__(self, groups: int, queues: int, transport: Transport) -> None:
        self.transport = transport
        self.groups = {f"g{n}": GroupDouble(f"g{n}", queues=queues) for n in range(1, groups + 1)}
        self.brokers = {
            f"{name}-{n}": BrokerDouble(self, f"{name}-{n}", group)
            for name, group in self.groups.items()
            for n in range(2)
        }
        for name, broker in self.brokers.items():
            broker.permission = Permission.FULL if name.endswith("-0") else Permission.NONE
        self.topics = {"orders": 1}
        self.shown: dict[str, client_pb2.GroupRoute] = {}  # returned instead of the real route
        self.asked = 0
        self.questions: list[list[str]] = []  # the topics of each

    @property
    def url(self) -> str:
        return "fmq://" + ",".join(b.address for b in self.brokers.values())

    async def routes(
        self, _: CallContext, request: client_pb2.RouteRequest
    ) -> client_pb2.RouteReply:
        self.asked += 1
        self.questions.append(list(request.topics))
        wanted = list(request.topics) or list(self.topics)
        return client_pb2.RouteReply(
            cluster="double",
            groups=[self.shown.get(g) or self.route(g) for g in self.groups],
            topics=[
                client_pb2.TopicRoute(
                    name=name,
                    id=self.topics[name],
                    groups=[
                        client_pb2.TopicGroup(group=g.name, weight=g.weight, queues=g.queues)
                        for g in self.groups.values()
                    ],
                )
                for name in wanted
                if name in self.topics
            ],
        )

    def route(self, group: str) -> client_pb2.GroupRoute:
        return client_pb2.GroupRoute(
            group=group,
            epoch=self.groups[group].epoch,
            mode="MASTER",
            brokers=[
                client_pb2.BrokerRoute(
                    id=b.name, address=b.address, permission=int(b.permission), live=True
                )
                for b in self.brokers.values()
                if b.group.name == group
            ],
        )

    async def knows_only(self, broker: str, topics: dict[str, int]) -> None:
        """Make that broker return only these routes from now on, as if it knew no others."""

        async def routes(
            context: CallContext, request: client_pb2.RouteRequest
        ) -> client_pb2.RouteReply:
            there, self.topics = self.topics, topics
            try:
                return await self.routes(context, request)
            finally:
                self.topics = there

        await self.brokers[broker].stop()
        await self.brokers[broker].start(routes)

    def values(self) -> list[bytes]:
        return [v for g in self.groups.values() for v in g.values()]


@asynccontextmanager
async def cluster(
    groups: int = 1, queues: int = 4, transport: Transport | None = None
) -> AsyncIterator[ClusterDouble]:
    double = ClusterDouble(groups, queues, transport or GrpcTransport())
    try:
        for broker in double.brokers.values():
            await broker.start()
        yield double
    finally:
        for broker in double.brokers.values():
            await broker.stop()


async def until(condition: Callable[[], Any], bound_s: float = 20) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.005)
