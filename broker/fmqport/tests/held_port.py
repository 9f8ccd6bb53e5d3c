"""A port of the loopback address that stays a test's own while its server is down.

A server that is started again wants the port that it had, which the kernel would give meanwhile to
whoever asks for any port: a test that runs beside this one. A socket that is bound and does not
listen keeps it from that; a server of ours may have the port all the same, since both say that
they share it (SO_REUSEADDR). Who dials it while the server is down is refused, as ever.
"""

import socket
import weakref


def held_port(owner: object) -> int:
    """A port that nobody uses, held for as long as `owner` lives."""
    held = socket.socket()
    weakref.finalize(owner, held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1])
