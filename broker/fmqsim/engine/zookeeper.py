"""The simulated ZooKeeper: an ensemble, sessions, and faults on the way to them.

Layers: `zookeeper_tree.py` (the tree, pure), `zookeeper_servers.py` (history, sessions, servers
that lag or die), `zookeeper_wire.py` (connections and routes). A client like kazoo is in
`adapters/coordination.py`.
"""

from fmqsim.engine.loop import SimLoop
from fmqsim.engine.zookeeper_servers import Servers
from fmqsim.engine.zookeeper_wire import Break, Route

__all__ = ["Break", "Ensemble", "Route"]


class Ensemble(Servers):
    """All servers and the routes to them."""

    def __init__(self, loop: SimLoop, *, servers: int = 3) -> None:
        super().__init__(loop, servers=servers)
        self._routes: dict[str, Route] = {}

    def route(self, node: str) -> Route:
        """Return the network between a machine and all servers: cut, hold, heal, break_next."""
        if node not in self._routes:
            self._routes[node] = Route(self, node)
        return self._routes[node]

    def heal_all(self) -> None:
        """Restore every route, start every server and reconnect it to the leader."""
        for node in sorted(self._routes):
            self._routes[node].heal()
        for server in self.servers:
            server.cut_off_until = min(server.cut_off_until, self.loop.now)
            self.start_server(server.number)
        self.late_watch_s = (0.0, 0.002)

    def lose_quorum(self, seconds: float) -> None:
        """Stop a majority of the servers, and start them again after `seconds`."""
        most = self.random.sample(range(len(self.servers)), len(self.servers) // 2 + 1)
        for number in most:
            self.stop_server(number)
            self.loop.at_world(seconds, self.start_server, number)

    def peek(self, path: str) -> bytes | None:
        """Return a node's data as the leader knows it, or None if there is no such node."""
        node = self.truth.nodes.get(path)
        return None if node is None else node.data
