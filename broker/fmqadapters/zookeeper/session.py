"""Adapter of the coordination port: ZooKeeper through kazoo. The one door to kazoo.

kazoo runs in its own threads (one for the connection, two that deliver). Everything crosses to the
event loop by `call_soon_threadsafe`, and what is known of the session is touched on the loop alone,
in `session_core.py`. The address may end in a root, `host:port,host:port/root`: all paths are below
it, and it is created at the start.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from kazoo.retry import ForceRetryError, KazooRetry
from kazoo.security import make_digest_acl

from fmqadapters.zookeeper.hosts import check_address, no_answer_text, unresolved
from fmqadapters.zookeeper.session_core import Answer, Request, SteadySession, Verb
from fmqadapters.zookeeper.socket_select import ready
from fmqadapters.zookeeper.watches import Watch
from fmqcore.errors import Unavailable
from fmqport.coordination import (
    BadVersion,
    ConnectionLost,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
)

_log = structlog.get_logger()

_QUIET: Final = logging.getLogger("fmqadapters.zookeeper.kazoo")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_QUIET.setLevel(logging.CRITICAL)

_UNKNOWN_MS: Final = 10_000  # the session's timeout, until it was negotiated
_REDIAL_MIN_S: Final = 0.05
_REDIAL_MAX_S: Final = 1.0

_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class ZooKeeperSession(SteadySession):
    """The real `Coordination`. `timeout_ms` is the requested one; below 1000 it is unreliable.

    `auth` = `user:password` (digest): nodes created here are then for this user alone.
    """

    def __init__(
        self, address: str, *, timeout_ms: int, auth: str = "", make_root: bool = True
    ) -> None:
        hosts, _, root = check_address(address).partition("/")
        self._kazoo = _KazooLink(hosts, timeout_ms, auth)
        super().__init__(self._kazoo, address, root, make_root=make_root)

    async def start(self, timeout_s: float) -> None:
        """See `Coordination`."""
        try:
            await super().start(timeout_s)
        except ConnectionLost:
            if await unresolved(self._server):
                raise ConnectionLost(await no_answer_text(self._server, timeout_s)) from None
            raise

    async def expire(self) -> None:
        """End this session on the server now, as when it expires. For tests."""
        await asyncio.to_thread(self._kazoo.steal)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection thread, made to never give up and to keep the negotiated timeout.

    While the event loop is wedged it neither pings nor dials: a ping, or a new connection, would
    keep the session. (A loop that is wedged while it holds the interpreter's lock stops this thread
    too.)
    """

    negotiated_ms = 0
    turned_s = 0.0  # by the monotonic clock: when the loop was last known to turn
    _complained = ""  # of what hinders every dial, once a second: logged once

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.negotiated_ms = int(answer[0].time_out)
            self._complained = ""
        return answer

    def _wedged(self) -> bool:
        return (time.monotonic() - self.turned_s) * 1000 > (self.negotiated_ms or _UNKNOWN_MS)

    def _send_ping(self, connect_timeout: float) -> None:
        if not self._wedged():
            super()._send_ping(connect_timeout)

    def _connect_loop(self, retry: KazooRetry) -> Any:
        """Dial again after an error that kazoo does not handle: it would end thread and session."""
        try:
            return super()._connect_loop(retry)
        except (KazooException, ForceRetryError):
            raise
        except Exception as error:
            if repr(error) != self._complained:
                self._complained = repr(error)
                _log.warning("zookeeper_dial_failed", hosts=self.client.hosts, error=repr(error))
            raise ForceRetryError("dial again") from error

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: KazooRetry) -> Any:
        if self._wedged():
            return None
        try:
            status = super()._connect_attempt(host, hostip, port, retry)
        except Exception as error:  # noqa: BLE001 - garbage from the other end: dial again
            _log.warning("zookeeper_unexpected_answer", server=f"{host}:{port}", error=repr(error))
            self.client._session_callback(KeeperState.CONNECTING)
            return None
        refused = status is STOP_CONNECTING and not self.client._stopped.is_set()
        return None if refused else status


@dataclass(frozen=True, slots=True)
class _Fired:
    """Called by kazoo, on its thread, when a watch fires. kazoo keeps equal ones once."""

    link: "_KazooLink"
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # a lost connection: armed again with the next
            self.link.cross(self.watch.fire)


def _pause(seconds: float) -> None:
    """Sleep between two tries. If the system refuses (EINVAL), the next try is only early."""
    with contextlib.suppress(OSError):
        time.sleep(seconds)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a cheaper wait for sockets."""

    select = staticmethod(ready)
    sleep_func = staticmethod(_pause)


class _KazooLink:
    """The real `Link`."""

    def __init__(self, hosts: str, timeout_ms: int, auth: str) -> None:
        user, _, password = auth.partition(":")
        self._hosts = hosts
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout_ms / 1000,
            auth_data=[("digest", auth)] if auth else None,
            default_acl=[make_digest_acl(user, password, all=True)] if auth else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_REDIAL_MIN_S, max_delay=_REDIAL_MAX_S, sleep_func=_pause
            ),
            handler=_Handler(),
            logger=_QUIET,
        )
        self._connection = _Connection(self._client, self._client._conn_retry.copy(), logger=_QUIET)
        self._client._connection = self._connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_state: Callable[[SessionState], None] | None = None

    @property
    def session_id(self) -> int:
        """See `Link`."""
        return (self._client.client_id or (0, b""))[0] or 0

    @property
    def timeout_ms(self) -> int:
        """See `Link`."""
        return self._connection.negotiated_ms

    def open(self, on_state: Callable[[SessionState], None]) -> None:
        """See `Link`."""
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self.turns()
        self._client.add_listener(self._on_thread_state)
        self._client.start_async()

    def turns(self) -> None:
        """See `Link`."""
        self._connection.turned_s = time.monotonic()

    def close(self) -> "asyncio.Future[None]":
        """See `Link`."""
        loop, self._loop = self._loop, None
        assert loop is not None, "it was opened"
        self._client.remove_listener(self._on_thread_state)
        done: asyncio.Future[None] = loop.create_future()
        threading.Thread(target=self._stop_kazoo, args=(loop, done), daemon=True).start()
        return done

    def _stop_kazoo(self, loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
        """Stop kazoo on a separate thread: its stop waits for its threads."""
        with contextlib.suppress(Exception):
            self._client.stop()
            self._client.close()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_finish, done)

    def send(self, request: Request, answer: Answer) -> None:
        """See `Link`."""
        try:
            self._start(request).rawlink(partial(self._answered, request, answer))
        except KazooException as error:
            answer(None, self._translated(request, error))

    def _start(self, request: Request) -> Any:
        client, path = self._client, request.path
        fired = _Fired(self, request.watch) if request.watch is not None else None
        match request.verb:
            case Verb.READ:
                return client.get_async(path)
            case Verb.LIST | Verb.WATCH_CHILDREN:
                return client.get_children_async(path, watch=fired)
            case Verb.WATCH:
                return client.exists_async(path, watch=fired)
            case Verb.SYNC:
                return client.sync_async(path)
            case Verb.CREATE:
                return client.create_async(
                    path, request.data, ephemeral=request.ephemeral, sequence=request.sequential
                )
            case Verb.WRITE:
                return client.set_async(path, request.data, version=request.version)
            case Verb.WRITE_ALL:
                transaction = client.transaction()
                for write in request.writes:
                    transaction.set_data(write.path, write.data, write.version)
                return transaction.commit_async()
            case Verb.DELETE:
                return client.delete_async(path, version=request.version)

    def steal(self) -> None:
        """Let another connection take the session over and close it. Callable on any thread."""
        thief = KazooClient(
            hosts=",".join(f"{host}:{port}" for host, port in self._client.hosts),
            client_id=self._client.client_id,
            timeout=self.timeout_ms / 1000,
            logger=_QUIET,
        )
        thief.start()
        thief.stop()
        thief.close()

    # ---- on kazoo's threads
    def cross(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call` run on the event loop, unless the session was closed."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(call, *arguments)

    def _on_thread_state(self, state: str) -> None:
        if self._on_state is not None:
            self.cross(self._on_state, _STATES[state])

    def _answered(self, request: Request, answer: Answer, result: Any) -> None:
        refused, error = request, result.exception
        if error is None and request.verb is Verb.WRITE_ALL:
            refused, error = _first_refused(request, result.value)
        if error is None:
            self.cross(answer, _value(request.verb, result.value), None)
        else:
            self.cross(answer, None, self._translated(refused, error))

    def _translated(self, request: Request, error: Exception) -> Exception:
        match error:
            case NoNodeError():
                return NoNode(request.path)
            case NodeExistsError():
                return NodeExists(request.path)
            case BadVersionError():
                return BadVersion(request.path)
            case NotEmptyError():
                return NotEmpty(f"cannot {request}: there are nodes below it")
            case SessionExpiredError():
                return SessionExpired(f"cannot {request}: the ZooKeeper session has expired")
            case NoAuthError() | AuthFailedError():
                return Unavailable(
                    f"cannot {request}: ZooKeeper {self._hosts} refuses these credentials: that "
                    "node is for others (its access list)"
                )
            case (
                ConnectionLoss()
                | ConnectionClosedError()
                | OperationTimeoutError()
                | SessionMovedError()
            ):
                return ConnectionLost(
                    f"no answer to {request} from ZooKeeper {self._hosts} "
                    f"({type(error).__name__}): it may or may not have been done"
                )
            case KazooException():
                return Unavailable(f"ZooKeeper {self._hosts} refuses to {request}: {error!r}")
            case _:
                return error


def _value(verb: Verb, value: Any) -> Any:
    """Convert kazoo's answer to the port's."""
    match verb:
        case Verb.READ:
            data, stat = value
            return Node(data, stat.version, stat.ephemeralOwner, stat.mtime)
        case Verb.WRITE:
            return value.version
        case Verb.WRITE_ALL:
            return [written.version for written in value]
        case Verb.WATCH:
            return value is not None
        case _:
            return value


def _first_refused(request: Request, results: list[Any]) -> tuple[Request, Exception | None]:
    """Return the write that ended a transaction, with its error; no error if all were done.

    kazoo returns the errors instead of raising them. The other writes have one, too: that they were
    rolled back (before the refused write), or never tried (behind it).
    """
    refused: tuple[Request, Exception | None] = (request, None)
    for write, result in zip(request.writes, results, strict=True):
        if isinstance(result, Exception):
            refused = (write, result)
            if not isinstance(result, RolledBackError | RuntimeInconsistency):
                break
    return refused


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
