"""The table of methods, the handlers of all parts, and what stands around them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from structlog.testing import capture_logs

from fmqadapters.grpc import GrpcTransport
from fmqbroker.admin.ordered_topics import OrderedAdmin
from fmqbroker.admin.service import AdminService
from fmqbroker.admin.topics import TopicAdmin
from fmqbroker.app.interceptors import STANDARD
from fmqbroker.app.server import around, bind
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.service import FetchService
from fmqbroker.data.segment_service import SegmentService
from fmqbroker.failover.loop import Failover
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.ordered.group_ends import GroupEnds
from fmqbroker.produce.service import ProduceService
from fmqbroker.replication.master import MasterReplication
from fmqbroker.tests.calls import Part
from fmqbroker.tests.pipes import BrokerEnd, Pipe
from fmqcore.errors import ErrorCode, NotFound, Unsupported
from fmqport.coordination import ConnectionLost
from fmqport.transport import (
    ANONYMOUS,
    NO_TIMEOUT,
    CallContext,
    CallRefused,
    Connection,
    Handler,
    Handlers,
    Interceptor,
    Principal,
    Right,
    Stream,
    TransportError,
)
from fmqproto.v1 import admin_pb2, client_pb2, replication_pb2, segments_pb2
from fmqproto.v1.client_pb2 import ProduceReply, ProduceRequest
from fmqwire.methods import DELETE_TOPIC, METHODS, PRODUCE, SEEK, STATUS

SOON = 20.0
FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR for module in (admin_pb2, client_pb2, replication_pb2, segments_pb2)
)
PARTS: tuple[type[Part], ...] = (
    AdminService,
    TopicAdmin,
    OrderedAdmin,
    ClusterView,
    FetchService,
    SegmentService,
    Failover,
    ProduceService,
    MasterReplication,
    GroupEnds,
    ChainCopies,
)


def handlers_of_parts() -> list[Handlers]:
    """The parts are not put together here: which calls they serve does not depend on it."""
    parts: list[Part] = [part.__new__(part) for part in PARTS]
    return [part.handlers for part in parts]


# ---- the table
def test_every_rpc_of_the_protos_has_one_row() -> None:
    rpcs = [
        (f"/{service.full_name}/{rpc.name}", rpc.client_streaming, rpc.server_streaming)
        for file in FILES
        for service in file.services_by_name.values()
        for rpc in service.methods
    ]
    assert sorted((m.path, m.streaming, m.streaming) for m in METHODS) == sorted(rpcs)


def test_every_call_has_a_timeout_or_a_caller_that_sets_one() -> None:
    assert all(m.timeout_s == NO_TIMEOUT for m in METHODS if m.streaming)
    without = [m.path for m in METHODS if not m.streaming and m.timeout_s == NO_TIMEOUT]
    assert without == ["/fmqproto.v1.Replication/HandOver"]


def test_every_row_has_one_handler_in_the_parts() -> None:
    bound = bind(handlers_of_parts())
    assert set(bound) == set(METHODS)


def test_row_without_a_handler_is_refused_at_start() -> None:
    planted = replace(STATUS, path="/fmqproto.v1.Admin/Planted")
    with pytest.raises(AssertionError, match=r"without a handler: \['/fmqproto.v1.Admin/Planted'"):
        bind(handlers_of_parts(), methods=(*METHODS, planted))


def test_handler_without_a_row_or_beside_another_is_refused() -> None:
    parts = handlers_of_parts()
    with pytest.raises(AssertionError, match=r"without a row: \['/fmqproto.v1.Admin/Status'"):
        bind(parts, methods=[m for m in METHODS if m is not STATUS])
    with pytest.raises(AssertionError, match="Admin/Status has two handlers"):
        bind([*parts, {STATUS: parts[0][STATUS]}])


# ---- around every call
async def status(context: CallContext, _: admin_pb2.StatusRequest) -> admin_pb2.StatusReply:
    return admin_pb2.StatusReply(broker=context.principal.name)


async def seek(_: CallContext, request: admin_pb2.SeekRequest) -> admin_pb2.SeekReply:
    if request.topic == "bug":
        raise ZeroDivisionError
    raise NotFound("no such group")


async def produce(_: CallContext, stream: Stream) -> None:
    while await stream.receive() is not None:
        await stream.send(ProduceReply(epoch=7))


HANDLERS: Handlers = {STATUS: status, SEEK: seek, PRODUCE: produce}


@asynccontextmanager
async def served(
    interceptors: Sequence[Interceptor] = (),
) -> AsyncIterator[Callable[[], Connection]]:
    """Serve over gRPC; yield a function that connects."""
    handlers = bind([HANDLERS], methods=tuple(HANDLERS), interceptors=(*STANDARD, *interceptors))
    transport, connections = GrpcTransport(), list[Connection]()
    server = await transport.serve("127.0.0.1:0", handlers)
    address = f"127.0.0.1:{server.port}"

    def connect() -> Connection:
        connections.append(transport.connect(address))
        return connections[-1]

    async with asyncio.timeout(SOON):
        yield connect
        for connection in connections:
            await connection.close()
        await server.close(0)


class Access:
    """A planted part: the first peer that calls is alice, others are mallory and may not write."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    async def identify(self, context: CallContext, request: Any, handler: Handler) -> Any:
        assert context.principal == ANONYMOUS
        if context.peer not in self.peers:
            self.peers.append(context.peer)
        name = "alice" if context.peer == self.peers[0] else "mallory"
        return await handler(context._replace(principal=Principal(name)), request)

    async def check(self, context: CallContext, request: Any, handler: Handler) -> Any:
        right, name = context.method.right, context.principal.name
        if right in (Right.PRODUCE, Right.MANAGE_GROUPS) and name != "alice":
            raise Unsupported(f"{name} lacks the right {right.value}")
        return await handler(context, request)


async def opened_and_read(connection: Connection) -> Any:
    stream = await connection.open(PRODUCE, SOON)  # may find out already
    return await stream.receive()


async def test_planted_part_denies_a_right_by_principal() -> None:
    access = Access()
    async with served((access.identify, access.check)) as connect:
        alice, mallory = connect(), connect()
        for name, connection in (("alice", alice), ("mallory", mallory)):
            reply = await connection.call(STATUS, admin_pb2.StatusRequest(), SOON)
            assert reply.broker == name
        allowed = await alice.call(SEEK, admin_pb2.SeekRequest(), SOON)
        denied = await mallory.call(SEEK, admin_pb2.SeekRequest(), SOON)
        assert allowed.error.code == ErrorCode.NOT_FOUND, "the handler's own"
        assert denied.error.code == ErrorCode.UNSUPPORTED
        assert denied.error.message == "mallory lacks the right manage_groups"
        stream = await alice.open(PRODUCE, SOON)
        await stream.send(ProduceRequest())
        assert (await stream.receive()).epoch == 7
        with pytest.raises(CallRefused, match="mallory lacks the right produce") as caught:
            await opened_and_read(mallory)
        assert type(caught.value.error) is Unsupported


async def test_call_without_an_error_in_its_reply_is_refused_typed() -> None:
    async def deny(_: CallContext, __: Any, ___: Handler) -> Any:
        raise Unsupported("no")

    async with served((deny,)) as connect:
        with pytest.raises(CallRefused) as caught:
            await connect().call(STATUS, admin_pb2.StatusRequest(), SOON)
        assert type(caught.value.error) is Unsupported


async def test_bug_in_a_handler_is_logged_with_its_call() -> None:
    handler = around(seek, STANDARD)
    context = CallContext(SEEK, "10.0.0.7:4711", Principal("alice"), trace_id="00-0af7-b7ad-01")
    with capture_logs() as lines:
        with pytest.raises(ZeroDivisionError):
            await handler(context, admin_pb2.SeekRequest(topic="bug"))
        await handler(context, admin_pb2.SeekRequest())
    (line,) = lines
    assert isinstance(line.pop("exc_info"), ZeroDivisionError)
    assert line == {
        "event": "handler_failed",
        "log_level": "error",
        "method": SEEK.path,
        "peer": "10.0.0.7:4711",
        "principal": "alice",
        "trace": "00-0af7-b7ad-01",
    }


async def test_bug_in_a_handler_is_no_typed_refusal() -> None:
    async with served() as connect:
        with pytest.raises(TransportError) as caught:
            await connect().call(SEEK, admin_pb2.SeekRequest(topic="bug"), SOON)
        assert not isinstance(caught.value, CallRefused)


async def test_call_after_its_deadline_is_not_started() -> None:
    started: list[Any] = []

    async def note(_: CallContext, request: Any) -> admin_pb2.SeekReply:
        started.append(request)
        return admin_pb2.SeekReply()

    handler, now = around(note, STANDARD), asyncio.get_running_loop().time()
    context = CallContext(SEEK, "test", deadline=now + SOON)
    assert not (await handler(context, 1)).HasField("error")
    late = await handler(context._replace(deadline=now), 2)
    assert late.error.code == ErrorCode.UNAVAILABLE
    assert started == [1]


async def test_without_zookeeper_the_call_and_the_next_step_are_named() -> None:
    async def delete(context: CallContext, request: Any) -> Any:
        raise ConnectionLost("cannot read /fmq/dev/topics/dd: not connected to ZooKeeper zk:2181")

    handler = around(delete, STANDARD)
    reply = await handler(
        CallContext(DELETE_TOPIC, "test"), admin_pb2.DeleteTopicRequest(name="dd")
    )
    assert reply.error.code == ErrorCode.UNAVAILABLE
    first, _, rest = reply.error.message.partition(". ")
    assert first == "cannot delete topic dd now: this broker has no connection with ZooKeeper"
    assert rest.startswith("Start ZooKeeper; ")
    assert "not connected to ZooKeeper zk:2181" in rest
    with pytest.raises(ConnectionLost, match="cannot open the producer now"):
        await handler(CallContext(PRODUCE, "test"), object())


async def test_interceptors_stand_in_their_order_and_see_a_stream_once() -> None:
    seen: list[str] = []

    def named(name: str) -> Interceptor:
        async def intercept(context: CallContext, request: Any, handler: Handler) -> Any:
            seen.append(name)
            try:
                return await handler(context, request)
            finally:
                seen.append(f"/{name}")

        return intercept

    pipe = Pipe()
    for _ in range(3):
        pipe.requests.put_nowait(client_pb2.ProduceRequest())
    pipe.requests.put_nowait(None)
    handler = around(produce, (named("a"), named("b")))
    await handler(CallContext(PRODUCE, "test"), BrokerEnd(pipe))
    assert pipe.replies.qsize() == 3
    assert seen == ["a", "b", "/b", "/a"]
