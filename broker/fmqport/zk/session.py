"""Adapter of the coordination port: ZooKeeper through kazoo. The one door to kazoo.

kazoo lives in threads of its own (one for the connection, two that deliver); everything crosses to
the event loop by `call_soon_threadsafe`, and all state here is touched on the loop alone. A write
is sent once and never repeated: what got no answer is `ConnectionLost`. While there is no
connection, every call fails at once instead of waiting in a queue. The address may end in a root,
`host:port,host:port/root`: all paths are below it, and it is made at the start.
"""

import asyncio
import contextlib
import logging
import threading
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
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from fmqcore.errors import Unavailable
from fmqport.coordination import (
    BadVersion,
    ConnectionLost,
    Node,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
)
from fmqport.zk.hosts import nobody_answers
from fmqport.zk.watches import Watch, Watches

_log = structlog.get_logger()

_QUIET: Final = logging.getLogger("fmqport.zk.kazoo")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_QUIET.setLevel(logging.CRITICAL)

_REDIAL_MIN_S: Final = 0.05
_REDIAL_MAX_S: Final = 1.0
_CLOSE_S: Final = 5.0

_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection thread, which here never gives up and tells the negotiated timeout."""

    negotiated_ms = 0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.negotiated_ms = int(answer[0].time_out)
        return answer

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: KazooRetry) -> Any:
        try:
            status = super()._connect_attempt(host, hostip, port, retry)
        except Exception as error:  # noqa: BLE001 - garbage from the other end: dial again
            _log.warning("zookeeper: unexpected answer", server=f"{host}:{port}", error=repr(error))
            self.client._session_callback(KeeperState.CONNECTING)
            return None
        refused = status is STOP_CONNECTING and not self.client._stopped.is_set()
        return None if refused else status


@dataclass(frozen=True, slots=True)
class _Fired:
    """What kazoo calls, on its thread, when a watch fires. kazoo keeps equal ones once."""

    session: "ZooKeeperSession"
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # a lost connection: armed again with the next
            self.session._from_thread(self.watch.fire)


class ZooKeeperSession:
    """The real `Coordination`. `timeout_ms` asks for the session's; below 1000 it is not reliable.

    `auth` = `user:password` (digest): nodes made here are then for this user alone.
    """

    def __init__(self, address: str, *, timeout_ms: int, auth: str = "") -> None:
        hosts, _, root = address.partition("/")
        self._address = address
        self._root = f"/{root.strip('/')}" if root.strip("/") else ""
        user, _, password = auth.partition(":")
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout_ms / 1000,
            auth_data=[("digest", auth)] if auth else None,
            default_acl=[make_digest_acl(user, password, all=True)] if auth else None,
            connection_retry=KazooRetry(max_tries=-1, delay=_REDIAL_MIN_S, max_delay=_REDIAL_MAX_S),
            logger=_QUIET,
        )
        self._connection = _Connection(self._client, self._client._conn_retry.copy(), logger=_QUIET)
        self._client._connection = self._connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._watches = Watches()
        self._callbacks: dict[object, Callable[[SessionState], None]] = {}
        self._state = SessionState.LOST
        self._session_id = 0

    # ---- what we know
    @property
    def state(self) -> SessionState:
        """See `Coordination`."""
        return self._state

    @property
    def session_id(self) -> int:
        """See `Coordination`."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """See `Coordination`."""
        return self._connection.negotiated_ms

    def on_state(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """See `Coordination`."""
        key = object()
        self._callbacks[key] = callback

        def stop() -> None:
            self._callbacks.pop(key, None)

        return stop

    # ---- life
    async def start(self, timeout_s: float) -> None:
        """See `Coordination`."""
        assert self._loop is None, "a session is started once"
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._on_thread_state)
        self._client.start_async()
        self._keeper = asyncio.create_task(self._watches.run(self._arm), name="zookeeper watches")
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
                if self._root:
                    await self._make_path(self._root)
        except TimeoutError:
            await self.close()
            raise ConnectionLost(await nobody_answers(self._address, timeout_s)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `Coordination`. Takes 5 s at most, also when nobody answers."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._client.remove_listener(self._on_thread_state)
        self._watches.clear()
        self._callbacks.clear()
        self._state, self._session_id = SessionState.LOST, 0
        self._fail_waiting(ConnectionLost, "the ZooKeeper session was closed")
        done = loop.create_future()
        threading.Thread(target=self._stop_kazoo, args=(loop, done), daemon=True).start()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await done

    def _stop_kazoo(self, loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
        """On a thread of its own: kazoo's stop waits for its threads."""
        with contextlib.suppress(Exception):
            self._client.stop()
            self._client.close()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_settle, done, None, None)

    # ---- operations
    async def get(self, path: str) -> Node | None:
        """See `Coordination`."""
        try:
            data, stat = await self._ask("read", path, self._client.get_async)
        except NoNode:
            return None
        return Node(data, stat.version, stat.ephemeralOwner)

    async def sync(self, path: str) -> None:
        """See `Coordination`."""
        await self._ask("sync", path, self._client.sync_async)

    async def children(self, path: str) -> list[str]:
        """See `Coordination`."""
        try:
            return sorted(await self._ask("list", path, self._client.get_children_async))
        except NoNode:
            return []

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        """See `Coordination`."""
        start = partial(self._client.create_async, value=data, ephemeral=ephemeral)
        try:
            await self._ask("create", path, start)
        except NoNode:
            if not make_parents:
                raise
            await self._make_path((self._root + path).rpartition("/")[0])
            await self._ask("create", path, start)

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See `Coordination`."""
        start = partial(self._client.set_async, value=data, version=version)
        return int((await self._ask("write", path, start)).version)

    async def delete(self, path: str, version: int = -1) -> None:
        """See `Coordination`."""
        with contextlib.suppress(NoNode):
            await self._ask("delete", path, partial(self._client.delete_async, version=version))

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """See `Coordination`. `changed` is called once soon after this, too."""
        return self._watches.add(self._root + path, changed)

    async def expire(self) -> None:
        """For tests: make the server end this session now, as when it runs out."""
        thief = KazooClient(
            hosts=",".join(f"{host}:{port}" for host, port in self._client.hosts),
            client_id=self._client.client_id,
            timeout=self.session_timeout_ms / 1000,
            logger=_QUIET,
        )

        def steal() -> None:
            thief.start()
            thief.stop()
            thief.close()

        await asyncio.to_thread(steal)

    # ---- inside, on the loop
    async def _make_path(self, full: str) -> None:
        """Make each missing node down to `full` (a path with its root)."""
        names = full.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            with contextlib.suppress(NodeExists):
                part = "/" + "/".join(names[:depth])
                await self._ask("create", part, self._client.create_async, rooted=True)

    async def _ask(
        self, verb: str, path: str, start: Callable[[str], Any], *, rooted: bool = False
    ) -> Any:
        """Send one request and wait for its answer; never twice."""
        if self._state is not SessionState.CONNECTED or self._loop is None:
            raise self._not_connected(verb, path)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[future] = None
        try:
            start(path if rooted else self._root + path).rawlink(partial(self._answer, future))
            return await future
        except KazooException as error:
            raise self._translated(verb, path, error) from error
        finally:
            self._waiting.pop(future, None)

    def _not_connected(self, verb: str, path: str) -> Unavailable:
        if self._state is SessionState.LOST and self._loop is not None:
            return SessionExpired(f"cannot {verb} {path}: the ZooKeeper session has expired")
        return ConnectionLost(f"cannot {verb} {path}: not connected to ZooKeeper {self._address}")

    def _translated(self, verb: str, path: str, error: KazooException) -> Exception:
        match error:
            case NoNodeError():
                return NoNode(path)
            case NodeExistsError():
                return NodeExists(path)
            case BadVersionError():
                return BadVersion(path)
            case SessionExpiredError():
                return SessionExpired(f"cannot {verb} {path}: the ZooKeeper session has expired")
            case NoAuthError() | AuthFailedError():
                return Unavailable(
                    f"cannot {verb} {path}: ZooKeeper {self._address} refuses our credentials"
                )
            case (
                ConnectionLoss()
                | ConnectionClosedError()
                | OperationTimeoutError()
                | SessionMovedError()
            ):
                return ConnectionLost(
                    f"no answer to {verb} {path} from ZooKeeper {self._address} "
                    f"({type(error).__name__}): it may or may not have been done"
                )
            case _:
                return Unavailable(f"ZooKeeper {self._address} refuses to {verb} {path}: {error!r}")

    def _fail_waiting(self, kind: type[Unavailable], message: str) -> None:
        for future in list(self._waiting):
            _settle(future, None, kind(message))

    def _on_state(self, state: SessionState) -> None:
        if self._loop is None:
            return
        self._state = state
        _log.info("zookeeper", session=state.value, server=self._address)
        match state:
            case SessionState.CONNECTED:
                self._session_id = (self._client.client_id or (0, b""))[0] or 0
                self._connected.set()
                self._watches.all_fired()
            case SessionState.SUSPENDED:
                self._fail_waiting(
                    ConnectionLost,
                    f"the connection to ZooKeeper {self._address} broke: "
                    "what was asked may or may not have been done",
                )
            case SessionState.LOST:
                self._session_id = 0
                self._fail_waiting(SessionExpired, "the ZooKeeper session has expired")
        for callback in list(self._callbacks.values()):
            callback(state)

    async def _arm(self, watch: Watch) -> bool:
        """Set both kinds of watch, for data and existence and for children."""
        fired = _Fired(self, watch)
        try:
            found = await self._ask(
                "watch",
                watch.path,
                partial(self._client.exists_async, watch=fired),
                rooted=True,
            )
            if found is not None:
                await self._ask(
                    "watch",
                    watch.path,
                    partial(self._client.get_children_async, watch=fired),
                    rooted=True,
                )
        except NoNode:
            pass  # deleted in between: the first watch tells
        except (ConnectionLost, SessionExpired):
            return False  # armed again when connected
        except Unavailable as error:
            _log.warning("zookeeper: cannot watch", path=watch.path, error=str(error))
            return False
        return True

    # ---- inside, on kazoo's threads
    def _on_thread_state(self, state: str) -> None:
        self._from_thread(self._on_state, _STATES[state])

    def _answer(self, future: "asyncio.Future[Any]", result: Any) -> None:
        self._from_thread(_settle, future, result.value, result.exception)

    def _from_thread(self, call: Callable[..., None], *arguments: Any) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(call, *arguments)


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if not future.done():
        future.set_result(value) if error is None else future.set_exception(error)
