"""Server end of a simulated ZooKeeper connection, and the network under it.

Requests of one connection are answered in their order: a read waits for the write before it. Both
directions keep order. A `Route` lies between one client machine and the ensemble: each direction
may be held (nothing is reset, nothing gets through, messages wait), or everything is cut (reset,
and refused).
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from fmqadapters.zookeeper.session_core import Request, Verb
from fmqadapters.zookeeper.watches import Watch
from fmqport.coordination import NoNode
from fmqsim.engine.zookeeper_servers import Server, Servers, Session

_HOP_S: Final = (0.0001, 0.001)
_WRITES: Final = (Verb.CREATE, Verb.WRITE, Verb.WRITE_ALL, Verb.DELETE)
_WATCHES: Final = (Verb.WATCH, Verb.WATCH_CHILDREN)


class Break(Enum):
    """How a connection breaks around the next write."""

    BEFORE = "the request is lost"
    AFTER = "it is done and the answer is lost"


class SessionClient(Protocol):
    """The client's end of a session: what servers call (`adapters.coordination.SimLink`)."""

    asked_ms: int

    def connected(self, attempt: int, connection: "Connection") -> None:
        """Handle a server's acceptance of the connection."""
        ...

    def refused(self, attempt: int) -> None:
        """Handle a refusal: no server there, or it does not take this client."""
        ...

    def expired(self, attempt: int) -> None:
        """Handle the end of the session."""
        ...

    def dropped(self, connection: "Connection") -> None:
        """Handle a broken connection."""
        ...

    def ponged(self, connection: "Connection") -> None:
        """Handle the answer to a ping."""
        ...

    def answered(
        self,
        connection: "Connection",
        number: int,
        value: object,
        error: Exception | None,
        zxid: int,
    ) -> None:
        """Handle the answer to a request."""
        ...

    def fired(self, connection: "Connection", watch: Watch) -> None:
        """Handle a fired watch."""
        ...


class Route:
    """The network between one client machine and the ensemble."""

    def __init__(self, ensemble: Servers, who: str) -> None:
        self.who = who
        self.refused = False
        self.break_next: Break | None = None
        self.broken = 0  # so often `break_next` came true
        self.ended_early = 0  # a session: that it is over its client learns, whatever is cut
        self.heard_of = 0  # the last session of which it has learned that
        self.connections: dict[Connection, None] = {}
        self._ensemble = ensemble
        self._held = [False, False]

    @property
    def held(self) -> tuple[bool, bool]:
        """(to the servers, from the servers): whether nothing gets through."""
        return self._held[0], self._held[1]

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._note("cut")
        self.refused = True
        self.reset()

    def hold(self, *, to: bool = True, back: bool = True) -> None:
        """Make a black hole, in one direction or both."""
        self._note(f"held to={to} back={back}")
        self._held = [to, back]

    def heal(self) -> None:
        """Let everything through again, held messages first."""
        if self.refused or any(self._held):
            self._note("heals")
        self.refused, self._held, self.break_next = False, [False, False], None
        for connection in list(self.connections):
            connection.release()

    def reset(self) -> None:
        """Break all connections."""
        for connection in list(self.connections):
            connection.hang_up()

    def dial(
        self, client: SessionClient, attempt: int, server: Server, session: int, zxid: int
    ) -> None:
        """Connect the client to a server for this session (0: a new one)."""
        if session and session == self.ended_early:
            self._later(client.expired, attempt)
        elif not self._held[0]:
            self._later(self._dialled, client, attempt, server, session, zxid)

    # ---- within
    def _dialled(
        self, client: SessionClient, attempt: int, server: Server, number: int, zxid: int
    ) -> None:
        ensemble = self._ensemble
        now = ensemble.loop.now
        if self.refused or not ensemble.serving(server) or zxid > server.tree.zxid:
            self._back(client.refused, attempt)
        elif server.cut_off_until > now:  # only the leader knows the sessions
            args = (client, attempt, server, number, zxid)
            ensemble.loop.at_time(server.cut_off_until, self._dialled, *args)
        elif number and number not in ensemble.sessions:
            self._back(client.expired, attempt)
        else:
            self._admit(client, attempt, server, number)

    def _admit(self, client: SessionClient, attempt: int, server: Server, number: int) -> None:
        ensemble = self._ensemble
        if number:
            session = ensemble.sessions[number]
            ensemble.touch(session)
            ready = ensemble.loop.now
        else:
            session = ensemble.new_session(client.asked_ms, self.who)
            ready = server.applies_at
        for other in ensemble.servers:
            for connection in list(other.connections):
                if connection.session is session:
                    connection.hang_up()  # the session has moved
        connection = Connection(ensemble, self, server, session, client)
        ensemble.loop.at_time(ready, self._back, client.connected, attempt, connection)

    def _back(self, callback: Callable[..., None], *args: Any) -> None:
        if not self._held[1]:
            self._later(callback, *args)

    def _later(self, callback: Callable[..., None], *args: Any) -> None:
        delay = self._ensemble.random.uniform(*_HOP_S)
        self._ensemble.loop.at_world(delay, callback, *args)

    def _note(self, what: str) -> None:
        self._ensemble.loop.note(f"zookeeper's route to {self.who} {what}")


class Connection:
    """One client's connection to one server."""

    def __init__(
        self,
        ensemble: Servers,
        route: Route,
        server: Server,
        session: Session,
        client: SessionClient,
    ) -> None:
        self.session = session
        self.server = server
        self._ensemble = ensemble
        self._loop = ensemble.loop
        self._route = route
        self._client = client
        self._open = True
        self._arrives_at = [0.0, 0.0]
        self._held: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] = ([], [])
        self._asked: deque[tuple[int, Request]] = deque()
        self._busy = False
        self._watches: dict[tuple[str, bool], dict[Watch, None]] = {}
        server.connections[self] = route.connections[self] = None

    # ---- the client's calls
    def ask(self, number: int, request: Request) -> None:
        """Send a request; `client.answered` with its number follows, or `client.dropped`."""
        self._send(0, self._asked_for, number, request)

    def ping(self) -> None:
        """Send a ping; `client.ponged` follows."""
        self._send(0, self._pinged)

    def end_session(self) -> None:
        """End the session in order; `client.dropped` follows."""
        self._send(0, self._end)

    def leave(self) -> None:
        """Close the client's end: its process died, or it gave up."""
        self._send(0, self._gone)

    def release(self) -> None:
        """Send the held messages: the route works again."""
        for direction in (0, 1):
            held = list(self._held[direction])
            self._held[direction].clear()
            for message in held:
                self._send(direction, *message)
        self._forget_if_gone()

    # ---- the server's
    def hang_up(self) -> None:
        """Close the server's end."""
        if self._open:
            self._gone()
            self._send(1, self._client.dropped, self)

    def fire(self, path: str, of_children: bool) -> None:
        """Notify the watchers of a path, once."""
        for watch in self._watches.pop((path, of_children), ()):
            self._send(1, self._client.fired, self, watch)

    # ---- within
    def _send(self, direction: int, callback: Callable[..., None], *args: Any) -> None:
        if self._route.held[direction]:
            self._held[direction].append((callback, *args))
            return
        delay = self._ensemble.random.uniform(*_HOP_S)
        at = self._arrives_at[direction] = max(self._arrives_at[direction], self._loop.now + delay)
        self._loop.at_time(at, callback, *args)

    def _gone(self) -> None:
        self._open = False
        self._asked.clear()
        self._watches.clear()
        self.server.connections.pop(self, None)
        self._forget_if_gone()

    def _forget_if_gone(self) -> None:
        if not self._open and not any(self._held):
            self._route.connections.pop(self, None)

    def _pinged(self) -> None:
        if self._open:
            self._ensemble.hear(self.server, self.session)
            self._send(1, self._client.ponged, self)

    def _end(self) -> None:
        if self._open and self._ensemble.leader is not None:
            self._ensemble.close(self.session)  # once it is applied, the server hangs up

    def _asked_for(self, number: int, request: Request) -> None:
        if not self._open:
            return
        if self._breaks(request, Break.BEFORE):
            return
        self._ensemble.hear(self.server, self.session)
        self._asked.append((number, request))
        self._go_on()

    def _breaks(self, request: Request, how: Break) -> bool:
        if self._route.break_next is not how or request.verb not in _WRITES:
            return False
        self._loop.note(f"zookeeper: {self._route.who}: {request}: {how.value}")
        self._route.break_next = None
        self._route.broken += 1
        self.hang_up()
        return True

    def _go_on(self) -> None:
        while self._asked and not self._busy:
            number, request = self._asked[0]
            if request.verb is Verb.SYNC or request.verb in _WRITES:
                self._busy = True
                hop = 0.0
                if self.server is not self._ensemble.leader:
                    hop = self._ensemble.random.uniform(*_HOP_S)
                self._loop.at_world(hop, self._lead, number, request)
                return
            self._asked.popleft()
            self._read(number, request)

    def _read(self, number: int, request: Request) -> None:
        value: object = None
        error: Exception | None = None
        try:
            value = self.server.tree.read(request)
        except NoNode as missing:
            error = missing
        if request.watch is not None and error is None:
            key = (request.path, request.verb is Verb.WATCH_CHILDREN)
            self._watches.setdefault(key, {})[request.watch] = None
        self._reply(number, value, error)

    def _lead(self, number: int, request: Request) -> None:
        """Handle a write or sync at the leader; the answer comes back in the history's order."""
        ensemble, now = self._ensemble, self._loop.now
        if not self._open or ensemble.leader is None:
            return
        if self.server.cut_off_until > now:
            self._loop.at_time(self.server.cut_off_until, self._lead, number, request)
            return
        if self.session.over:
            self.hang_up()
            return
        value: object = None
        error: Exception | None = None
        if request.verb is not Verb.SYNC:
            late_s = ensemble.delay_of(self.session, request)
            if late_s is None:
                self._loop.note(f"zookeeper: {self._route.who}: {request}: lost")
                self.hang_up()
                return
            if late_s:
                self._loop.note(f"zookeeper: {self._route.who}: {request}: {late_s:.2f} s late")
                self._loop.at_world(late_s, self._lead, number, request)
                return
            value, error = ensemble.write(self.session, request)
        at = max(self.server.applies_at, now)
        self._loop.at_time(at, self._led, number, request, value, error)

    def _led(self, number: int, request: Request, value: object, error: Exception | None) -> None:
        if not self._open or self._breaks(request, Break.AFTER):
            return
        self._busy = False
        self._asked.popleft()
        self._reply(number, value, error)
        self._go_on()

    def _reply(self, number: int, value: object, error: Exception | None) -> None:
        zxid = self.server.tree.zxid
        self._send(1, self._client.answered, self, number, value, error, zxid)
