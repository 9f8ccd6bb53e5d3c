"""A proxy in front of ZooKeeper, for tests: the broker's network path, which can be cut."""

import asyncio
from contextlib import suppress

from fmqport.tests.held_port import held_port


class Proxy:
    """Forward bytes to ZooKeeper; while cut, no bytes pass and no connection opens."""

    def __init__(self, address: str) -> None:
        self._address, _, self.root = address.partition("/")
        self._server: asyncio.Server | None = None
        self._port = held_port(self)
        self._tasks: set[asyncio.Task[None]] = set()

    async def mend(self) -> str:
        """Listen (again, on the same port) and return the address to use."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return f"127.0.0.1:{self._port}/{self.root}"

    async def cut(self) -> None:
        """Drop open connections and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # cut since it was accepted
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host, _, port = self._address.rpartition(":")
        with suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            ways = [
                asyncio.ensure_future(_pump(reader, far_writer)),
                asyncio.ensure_future(_pump(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                far_writer.transport.abort()
        writer.transport.abort()
        self._tasks.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
