"""The transport port over gRPC: opens connections and servers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fmqadapters.grpc.client import GrpcConnection
from fmqport.transport import CallHandler, Method, StreamHandler

if TYPE_CHECKING:
    from fmqadapters.grpc.server import GrpcServer


class GrpcTransport:
    """The real `Transport`. Holds no state."""

    def connect(self, address: str) -> GrpcConnection:
        """See `Transport`."""
        return GrpcConnection(address)

    async def serve(
        self,
        address: str,
        *,
        calls: Mapping[Method, CallHandler],
        streams: Mapping[Method, StreamHandler],
    ) -> "GrpcServer":
        """See `Transport`."""
        from fmqadapters.grpc.server import GrpcServer  # only now: a client has no broker's log

        return await GrpcServer.listen(address, calls=calls, streams=streams)
