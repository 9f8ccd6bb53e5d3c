"""The table from the wire's methods to the parts of a broker that serve them.

No decisions are made here: each part checks what a caller may do.
"""

from collections.abc import Mapping

from fmqbroker.admin.service import AdminService
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.service import FetchService
from fmqbroker.data.segment_service import SegmentService
from fmqbroker.failover.loop import Failover
from fmqbroker.produce.service import ProduceService
from fmqbroker.replication.master import MasterReplication
from fmqport.transport import CallHandler, Method, StreamHandler
from fmqproto.v1 import client_pb2
from fmqwire import methods


def streams_of(
    produce: ProduceService,
    fetch: FetchService,
    master: MasterReplication,
    segments: SegmentService,
) -> Mapping[Method, StreamHandler]:
    """Return the handlers of the bidirectional streams."""
    return {
        methods.PRODUCE: produce.serve,
        methods.CONSUME: fetch.serve,
        methods.REPLICATE: master.serve,
        methods.READ_SEGMENT: segments.serve,
    }


def calls_of(
    view: ClusterView, failover: Failover, admin: AdminService, segments: SegmentService
) -> Mapping[Method, CallHandler]:
    """Return the handlers of calls with one request and one reply."""

    async def routes(request: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        return await view.routes(request.topics)

    return {
        methods.ROUTES: routes,
        methods.HAND_OVER: failover.on_hand_over,
        methods.CREATE_TOPIC: admin.create_topic,
        methods.ALTER_TOPIC: admin.alter_topic,
        methods.DELETE_TOPIC: admin.delete_topic,
        methods.OFFSETS: admin.offsets,
        methods.SEEK: admin.seek,
        methods.DELETE_GROUP: admin.delete_group,
        methods.STATUS: admin.status,
        methods.SEGMENTS: segments.list,
    }
