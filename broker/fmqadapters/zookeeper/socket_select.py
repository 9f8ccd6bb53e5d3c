"""`select` for kazoo's connection thread, without a separate file descriptor.

kazoo's own version creates and closes an epoll for each wait: four system calls instead of one, and
an idle broker waits twenty times a second. Like kazoo's it has no limit of 1,024 descriptors.
"""

import select
from collections.abc import Sequence
from socket import socket


def ready(
    readers: Sequence[socket],
    writers: Sequence[socket],
    _others: Sequence[socket] = (),
    timeout_s: float | None = None,
) -> tuple[list[socket], list[socket], list[socket]]:
    """As `select.select`. A socket that hung up or failed is ready: its use raises the reason.

    Raises `ValueError` for a closed socket.
    """
    wanted: dict[int, int] = {}
    for sockets, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
        for waiting in sockets:
            wanted[waiting.fileno()] = wanted.get(waiting.fileno(), 0) | event
    poll = select.poll()
    for descriptor, events in wanted.items():
        poll.register(descriptor, events)
    events_of = dict(poll.poll(None if timeout_s is None else max(0.0, timeout_s * 1000)))
    readable = [r for r in readers if events_of.get(r.fileno(), 0) & ~select.POLLOUT]
    writable = [w for w in writers if events_of.get(w.fileno(), 0) & ~select.POLLIN]
    return readable, writable, []
