"""Ports of the loopback address for servers that are started next.

They lie below the range of outgoing connections, so no connection takes one while its server is
down (killed and not yet back). They are drawn at random: two processes that choose at the same time
(test workers, clusters for development) hardly ever choose the same. This is no reservation:
nothing is held, and nothing is left.
"""

import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path

LOWEST = 12_000
HIGHEST = 30_000  # Kubernetes gives the next ones to its node ports
TRIES = 200
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port that is free now."""
    return free_ports(1)[0]


def free_ports(count: int, preferred: Sequence[int] = ()) -> list[int]:
    """Return `count` different ports that are free now; preferred ones where those are free.

    0 is no preference. Raises OSError if there are none.
    """
    found: list[int] = []
    with ExitStack() as held:
        for place in range(count):
            first = [port for port in preferred[place : place + 1] if port]
            found.append(next(port for port in _free(held, first) if port not in found))
    return found


def _free(held: ExitStack, first: Sequence[int]) -> Iterator[int]:
    """Yield `first` if it is free, then free random ones, then ports chosen by the kernel."""
    end = _end()
    drawn = (random.randrange(LOWEST, end) for _ in range(TRIES if end > LOWEST else 0))
    for wanted in chain(first, drawn, repeat(0)):
        probe = held.enter_context(socket.socket())
        # As a server does: a connection that has ended does not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            if not wanted:
                raise
        else:
            yield int(probe.getsockname()[1])


def _end() -> int:
    """Return one past the highest port to draw from."""
    try:
        lowest_outgoing = int(OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # another kernel: what IANA says, 49152
        return HIGHEST
    return min(HIGHEST, lowest_outgoing)
