"""The methods of the wire protocol, read from the generated descriptors: no names by hand."""

from dataclasses import replace
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message_factory import GetMessageClass

from fmqport.transport import MAX_MESSAGE_BYTES, Method
from fmqproto.v1 import admin_pb2, client_pb2, replication_pb2, segments_pb2


def _methods(file: FileDescriptor, service: str) -> dict[str, Method]:
    found = file.services_by_name[service]
    return {
        method.name: Method(
            path=f"/{found.full_name}/{method.name}",
            request=GetMessageClass(method.input_type),
            reply=GetMessageClass(method.output_type),
            streaming=method.client_streaming,
        )
        for method in found.methods
    }


_CLIENT = _methods(client_pb2.DESCRIPTOR, "Client")
_REPLICATION = _methods(replication_pb2.DESCRIPTOR, "Replication")
_ADMIN = _methods(admin_pb2.DESCRIPTOR, "Admin")
_SEGMENTS = _methods(segments_pb2.DESCRIPTOR, "Segments")

PRODUCE: Final = _CLIENT["Produce"]
CONSUME: Final = _CLIENT["Consume"]
ROUTES: Final = _CLIENT["Routes"]
REPLICATE: Final = _REPLICATION["Replicate"]
HAND_OVER: Final = replace(_REPLICATION["HandOver"], max_request_bytes=MAX_MESSAGE_BYTES)
"""The request carries the offsets of all consumer groups."""
CREATE_TOPIC: Final = _ADMIN["CreateTopic"]
ALTER_TOPIC: Final = _ADMIN["AlterTopic"]
DELETE_TOPIC: Final = _ADMIN["DeleteTopic"]
OFFSETS: Final = _ADMIN["Offsets"]
SEEK: Final = _ADMIN["Seek"]
DELETE_GROUP: Final = _ADMIN["DeleteGroup"]
STATUS: Final = _ADMIN["Status"]
SEGMENTS: Final = _SEGMENTS["List"]
READ_SEGMENT: Final = _SEGMENTS["Read"]
