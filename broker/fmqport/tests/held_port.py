"""Reserve a loopback port for a test while its server is down.

A restarted server needs its old port, which the kernel could meanwhile give to a test running
beside this one. A socket that is bound and does not listen prevents that; the server may still take
the port, because both set SO_REUSEADDR. Dialing the port while the server is down is refused as
usual.
"""

import socket
import weakref


def held_port(owner: object) -> int:
    """Return an unused port, held as long as `owner` lives."""
    held = socket.socket()
    weakref.finalize(owner, held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1])
