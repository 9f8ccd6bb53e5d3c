"""The transport port over gRPC: opens connections and servers."""

from collections.abc import Mapping

from fmqadapters.grpc.client import GrpcConnection
from fmqadapters.grpc.server import GrpcServer
from fmqport.transport import CallHandler, Method, StreamHandler


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
    ) -> GrpcServer:
        """See `Transport`."""
        return await GrpcServer.listen(address, calls=calls, streams=streams)
