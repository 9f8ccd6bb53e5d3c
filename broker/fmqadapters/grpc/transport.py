"""The transport port over gRPC: opens connections and servers."""

from typing import TYPE_CHECKING

from fmqadapters.grpc.client import GrpcConnection
from fmqport.transport import Handlers

if TYPE_CHECKING:
    from fmqadapters.grpc.server import GrpcServer


class GrpcTransport:
    """The real `Transport`. Holds no state."""

    def connect(self, address: str) -> GrpcConnection:
        """See `Transport`."""
        return GrpcConnection(address)

    async def serve(self, address: str, handlers: Handlers) -> "GrpcServer":
        """See `Transport`."""
        from fmqadapters.grpc.server import GrpcServer  # only now: a client needs no server

        return await GrpcServer.listen(address, handlers)
