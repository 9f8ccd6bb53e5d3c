"""An error whose text is longer than a gRPC trailer carries."""

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqcore.errors import NotFound
from fmqport.transport import MessageTooLarge, TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import STATUS


async def test_long_error_text_is_shortened_and_keeps_its_kind() -> None:
    """`MessageTooLarge` means that the request was not read, and should be smaller."""

    async def refuse(_: object, __: object) -> admin_pb2.StatusReply:
        raise NotFound("there is no such broker; there are: " + "é" * 20_000)

    transport = GrpcTransport()
    server = await transport.serve("127.0.0.1:0", {STATUS: refuse})
    connection = transport.connect(f"127.0.0.1:{server.port}")
    try:
        with pytest.raises(TransportError, match="there is no such broker") as caught:
            await connection.call(STATUS, admin_pb2.StatusRequest(), 20)
        assert not isinstance(caught.value, MessageTooLarge)
    finally:
        await connection.close()
        await server.close(0)
