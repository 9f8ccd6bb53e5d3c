"""A session that brokers refuse before they answer its opening, over real gRPC."""

from contextlib import AsyncExitStack

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqclient.net.connections import Connections, open_at_first
from fmqcore.errors import CorruptJournal, FmqError, NoPermission, Unsupported
from fmqcore.ids import BrokerId
from fmqcore.routing import BrokerRoute
from fmqport.transport import CallContext, Handler, Stream
from fmqproto.v1.client_pb2 import ProduceOpened, ProduceReply, ProduceRequest
from fmqwire.methods import PRODUCE


def answering(error: FmqError | None) -> Handler:
    async def produce(_: CallContext, stream: Stream) -> None:
        if error is not None:
            raise error
        await stream.send(ProduceReply(opened=ProduceOpened()))
        await stream.receive()

    return produce


async def opened_at(*errors: FmqError | None) -> str:
    """Open at brokers that refuse with these errors (None: accept); return which one accepted."""
    async with AsyncExitStack() as stack:
        connections, routes = Connections(GrpcTransport()), list[BrokerRoute]()
        for error in errors:
            server = await GrpcTransport().serve("127.0.0.1:0", {PRODUCE: answering(error)})
            stack.push_async_callback(server.close, 0)
            name = BrokerId(f"g1-{len(routes)}")
            routes.append(BrokerRoute(name, f"127.0.0.1:{server.port}"))
        stack.push_async_callback(connections.close)
        broker, stream, _ = await open_at_first(connections, routes, PRODUCE, ProduceRequest())
        stream.cancel()
        return broker.id


async def test_refusal_of_a_whole_call_reaches_the_client_typed() -> None:
    with pytest.raises(Unsupported, match="mallory lacks the right produce"):
        await opened_at(Unsupported("mallory lacks the right produce"), None)


@pytest.mark.parametrize("error", [NoPermission("not the master"), CorruptJournal("damaged")])
async def test_other_broker_is_tried_after_no_permission_or_fault(error: FmqError) -> None:
    assert await opened_at(error, None) == "g1-1"
