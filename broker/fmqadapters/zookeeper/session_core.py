"""A session that never ends: the part of the coordination port that every adapter shares.

It runs on the event loop: the known state of the session, calls that wait for answers, watches that
are kept alive. A write is sent once and never repeated: without an answer it is `ConnectionLost`.
While there is no connection, every call fails at once instead of waiting in a queue.

It runs over a `Link`: kazoo and its threads (`session.py`), or a simulated server. All paths are
below a root, which is created at the start. Leaves nothing behind.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

import structlog

from fmqadapters.zookeeper.watches import Watch, Watches
from fmqcore.errors import Unavailable
from fmqport.coordination import (
    ConnectionLost,
    Node,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Write,
)
from fmqport.wakeup_alignment import together_s

_log = structlog.get_logger()
_CLOSE_S: Final = 5.0
_TURNS: Final = 4  # so often within a session's timeout the link learns that the loop turns
_FIRST_MS: Final = 200  # the timeout is not known yet


class Verb(Enum):
    """The kinds of requests; comments name the type of the answer."""

    READ = "read"  # Node
    LIST = "list"  # list[str]
    SYNC = "sync"
    CREATE = "create"  # str: the path, with the digits of a sequential node
    WRITE = "write"  # int: the new version
    WRITE_ALL = "write together"  # list[int]: the new versions
    DELETE = "delete"
    WATCH = "watch"  # bool: whether it exists; arms for data and existence
    WATCH_CHILDREN = "watch the children of"  # arms for children


@dataclass(frozen=True, slots=True)
class Request:
    """One call, as it goes to the server."""

    verb: Verb
    path: str  # with the root
    data: bytes = b""
    version: int = -1
    ephemeral: bool = False
    watch: Watch | None = None  # fired at most once
    sequential: bool = False  # the server adds ten digits to the path
    writes: "tuple[Request, ...]" = ()  # of WRITE_ALL, whose own path is the first one's

    def __str__(self) -> str:
        paths = ", ".join(write.path for write in self.writes) or self.path
        return f"{self.verb.value} {paths}"


Answer = Callable[[Any, Exception | None], None]


class Link(Protocol):
    """A client library's session: it reconnects and pings on its own.

    It does neither once `turns` was not called for a session's timeout: the loop is wedged, and the
    server must learn that.
    """

    @property
    def session_id(self) -> int:
        """Id of the present session, or of the last one."""
        ...

    @property
    def timeout_ms(self) -> int:
        """The negotiated session timeout in milliseconds."""
        ...

    def open(self, on_state: Callable[[SessionState], None]) -> None:
        """Connect, for ever; `on_state` gets every change of state, on the loop and in order."""
        ...

    def turns(self) -> None:
        """Note that the event loop turns."""
        ...

    def send(self, request: Request, answer: Answer) -> None:
        """Send once; `answer` is called on the loop, or never if the connection is lost.

        Errors are those of the port, with type and text.
        """
        ...

    def close(self) -> "asyncio.Future[None]":
        """Start to end the session, and report nothing more; the future ends with the session."""
        ...


class SteadySession:
    """A `Coordination` over a link. `server` and `root` as in `server/root`, for messages.

    `make_root=False`: a caller that only reads must not create a mistyped root; its calls of
    `create` with `make_parents` do create it.
    """

    def __init__(self, link: Link, server: str, root: str = "", *, make_root: bool = True) -> None:
        self._link = link
        self._server = server
        self._root = f"/{root.strip('/')}" if root.strip("/") else ""
        self._make_root = make_root
        self._started = self._open = False
        self._tasks: list[asyncio.Task[None]] = []
        self._connected = asyncio.Event()
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._watches = Watches()
        self._callbacks: dict[object, Callable[[SessionState], None]] = {}
        self._state = SessionState.LOST
        self._session_id = 0

    # ---- what is known
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
        return self._link.timeout_ms

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
        assert not self._started, "a session is started once"
        self._started = self._open = True
        self._link.open(self._on_state)
        self._tasks = [
            asyncio.create_task(self._turn(), name="zookeeper turns"),
            asyncio.create_task(self._watches.run(self._arm), name="zookeeper watches"),
        ]
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
                if self._root and self._make_root:
                    await self._make_own_root()
        except TimeoutError:
            await self.close()
            raise ConnectionLost(
                f"no ZooKeeper answers at {self._server} within {timeout_s:g} s; "
                "is it running and reachable from here, and is that its clients' port?"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `Coordination`. Takes 5 s at most, also if no server answers."""
        if not self._open:
            return
        self._open = False
        self._watches.clear()
        self._callbacks.clear()
        self._state, self._session_id = SessionState.LOST, 0
        self._fail_waiting(ConnectionLost, "the ZooKeeper session was closed")
        ended = self._link.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await ended

    # ---- operations
    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        """See `Coordination`. Sends both requests at once: a session's are done in order."""
        full = self._root + path
        before = (Request(Verb.SYNC, full),) if synced else ()
        try:
            node: Node = await self._ask(*before, Request(Verb.READ, full))
        except NoNode:
            return None
        return node

    async def sync(self, path: str) -> None:
        """See `Coordination`."""
        await self._ask(Request(Verb.SYNC, self._root + path))

    async def children(self, path: str) -> list[str]:
        """See `Coordination`."""
        try:
            return sorted(await self._ask(Request(Verb.LIST, self._root + path)))
        except NoNode:
            return []

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        """See `Coordination`."""
        request = Request(Verb.CREATE, self._root + path, data, ephemeral=ephemeral)
        try:
            await self._ask(request)
        except NoNode:
            if not make_parents:
                raise
            await self._make_path(request.path.rpartition("/")[0])
            await self._ask(request)

    async def create_sequential(self, path: str, data: bytes) -> str:
        """See `Coordination`."""
        full = self._root + path
        made = await self._ask(Request(Verb.CREATE, full, data, ephemeral=True, sequential=True))
        return str(made).rpartition("/")[2]

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See `Coordination`."""
        return int(await self._ask(Request(Verb.WRITE, self._root + path, data, version)))

    async def set_all(self, writes: Sequence[Write]) -> list[int]:
        """See `Coordination`."""
        requests = tuple(
            Request(Verb.WRITE, self._root + write.path, write.data, write.version)
            for write in writes
        )
        distinct = {request.path for request in requests}
        assert len(distinct) == len(requests) > 0, "it writes some nodes, each once"
        return list(await self._ask(Request(Verb.WRITE_ALL, requests[0].path, writes=requests)))

    async def delete(self, path: str, version: int = -1) -> None:
        """See `Coordination`."""
        with contextlib.suppress(NoNode):
            await self._ask(Request(Verb.DELETE, self._root + path, version=version))

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """See `Coordination`. `changed` is also called once soon after this."""
        return self._watches.add(self._root + path, changed)

    # ---- within
    async def _turn(self) -> None:
        """Report to the link at intervals that the event loop is not blocked."""
        while True:
            self._link.turns()
            every_ms = self._link.timeout_ms // _TURNS or _FIRST_MS
            now_ms = int(asyncio.get_running_loop().time() * 1000)
            await asyncio.sleep(together_s(now_ms, every_ms))

    async def _make_own_root(self) -> None:
        """Create the root, however often the connection breaks meanwhile.

        Creating it again is harmless: an existing node is left as it is.
        """
        while True:
            try:
                return await self._make_path(self._root)
            except (ConnectionLost, SessionExpired):
                await self._connected.wait()

    async def _make_path(self, full: str) -> None:
        """Create each missing node down to `full` (a path with its root).

        A user who may not create a node gets that error even if the node exists: then `full` is
        read.
        """
        names = full.strip("/").split("/")
        refused: Unavailable | None = None
        for depth in range(1, len(names) + 1):
            try:
                await self._ask(Request(Verb.CREATE, "/" + "/".join(names[:depth])))
                refused = None
            except NodeExists:
                refused = None
            except (ConnectionLost, SessionExpired):
                raise
            except Unavailable as error:
                refused = error
            except NoNode:
                raise refused or NoNode(full) from None
        if refused is not None:
            try:
                await self._ask(Request(Verb.READ, full))
            except NoNode:
                raise refused from None

    async def _ask(self, *requests: Request) -> Any:
        """Send requests once; return the answer to the last one, or raise the first error."""
        if self._state is not SessionState.CONNECTED or not self._open:
            raise self._not_connected(requests[0])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            for request in requests:
                self._link.send(request, partial(_settle, future, request is requests[-1]))
            return await future
        finally:
            self._waiting.pop(future, None)

    def _not_connected(self, request: Request) -> Unavailable:
        if self._state is SessionState.LOST and self._open:
            return SessionExpired(f"cannot {request}: the ZooKeeper session has expired")
        return ConnectionLost(f"cannot {request}: not connected to ZooKeeper {self._server}")

    def _fail_waiting(self, kind: type[Unavailable], message: str) -> None:
        for future in list(self._waiting):
            _settle(future, True, None, kind(message))

    def _on_state(self, state: SessionState) -> None:
        if not self._open:
            return
        self._state = state
        if state is not SessionState.CONNECTED:
            self._connected.clear()
        log = _log.info if state is SessionState.CONNECTED else _log.warning
        log("zookeeper", session=state.value, server=self._server)
        match state:
            case SessionState.CONNECTED:
                self._session_id = self._link.session_id
                self._connected.set()
                self._watches.all_fired()
            case SessionState.SUSPENDED:
                self._fail_waiting(
                    ConnectionLost,
                    f"the connection to ZooKeeper {self._server} broke: "
                    "what was asked may or may not have been done",
                )
            case SessionState.LOST:
                self._session_id = 0
                self._fail_waiting(SessionExpired, "the ZooKeeper session has expired")
        for callback in list(self._callbacks.values()):
            callback(state)

    async def _arm(self, watch: Watch) -> bool:
        """Set both kinds of watch: for data and existence, and for children."""
        try:
            if await self._ask(Request(Verb.WATCH, watch.path, watch=watch)):
                await self._ask(Request(Verb.WATCH_CHILDREN, watch.path, watch=watch))
        except NoNode:
            pass  # deleted in between: the first watch reports it
        except (ConnectionLost, SessionExpired):
            return False  # armed again when connected
        except Unavailable as error:
            _log.warning("zookeeper_watch_failed", path=watch.path, error=str(error))
            return False
        return True


def _settle(
    future: "asyncio.Future[Any]", last: bool, value: Any, error: BaseException | None
) -> None:
    """Settle the future with the last answer or the first error."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    elif last:
        future.set_result(value)
