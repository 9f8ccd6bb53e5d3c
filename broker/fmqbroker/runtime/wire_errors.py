"""Errors in wire form."""

from fmqcore.errors import FmqError
from fmqproto.v1 import client_pb2


def as_error(error: FmqError) -> client_pb2.Error:
    """Return an error in wire form."""
    return client_pb2.Error(
        code=client_pb2.ErrorCode.Name(int(error.code)),
        message=str(error),
    )
