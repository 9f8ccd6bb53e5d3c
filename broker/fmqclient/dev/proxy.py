"""TCP proxies that can be cut, to play a broken network between real processes.

One thread with an event loop of its own carries all links, so faults do not depend on the caller's
loop; the methods are plain calls and may be used from any thread. For development and tests.

A link may tell its callers apart (`who`, from the caller's port), so that a slave can be cut from
its master while clients of the same address go on.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_CHUNK = 64 * 1024

ANYBODY = ""
"""Every caller of a link."""


class _Mode(Enum):
    PASS = "pass"
    CUT = "cut"  # connections are reset, new ones too
    HOLD = "hold"  # nothing is reset, nothing gets through: a black hole


class Link:
    """One listening port whose connections go to `target`, or do not."""

    def __init__(self, proxies: "Proxies", target: str, who: Callable[[int], str] | None) -> None:
        self.target = target
        self.port = 0
        self._proxies = proxies
        self._who = who
        self._modes: dict[str, _Mode] = {}
        self._refused: dict[str, list[int]] = {}  # of those who may have one connection only
        self._changed = asyncio.Event()
        self._open: dict[asyncio.StreamWriter, str] = {}
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where to connect instead of to `target`."""
        return f"127.0.0.1:{self.port}"

    def cut(self, who: str = ANYBODY) -> None:
        """Reset what is connected (of `who`), and every new attempt."""
        self._proxies.run(self._set, who, _Mode.CUT)

    def hold(self, who: str = ANYBODY) -> None:
        """Swallow silently, in both directions, as when a cable is pulled; bytes wait."""
        self._proxies.run(self._set, who, _Mode.HOLD)

    def resume(self, who: str = ANYBODY) -> None:
        """Let everything through again (of `who`), what was held first."""
        self._proxies.run(self._set, who, _Mode.PASS)

    def only_one(self, who: str) -> list[int]:
        """While one connection of `who` is open, more are reset; their ports, as they come.

        Until `heal`.
        """
        return self._proxies.run(self._limit, who)

    def heal(self) -> None:
        """As new: everything of everybody gets through, what was held first."""
        self._proxies.run(self._heal)

    # ---- in the proxies' thread
    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, who: str, mode: _Mode) -> None:
        self._modes[who] = mode
        for writer, caller in list(self._open.items()):
            if self._is(_Mode.CUT, caller):
                writer.transport.abort()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _limit(self, who: str) -> list[int]:
        return self._refused.setdefault(who, [])

    async def _heal(self) -> None:
        self._refused = {}
        self._modes = {}
        await self._set(ANYBODY, _Mode.PASS)

    def _is_one_more(self, writer: asyncio.StreamWriter, who: str) -> bool:
        """Whether it is one too many; if so it is noted."""
        refused = self._refused.get(who)
        others = [w for w, caller in self._open.items() if caller == who and w is not writer]
        if refused is None or not others:
            return False
        refused.append(writer.get_extra_info("peername")[1])
        return True

    def _is(self, mode: _Mode, who: str) -> bool:
        return mode in (self._modes.get(ANYBODY), self._modes.get(who))

    async def _while_held(self, who: str) -> None:
        while self._is(_Mode.HOLD, who) and not self._is(_Mode.CUT, who):
            await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = ANYBODY
        self._open[writer] = who
        try:
            if self._who is not None:
                port = writer.get_extra_info("peername")[1]
                who = self._open[writer] = await asyncio.to_thread(self._who, port)
            await self._while_held(who)
            if not self._is(_Mode.CUT, who) and not self._is_one_more(writer, who):
                await self._forward(who, reader, writer)
        except (OSError, ExceptionGroup):
            pass  # an end went away: the other learns it by the reset
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _forward(
        self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = self.target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._open[far_writer] = who
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(who, reader, far_writer))
                both.create_task(self._pump(who, far_reader, writer))
        finally:
            self._open.pop(far_writer, None)
            far_writer.transport.abort()

    async def _pump(
        self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._while_held(who)
            writer.write(data)
            await writer.drain()
        await self._while_held(who)
        if writer.can_write_eof():
            writer.write_eof()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._set(ANYBODY, _Mode.CUT)


class Proxies:
    """All links of one test. A context manager: at its end every link is gone."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self, target: str, port: int = 0, who: Callable[[int], str] | None = None) -> Link:
        """A new link to `host:port`, on a free port unless one is given.

        `who` names a caller by its port; it is called on a thread.
        """
        link = Link(self, target, who)
        self.run(link._listen, port)
        self._links.append(link)
        return link

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Do it in the proxies' thread; returns when it is done."""
        return asyncio.run_coroutine_threadsafe(work(*arguments), self._loop).result(30)

    async def _close(self) -> None:
        for link in self._links:
            await link._close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_default_executor()
