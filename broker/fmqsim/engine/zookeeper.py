"""The simulated ZooKeeper as the world uses it: an ensemble, sessions, faults on the way to it.

Layers: `zookeeper_tree.py` (the tree, pure), `zookeeper_servers.py` (history, sessions, servers
that lag or die), `zookeeper_wire.py` (connections and routes), `adapters/coordination.py` (a client
like kazoo).
"""

from fmqsim.adapters.coordination import SimCoordination
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process
from fmqsim.engine.zookeeper_servers import Servers
from fmqsim.engine.zookeeper_wire import Break, Route

__all__ = ["Break", "Ensemble", "Route"]


class Ensemble(Servers):
    """All servers and the ways to them."""

    def __init__(self, loop: SimLoop, *, servers: int = 3) -> None:
        super().__init__(loop, servers=servers)
        self._routes: dict[str, Route] = {}

    def session(self, process: Process, timeout_ms: int) -> SimCoordination:
        """The coordination port of one process; to be started by it."""
        return SimCoordination(self, self.route(process.node.name), process, timeout_ms=timeout_ms)

    def route(self, node: str) -> Route:
        """The network between that machine and all servers: cut, hold, heal, break_next."""
        if node not in self._routes:
            self._routes[node] = Route(self, node)
        return self._routes[node]

    def heal_all(self) -> None:
        """Every route is whole, every server up and in touch with its leader."""
        for node in sorted(self._routes):
            self._routes[node].heal()
        for server in self.servers:
            server.cut_off_until = min(server.cut_off_until, self.loop.now)
            self.start_server(server.number)
        self.late_watch_s = (0.0, 0.002)

    def lose_quorum(self, seconds: float) -> None:
        """Most servers die; they are back after so long."""
        most = self.random.sample(range(len(self.servers)), len(self.servers) // 2 + 1)
        for number in most:
            self.stop_server(number)
            self.loop.at_world(seconds, self.start_server, number)

    def peek(self, path: str) -> bytes | None:
        """What the node holds, as the leader knows it."""
        node = self.truth.nodes.get(path)
        return None if node is None else node.data
