"""A simulated ZooKeeper ensemble: servers that lag, expiring sessions, faults.

There is one history, in the order in which the leader took the writes. Each server applies it a
little later and answers reads from what it has applied: reads may be stale, unless synced. A
session lives as long as the leader hears from its client. A follower reports its clients to the
leader up to half a tick later, and not at all while it is cut off. Without a quorum no server
serves and no session ends; a new leader gives every session its whole timeout again. Watches live
on one server and one connection and fire once.

The client's side (dial, ping, notice silence) is in `adapters/coordination.py`. All of this runs in
the world, outside any node.
"""

import math
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from fmqadapters.zookeeper.session_core import Request, Verb
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import WALL_START_MS
from fmqsim.engine.zookeeper_tree import Tree, Txn

TICK_S: Final = 0.2
_LONGEST_MS: Final = 120_000
_COMMIT_S: Final = (0.0005, 0.003)
_LAG_S: Final = (0.0002, 0.004)
_ELECTION_S: Final = (0.2, 1.0)


class Session:
    """The leader's record of one session."""

    def __init__(self, number: int, timeout_ms: int, who: str) -> None:
        self.number = number
        self.timeout_ms = timeout_ms
        self.who = who
        self.expires_at = 0.0
        self.over = False


class ClientConnection(Protocol):
    """A client's connection, as its server uses it (`zookeeper_wire.Connection`)."""

    session: Session

    def fire(self, path: str, of_children: bool) -> None:
        """Notify the watchers of a path, once."""
        ...

    def hang_up(self) -> None:
        """Close the server's end."""
        ...


class Server:
    """One member: what it has applied, and its connections."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.up = True
        self.tree = Tree()
        self.connections: dict[ClientConnection, None] = {}
        self.applies_at = 0.0  # nothing later in the history is applied before this
        self.cut_off_until = 0.0  # it does not hear the leader, nor the leader it
        self.heard: dict[Session, None] = {}  # to be reported to the leader


class Servers:
    """All servers and their faults. `truth` is what the leader has committed."""

    def __init__(self, loop: SimLoop, *, servers: int = 3) -> None:
        self.loop = loop
        self.random = Random(loop.random.getrandbits(64))
        self.truth = Tree()
        self.servers = [Server(number) for number in range(servers)]
        self.leader: Server | None = self.servers[0]
        self.sessions: dict[int, Session] = {}
        self.late_watch_s = (0.0, 0.002)  # kazoo's thread that delivers watches
        self.delay_of: Callable[[Session, Request], float | None] = lambda *_: 0.0
        """How many seconds later a write gets to the leader; None: it gets lost."""
        self._made = 0x1000
        self._elections = 0

    # ---- what the world does and sees
    def put(self, path: str, data: bytes) -> None:
        """Create or write a node with all its parents, as if a client had done it just now."""
        names = path.strip("/").split("/")
        for depth in range(1, len(names)):
            above = "/" + "/".join(names[:depth])
            if above not in self.truth.nodes:
                self.commit(Verb.CREATE, (above,))
        self.commit(Verb.WRITE if path in self.truth.nodes else Verb.CREATE, (path,), (data,))

    def expire(self, number: int) -> None:
        """Expire a session now."""
        session = self.sessions.get(number)
        if session is not None:
            self._end(session)

    def session_of(self, who: str) -> int:
        """Return the newest live session of a client; 0 if it has none."""
        return max((s.number for s in self.sessions.values() if s.who == who), default=0)

    def cut_off(self, number: int, seconds: float) -> None:
        """Cut a follower off from the leader for a while: its reads are stale."""
        server = self.servers[number]
        if server is not self.leader:
            self.loop.note(f"zookeeper {number} cut off for {seconds:.2f} s")
            server.cut_off_until = self.loop.now + seconds
            server.applies_at = max(server.applies_at, server.cut_off_until)

    def stop_server(self, number: int) -> None:
        """Stop a server; its clients' connections break."""
        server = self.servers[number]
        if not server.up:
            return
        self.loop.note(f"zookeeper {number} stops")
        server.up = False
        self._drop_all(server)
        server.heard.clear()
        if server is self.leader or not self._majority():
            self._depose()

    def start_server(self, number: int) -> None:
        """Start a server with everything that was committed."""
        server = self.servers[number]
        if server.up:
            return
        self.loop.note(f"zookeeper {number} starts")
        server.up = True
        server.tree = self.truth.copy()
        server.applies_at = server.cut_off_until = 0.0
        if self.leader is None and self._majority():
            self._elect_soon()

    def serving(self, server: Server) -> bool:
        """Whether the server answers clients."""
        return server.up and self.leader is not None

    # ---- sessions
    def new_session(self, timeout_ms: int, who: str) -> Session:
        """Create a session for a client that has none."""
        self._made += 1
        negotiated = max(int(2 * TICK_S * 1000), min(timeout_ms, _LONGEST_MS))
        session = self.sessions[self._made] = Session(self._made, negotiated, who)
        self.touch(session)
        self._watch_over(session)
        self.commit(None)
        return session

    def touch(self, session: Session) -> None:
        """Extend a session: the leader hears from its client."""
        until = self.loop.now + session.timeout_ms / 1000
        session.expires_at = max(session.expires_at, math.ceil(until / TICK_S) * TICK_S)

    def hear(self, server: Server, session: Session) -> None:
        """Hear from a client: at once on the leader, on a follower with the next half tick."""
        if server is self.leader:
            self.touch(session)
        elif session not in server.heard:
            if not server.heard:
                half = TICK_S / 2
                at = max((self.loop.now // half + 1) * half, server.cut_off_until)
                self.loop.at_time(at, self._relay, server)
            server.heard[session] = None

    def close(self, session: Session) -> Txn | None:
        """End a session in order; return None if it is over already."""
        return None if session.over else self._end(session)

    # ---- writing
    def commit(
        self, verb: Verb | None, paths: tuple[str, ...] = (), data: tuple[bytes, ...] = (),
        owner: int = 0, ended: int = 0,
    ) -> Txn:  # fmt: skip
        """Commit a change on the leader; every running server applies it later."""
        wall_ms = WALL_START_MS + int(self.loop.now * 1000)
        txn = Txn(self.truth.zxid + 1, verb, paths, data, owner, ended, wall_ms)
        self.truth.apply(txn)
        agreed = self.loop.now + self.random.uniform(*_COMMIT_S)
        for server in self.servers:
            if server.up:
                lag = 0.0 if server is self.leader else self.random.uniform(*_LAG_S)
                server.applies_at = max(server.applies_at, agreed + lag)
                self.loop.at_time(server.applies_at, self._apply, server, txn)
        return txn

    def write(self, session: Session, request: Request) -> tuple[object, Exception | None]:
        """Return the leader's answer to a write: (what `Verb` names, error).

        If the write is done, `truth.zxid` is its number.
        """
        error = self.truth.refuse(request)
        if error is not None:
            return None, error
        if request.verb is Verb.WRITE_ALL:
            paths = tuple(write.path for write in request.writes)
            self.commit(Verb.WRITE, paths, tuple(write.data for write in request.writes))
            return [self.truth.nodes[path].version for path in paths], None
        path = self.truth.path_of(request)
        owner = session.number if request.ephemeral else 0
        self.commit(request.verb, (path,), (request.data,), owner)
        node = self.truth.nodes.get(path)
        if node is None or request.verb is Verb.CREATE:
            return path, None
        return node.version, None

    # ---- within
    def _apply(self, server: Server, txn: Txn) -> None:
        if not server.up or txn.zxid <= server.tree.zxid:
            return
        concerned = server.tree.apply(txn)
        for connection in list(server.connections):
            for path, of_children in concerned:
                connection.fire(path, of_children)
            if txn.ended and connection.session.number == txn.ended:
                connection.hang_up()

    def _end(self, session: Session) -> Txn:
        session.over = True
        del self.sessions[session.number]
        self.loop.note(f"zookeeper session {session.number:x} of {session.who} ends")
        paths = self.truth.owned_by(session.number)
        return self.commit(Verb.DELETE, paths, ended=session.number)

    def _watch_over(self, session: Session) -> None:
        self.loop.at_time(session.expires_at, self._look_at, session)

    def _look_at(self, session: Session) -> None:
        if session.over:
            return
        if self.leader is not None and self.loop.now >= session.expires_at:
            self._end(session)
        else:
            again = max(session.expires_at, self.loop.now + TICK_S)
            self.loop.at_time(again, self._look_at, session)

    def _relay(self, server: Server) -> None:
        heard, server.heard = server.heard, {}
        if server.up and self.leader is not None:
            for session in heard:
                if not session.over:
                    self.touch(session)

    def _majority(self) -> bool:
        return 2 * sum(server.up for server in self.servers) > len(self.servers)

    def _depose(self) -> None:
        """Remove the leader: no server serves until there is another."""
        self.leader = None
        for server in self.servers:
            self._drop_all(server)
            server.heard.clear()
        if self._majority():
            self._elect_soon()

    def _elect_soon(self) -> None:
        self._elections += 1
        after = self.random.uniform(*_ELECTION_S)
        self.loop.at_world(after, self._elect, self._elections)

    def _elect(self, election: int) -> None:
        if self.leader is not None or election != self._elections or not self._majority():
            return
        up = [server for server in self.servers if server.up]
        self.leader = self.random.choice(up)
        self.loop.note(f"zookeeper {self.leader.number} leads")
        for server in up:  # they begin with all that was committed
            server.tree = self.truth.copy()
            server.applies_at = server.cut_off_until = 0.0
        for session in self.sessions.values():
            self.touch(session)

    def _drop_all(self, server: Server) -> None:
        for connection in list(server.connections):
            connection.hang_up()
