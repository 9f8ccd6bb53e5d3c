"""TCP proxies that can be cut, to simulate a broken network between real processes.

One thread with its own event loop carries all links, so faults do not depend on the caller's loop;
the methods are plain calls and may be used from any thread. For development and tests.

A link may distinguish its callers (`who`, from the caller's port), so that a slave can be cut off
from its master while clients of the same address go on. Callers are named only while some are
treated apart: naming costs more than connecting. When all brokers are away, every client retries
again and again, and the names would come after the callers had given up.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
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


@dataclass(eq=False, slots=True)
class _Caller:
    """The owner of a connection. `name` is None until it is asked for."""

    port: int
    name: str | None = None


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
        self._open: dict[asyncio.StreamWriter, _Caller] = {}
        self._asking = asyncio.Semaphore()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The address to connect to instead of `target`."""
        return f"127.0.0.1:{self.port}"

    def cut(self, who: str = ANYBODY) -> None:
        """Reset the connections (of `who`), and every new attempt."""
        self._proxies.run(self._set, who, _Mode.CUT)

    def hold(self, who: str = ANYBODY) -> None:
        """Swallow all bytes silently, in both directions, as an unplugged cable does; they wait."""
        self._proxies.run(self._set, who, _Mode.HOLD)

    def resume(self, who: str = ANYBODY) -> None:
        """Let everything through again (of `who`), held bytes first."""
        self._proxies.run(self._set, who, _Mode.PASS)

    def only_one(self, who: str) -> list[int]:
        """Reset further connections of `who` while one is open; return the list of their ports.

        The list grows as they come, until `heal`.
        """
        return self._proxies.run(self._limit, who)

    def heal(self) -> None:
        """Let everything of every caller through again, held bytes first."""
        self._proxies.run(self._heal)

    # ---- in the proxies' thread
    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, who: str, mode: _Mode) -> None:
        self._modes[who] = mode  # first: whoever connects from now on is named as it comes
        await self._name_all()
        for writer, caller in list(self._open.items()):
            if self._is(_Mode.CUT, caller):
                writer.transport.abort()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _limit(self, who: str) -> list[int]:
        refused = self._refused.setdefault(who, [])
        await self._name_all()
        return refused

    async def _heal(self) -> None:
        self._refused = {}
        self._modes = {}
        await self._set(ANYBODY, _Mode.PASS)

    def _separates_callers(self) -> bool:
        apart = (m for who, m in self._modes.items() if who != ANYBODY and m is not _Mode.PASS)
        return bool(self._refused) or any(apart)

    async def _name_all(self) -> None:
        """Name also the callers that connected before any was treated apart."""
        for caller in list(self._open.values()) if self._separates_callers() else ():
            await self._name(caller)

    async def _name(self, caller: _Caller) -> None:
        if self._who is not None and caller.name is None:
            caller.name = await asyncio.to_thread(self._who, caller.port)

    async def _is_welcome(
        self, caller: _Caller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if self._separates_callers():
            async with self._asking:
                if reader.at_eof():  # gone before its turn: to ask for it would hold up others
                    return False
                await self._name(caller)
        await self._while_held(caller)
        return not self._is(_Mode.CUT, caller) and not self._is_one_more(writer, caller)

    def _is_one_more(self, writer: asyncio.StreamWriter, caller: _Caller) -> bool:
        """Whether the connection is one too many; if so its port is noted."""
        refused = self._refused.get(caller.name or ANYBODY)
        others = [w for w, c in self._open.items() if c.name == caller.name and w is not writer]
        if refused is None or not others:
            return False
        refused.append(caller.port)
        return True

    def _is(self, mode: _Mode, caller: _Caller) -> bool:
        return mode in (self._modes.get(ANYBODY), self._modes.get(caller.name or ANYBODY))

    async def _while_held(self, caller: _Caller) -> None:
        while self._is(_Mode.HOLD, caller) and not self._is(_Mode.CUT, caller):
            await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = self._open[writer] = _Caller(writer.get_extra_info("peername")[1])
        try:
            if await self._is_welcome(caller, reader, writer):
                await self._forward(caller, reader, writer)
        except (OSError, ExceptionGroup):
            pass  # an end went away: the other learns it by the reset
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _forward(
        self, caller: _Caller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = self.target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._open[far_writer] = caller
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(caller, reader, far_writer))
                both.create_task(self._pump(caller, far_reader, writer))
        finally:
            self._open.pop(far_writer, None)
            far_writer.transport.abort()

    async def _pump(
        self, caller: _Caller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._while_held(caller)
            writer.write(data)
            await writer.drain()
        await self._while_held(caller)
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
        """Return a new link to `host:port`, on a free port unless one is given.

        `who` names a caller by its port; it is called on a thread.
        """
        link = Link(self, target, who)
        self.run(link._listen, port)
        self._links.append(link)
        return link

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Run `work` in the proxies' thread and return its result."""
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
