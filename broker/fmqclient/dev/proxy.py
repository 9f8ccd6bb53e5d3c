"""TCP proxies that can be cut, to play a broken network between real processes.

One thread with an event loop of its own carries all links, so faults do not depend on the caller's
loop; the methods are plain calls and may be used from any thread. For development and tests.
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


class _Mode(Enum):
    PASS = "pass"
    CUT = "cut"  # connections are reset, new ones too
    HOLD = "hold"  # nothing is reset, nothing gets through: a black hole


class Link:
    """One listening port whose connections go to `target`, or do not."""

    def __init__(self, proxies: "Proxies", target: str) -> None:
        self.target = target
        self.port = 0
        self._proxies = proxies
        self._mode = _Mode.PASS
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where to connect instead of to `target`."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset what is connected, and every new attempt."""
        self._proxies.run(self._set, _Mode.CUT)

    def hold(self) -> None:
        """Swallow silently, in both directions, as when a cable is pulled; bytes wait."""
        self._proxies.run(self._set, _Mode.HOLD)

    def resume(self) -> None:
        """Let everything through again, what was held first."""
        self._proxies.run(self._set, _Mode.PASS)

    # ---- in the proxies' thread
    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, mode: _Mode) -> None:
        self._mode = mode
        if mode is _Mode.CUT:
            for writer in list(self._open):
                writer.transport.abort()
        if mode is _Mode.HOLD:
            self._flows.clear()
        else:
            self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        try:
            await self._flows.wait()
            if self._mode is _Mode.CUT:
                return
            host, _, port = self.target.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._open[far_writer] = None
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, far_writer))
                    both.create_task(self._pump(far_reader, writer))
            finally:
                self._open.pop(far_writer, None)
                far_writer.transport.abort()
        except (OSError, ExceptionGroup):
            pass  # an end went away: the other learns it by the reset
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        await self._flows.wait()
        if writer.can_write_eof():
            writer.write_eof()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._set(_Mode.CUT)


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

    def link(self, target: str, port: int = 0) -> Link:
        """A new link to `host:port`, on a free port unless one is given."""
        link = Link(self, target)
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
