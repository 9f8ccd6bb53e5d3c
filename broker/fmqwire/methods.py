"""The methods of the wire protocol: one row per call.

A new call is a `rpc` in `proto/`, a row here, and a handler of that row in a part of the broker
(`fmqbroker/app/server.py` refuses to start without one). Paths and messages come from the generated
descriptors; a test holds that every `rpc` has one row.
"""

from collections.abc import Sequence
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message_factory import GetMessageClass

from fmqport.transport import (
    MAX_CALL_BYTES,
    MAX_MESSAGE_BYTES,
    NO_TIMEOUT,
    Method,
    Plane,
    QuotaClass,
    Right,
)
from fmqproto.v1 import admin_pb2, client_pb2, replication_pb2, segments_pb2

_rows: Final[list[Method]] = []


def _row(
    file: FileDescriptor,
    name: str,
    plane: Plane,
    right: Right,
    quota: QuotaClass,
    *,
    idempotent: bool,
    timeout_s: float,
    max_request_bytes: int = MAX_CALL_BYTES,
) -> Method:
    """Add the row of `Service.Method` to the table."""
    service, _, method = name.partition(".")
    found = file.services_by_name[service].methods_by_name[method]
    row = Method(
        path=f"/{found.containing_service.full_name}/{method}",
        request=GetMessageClass(found.input_type),
        reply=GetMessageClass(found.output_type),
        streaming=found.client_streaming,
        plane=plane,
        right=right,
        quota=quota,
        idempotent=idempotent,
        timeout_s=timeout_s,
        max_request_bytes=max_request_bytes,
    )
    _rows.append(row)
    return row


# ---- messages in and out
_FILE = client_pb2.DESCRIPTOR
PRODUCE: Final = _row(
    _FILE, "Client.Produce", Plane.DATA, Right.PRODUCE, QuotaClass.PRODUCE,
    idempotent=False, timeout_s=NO_TIMEOUT,
)  # fmt: skip
CONSUME: Final = _row(
    _FILE, "Client.Consume", Plane.DATA, Right.CONSUME, QuotaClass.CONSUME,
    idempotent=False, timeout_s=NO_TIMEOUT,
)  # fmt: skip
ROUTES: Final = _row(
    _FILE, "Client.Routes", Plane.DATA, Right.DESCRIBE, QuotaClass.REQUEST,
    idempotent=True, timeout_s=1.5,
)  # fmt: skip

# ---- between brokers
_FILE = replication_pb2.DESCRIPTOR
REPLICATE: Final = _row(
    _FILE, "Replication.Replicate", Plane.REPLICATION, Right.REPLICATE, QuotaClass.UNLIMITED,
    idempotent=False, timeout_s=NO_TIMEOUT,
)  # fmt: skip
HAND_OVER: Final = _row(
    _FILE, "Replication.HandOver", Plane.REPLICATION, Right.REPLICATE, QuotaClass.UNLIMITED,
    idempotent=True, timeout_s=NO_TIMEOUT,  # the caller's setting `dead_after_ms`
    max_request_bytes=MAX_MESSAGE_BYTES,  # the offsets of all consumer groups
)  # fmt: skip
GROUP_ENDS: Final = _row(
    _FILE, "Replication.GroupEnds", Plane.REPLICATION, Right.REPLICATE, QuotaClass.UNLIMITED,
    idempotent=True, timeout_s=1.0,
)  # fmt: skip
CHAIN_COPIES: Final = _row(
    _FILE, "Replication.ChainCopies", Plane.REPLICATION, Right.REPLICATE, QuotaClass.UNLIMITED,
    idempotent=True, timeout_s=1.0,
)  # fmt: skip

# ---- administration
_FILE = admin_pb2.DESCRIPTOR
CREATE_TOPIC: Final = _row(
    _FILE, "Admin.CreateTopic", Plane.ADMIN, Right.MANAGE_TOPICS, QuotaClass.REQUEST,
    idempotent=False, timeout_s=10.0,
)  # fmt: skip
ALTER_TOPIC: Final = _row(
    _FILE, "Admin.AlterTopic", Plane.ADMIN, Right.MANAGE_TOPICS, QuotaClass.REQUEST,
    idempotent=True, timeout_s=10.0,
)  # fmt: skip
DELETE_TOPIC: Final = _row(
    _FILE, "Admin.DeleteTopic", Plane.ADMIN, Right.MANAGE_TOPICS, QuotaClass.REQUEST,
    idempotent=False, timeout_s=10.0,
)  # fmt: skip
OFFSETS: Final = _row(
    _FILE, "Admin.Offsets", Plane.ADMIN, Right.DESCRIBE, QuotaClass.REQUEST,
    idempotent=True, timeout_s=10.0,
)  # fmt: skip
SEEK: Final = _row(
    _FILE, "Admin.Seek", Plane.ADMIN, Right.MANAGE_GROUPS, QuotaClass.REQUEST,
    idempotent=False, timeout_s=10.0,
)  # fmt: skip
DELETE_GROUP: Final = _row(
    _FILE, "Admin.DeleteGroup", Plane.ADMIN, Right.MANAGE_GROUPS, QuotaClass.REQUEST,
    idempotent=False, timeout_s=10.0,
)  # fmt: skip
STATUS: Final = _row(
    _FILE, "Admin.Status", Plane.ADMIN, Right.DESCRIBE, QuotaClass.REQUEST,
    idempotent=True, timeout_s=2.0,
)  # fmt: skip
ORDERED_STATUS: Final = _row(
    _FILE, "Admin.OrderedStatus", Plane.ADMIN, Right.DESCRIBE, QuotaClass.REQUEST,
    idempotent=True, timeout_s=10.0,
)  # fmt: skip
ORDERED_SWITCH: Final = _row(
    _FILE, "Admin.OrderedSwitch", Plane.ADMIN, Right.MANAGE_TOPICS, QuotaClass.REQUEST,
    idempotent=True, timeout_s=10.0,
)  # fmt: skip
ORDERED_RELEASE: Final = _row(
    _FILE, "Admin.OrderedRelease", Plane.ADMIN, Right.MANAGE_TOPICS, QuotaClass.REQUEST,
    idempotent=True, timeout_s=10.0,
)  # fmt: skip

# ---- stored segments, for data jobs
_FILE = segments_pb2.DESCRIPTOR
SEGMENTS: Final = _row(
    _FILE, "Segments.List", Plane.DATA, Right.SCAN, QuotaClass.SCAN,
    idempotent=True, timeout_s=5.0,
)  # fmt: skip
READ_SEGMENT: Final = _row(
    _FILE, "Segments.Read", Plane.DATA, Right.SCAN, QuotaClass.SCAN,
    idempotent=True, timeout_s=NO_TIMEOUT,
)  # fmt: skip

METHODS: Final[Sequence[Method]] = tuple(_rows)
"""All rows."""
