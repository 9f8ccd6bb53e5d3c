"""Simulator adapter of the coordination port: a client like kazoo, on simulated servers.

`SimCoordination` is `fmqadapters.zookeeper.session_core.SteadySession` itself; below it is a `Link`
that does what kazoo's connection thread does: it dials the servers in random order with a growing
back-off, pings after a quiet time, drops a connection that leaves a ping unanswered, and asks for a
new session when the old one has expired. A paused process does none of this; one with a wedged
event loop goes on for a session's timeout, and neither pings nor dials after that.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from fmqadapters.zookeeper.session_core import Answer, Request, SteadySession
from fmqadapters.zookeeper.watches import Watch
from fmqport.coordination import SessionState
from fmqsim.engine.node import Process
from fmqsim.engine.zookeeper import Ensemble
from fmqsim.engine.zookeeper_servers import Servers
from fmqsim.engine.zookeeper_wire import Connection, Route

_UNKNOWN_MS: Final = 10_000
_REDIAL_S: Final = (0.05, 1.0)
_SPREAD: Final = (0.6, 1.4)  # kazoo's max_jitter is 0.4


class SimCoordination(SteadySession):
    """The simulated `Coordination` of one process, which has to start it."""

    def __init__(self, ensemble: Ensemble, process: Process, timeout_ms: int) -> None:
        route = ensemble.route(process.node.name)
        super().__init__(SimLink(ensemble, route, process, timeout_ms), "zookeeper:2181")


class SimLink:
    """The simulated `Link`: kazoo's threads."""

    def __init__(self, ensemble: Servers, route: Route, process: Process, asked_ms: int) -> None:
        self.asked_ms = asked_ms
        self.timeout_ms = 0
        self.session_id = 0
        self._ensemble = ensemble
        self._loop = ensemble.loop
        self._random = ensemble.random
        self._route = route
        self._process = process
        self._on_state: Callable[[SessionState], None] | None = None
        self._state = SessionState.LOST
        self._connection: Connection | None = None
        self._zxid = 0
        self._attempt = 0
        self._cycle: list[int] = []  # servers still to be tried before the next pause
        self._pause_s = _REDIAL_S[0]
        self._asked: dict[int, Answer] = {}
        self._number = 0
        self._closing: asyncio.Future[None] | None = None
        self._stopped = False
        self._wakes_at = 0.0  # kazoo's select returns empty then
        self._sent_at = 0.0
        self._deadline = 0.0
        self._ping_out = False
        self._turned_at = 0.0
        self._frozen: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        process.on_death(self._die)
        process.node.on_stand.append(self._thaw)

    # ---- the port's side
    def open(self, on_state: Callable[[SessionState], None]) -> None:
        """See `Link`."""
        self._process.check()
        self._on_state = on_state
        self.turns()
        self._thread(0.0, self._dial)

    def turns(self) -> None:
        """See `Link`."""
        self._turned_at = self._clock()

    def send(self, request: Request, answer: Answer) -> None:
        """See `Link`."""
        self._process.check()
        if self._connection is not None and not self._stopped:
            self._number += 1
            self._asked[self._number] = answer
            self._connection.ask(self._number, request)
            self._sent_at = self._clock()
            self._select()

    def close(self) -> "asyncio.Future[None]":
        """See `Link`."""
        self._process.check()
        self._on_state = None
        self._closing = self._loop.create_future()
        self._asked.clear()
        if self._connection is not None:
            self._connection.end_session()
        else:
            self._finish()
        return self._closing

    # ---- what the servers say
    def connected(self, attempt: int, connection: Connection) -> None:
        """Handle a server's acceptance of the connection."""
        self._arrive(self._connected, attempt, connection)

    def refused(self, attempt: int) -> None:
        """Handle a refusal: no server there, or it does not take this client."""
        self._arrive(self._failed, attempt)

    def expired(self, attempt: int) -> None:
        """Handle the end of the session."""
        self._arrive(self._expired, attempt)

    def dropped(self, connection: Connection) -> None:
        """Handle a broken connection."""
        self._arrive(self._drop, connection)

    def ponged(self, connection: Connection) -> None:
        """Handle the answer to a ping."""
        self._arrive(self._ponged, connection)

    def answered(
        self, connection: Connection, number: int, value: object, error: Exception | None, zxid: int
    ) -> None:
        """Handle the answer to a request."""
        self._arrive(self._answered, connection, number, value, error, zxid)

    def fired(self, connection: Connection, watch: Watch) -> None:
        """Handle a fired watch."""
        self._arrive(self._fired, connection, watch)

    # ---- kazoo's thread
    def _dial(self) -> None:
        if self._stopped:
            return
        if self._wedged():
            self._thread(_REDIAL_S[1], self._dial)
            return
        if not self._cycle:
            self._cycle = list(range(len(self._ensemble.servers)))
            self._random.shuffle(self._cycle)
        server = self._ensemble.servers[self._cycle.pop()]
        self._attempt += 1
        self._route.dial(self, self._attempt, server, self.session_id, self._zxid)
        known_ms = self.timeout_ms or self.asked_ms
        self._thread(known_ms / 1000 / len(self._ensemble.servers), self._failed, self._attempt)

    def _failed(self, attempt: int) -> None:
        """Dial the next server, after a pause when all were tried."""
        if attempt != self._attempt or self._connection is not None:
            return
        self._attempt += 1  # what comes late for it is refused
        pause_s = 0.0
        if not self._cycle:
            pause_s = self._pause_s * self._random.uniform(*_SPREAD)
            self._pause_s = min(pause_s * 2, _REDIAL_S[1])
        self._thread(pause_s, self._dial)

    def _expired(self, attempt: int) -> None:
        if attempt == self._attempt and self._connection is None:
            self._route.heard_of = self.session_id
            self.session_id = 0
            self._pause_s = _REDIAL_S[0]
            self._notify(SessionState.LOST)
            self._failed(attempt)

    def _connected(self, attempt: int, connection: Connection) -> None:
        if attempt != self._attempt or self._connection is not None or self._stopped:
            connection.leave()
            return
        self._connection = connection
        self._cycle, self._pause_s = [], _REDIAL_S[0]
        self.session_id = connection.session.number
        self.timeout_ms = connection.session.timeout_ms
        self._ping_out = False
        self._sent_at = self._clock()
        self._notify(SessionState.CONNECTED)
        if self._closing is not None:
            connection.end_session()
        self._select()
        self._watch_silence(connection)

    def _drop(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._asked.clear()
        if self._closing is not None:
            self._finish()
            return
        self._notify(SessionState.SUSPENDED)
        self._thread(self._pause_s * self._random.uniform(*_SPREAD), self._dial)

    def _select(self) -> None:
        """Set until when one turn of kazoo's loop waits for something to read or send."""
        jitter_s = self._random.randint(1, 40) / 100
        now = self._clock()
        self._deadline = self._sent_at + self.timeout_ms / 3000 - jitter_s
        self._wakes_at = now + max(self._deadline - now, jitter_s)

    def _watch_silence(self, connection: Connection) -> None:
        """Wake when select would: a ping is due, or was not answered."""
        if connection is not self._connection:
            return
        now = self._clock()
        if now >= self._wakes_at - 1e-6:
            if self._ping_out:
                connection.leave()
                self._drop(connection)
                return
            self._ping_if_due(connection)
            self._select()
        self._thread(max(self._wakes_at - now, 0.001), self._watch_silence, connection)

    def _ping_if_due(self, connection: Connection) -> None:
        if self._clock() >= self._deadline:
            if not self._wedged():
                self._ping_out = True
                connection.ping()
            self._sent_at = self._clock()

    def _heard(self, connection: Connection) -> bool:
        if connection is not self._connection:
            return False
        self._ping_if_due(connection)
        self._select()
        return True

    def _ponged(self, connection: Connection) -> None:
        if connection is self._connection:
            self._ping_out = False
            self._select()

    def _answered(
        self, connection: Connection, number: int, value: object, error: Exception | None, zxid: int
    ) -> None:
        if not self._heard(connection):
            return
        self._zxid = max(self._zxid, zxid)
        answer = self._asked.pop(number, None)
        if answer is not None:
            self._loop.on_node(self._process, answer, value, error)

    def _fired(self, connection: Connection, watch: Watch) -> None:
        if self._heard(connection):
            # Another kazoo thread delivers watches: perhaps later than the answers behind them.
            late = self._random.uniform(*self._ensemble.late_watch_s)
            self._thread(late, self._fire_watch, watch)

    def _fire_watch(self, watch: Watch) -> None:
        if not self._stopped and self._closing is None:
            self._loop.on_node(self._process, watch.fire)

    # ---- within
    def _wedged(self) -> bool:
        return (self._clock() - self._turned_at) * 1000 > (self.timeout_ms or _UNKNOWN_MS)

    def _clock(self) -> float:
        return self._process.node.monotonic()

    def _notify(self, state: SessionState) -> None:
        if state is not self._state and self._on_state is not None:
            self._state = state
            self._loop.note(f"{self._process} zookeeper {state.value} {self.session_id:x}")
            self._loop.on_node(self._process, self._on_state, state)

    def _finish(self) -> None:
        """Settle `close`: the session has ended, or its end will never be known."""
        self._stopped = True
        done = self._closing
        if done is not None and not done.done():
            self._loop.on_node(self._process, _settle, done)

    def _thread(self, delay_s: float, callback: Callable[..., None], *args: Any) -> None:
        """Run a callback on kazoo's thread after `delay_s` of this machine's time."""
        delay_s /= self._process.node.drift
        self._loop.at_world(delay_s, self._arrive, callback, *args)

    def _arrive(self, callback: Callable[..., None], *args: Any) -> None:
        if not self._process.alive or (self._stopped and callback != self._connected):
            return
        if self._process.node.paused:
            self._frozen.append((callback, args))
        else:
            callback(*args)

    def _thaw(self) -> None:
        if not self._process.node.paused:
            frozen, self._frozen = self._frozen, []
            for callback, args in frozen:
                self._arrive(callback, *args)

    def _die(self) -> None:
        """Close the socket, as the kernel does for a dead process."""
        self._stopped = True
        self._frozen.clear()
        self._process.node.on_stand.remove(self._thaw)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()


def _settle(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
