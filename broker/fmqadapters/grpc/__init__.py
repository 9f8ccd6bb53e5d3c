"""Adapter of the transport port, and the project's one door to gRPC.

| file | what it is |
|---|---|
| `options.py` | every gRPC option that FMQ sets, and why |
| `client.py` | a connection: dialling, calls, the client's end of a stream |
| `server.py` | a listening server: dispatch by method, the server's end of a stream |
| `error_codes.py`, `error_text.py` | a failed call: its typed error, its text |

Messages are serialised here, by protobuf; gRPC itself only ever sees bytes. Leaves nothing on disk.
"""

import os

from fmqcore.extras import what_is_missing

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes to stderr
# gRPC's core reads and writes sockets in the thread with which asyncio's adapter polls, not in a
# thread pool: two thread hops fewer per message (docs/benchmarks.md).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
# Its core stops and restarts its threads around each fork of the process, and then crashes or hangs
# while connections come and go. A forked process may not use its parent's client anyway.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

try:
    from fmqadapters.grpc.transport import GrpcTransport
except ImportError as error:
    if hint := what_is_missing(error):
        raise ModuleNotFoundError(hint, name=error.name) from None
    raise

__all__ = ["GrpcTransport"]
