"""What the machine itself does: fdatasync at the batch's size, a bare gRPC stream of messages.

`python -m bench.raw` is the stream's server. Nothing of FMQ is in the way: the two numbers say what
could be had at best of one disk and one stream, on this machine, at this moment.
"""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio

from bench.cells import OUTSTANDING, Cell, Raw

_TAKE = "/bench.Raw/Take"
_ECHO = "/bench.Raw/Echo"
_FILE_BYTES = 64 * 1024 * 1024


async def measure(cell: Cell, folder: Path, seconds: float) -> Raw:
    """Return the rate and the latency of one cell."""
    return Raw(
        await asyncio.to_thread(
            fdatasync_per_s, folder / "raw.bin", cell.size_bytes * OUTSTANDING, seconds
        ),
        await stream_messages_per_s(cell.size_bytes, seconds),
    )


def fdatasync_per_s(path: Path, size: int, seconds: float) -> float:
    """Write `size` bytes into a preallocated file and sync them, over and over."""
    data = os.urandom(size)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(handle, 0, _FILE_BYTES)
        os.fsync(handle)
        count, at, start = 0, 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            os.pwrite(handle, data, at)
            os.fdatasync(handle)
            count += 1
            at = at + size if at + 2 * size <= _FILE_BYTES else 0
        return count / elapsed
    finally:
        os.close(handle)
        path.unlink()


async def stream_messages_per_s(size: int, seconds: float) -> float:
    """Send messages of that size on one stream, one after the other, to another process."""
    async with _stream(_TAKE) as call:
        message = os.urandom(size)
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            await call.write(message)
            count += 1
        await call.done_writing()
        assert int(await call.read()) == count
        return count / (time.perf_counter() - start)


async def round_trips_per_s(size: int, seconds: float) -> float:
    """Send messages of that size to another process, each once the last one came back."""
    async with _stream(_ECHO) as call:
        message = os.urandom(size)
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            await call.write(message)
            assert await call.read() == message
            count += 1
        return count / elapsed


@asynccontextmanager
async def _stream(method: str) -> AsyncIterator[Any]:
    """A stream to a server in another process."""
    command = [sys.executable, "-m", "bench.raw"]
    server = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.stream_stream(method)()
    finally:
        server.kill()
        await server.wait()


async def _take(_: object, context: Any) -> None:
    count = 0
    while await context.read() is not aio.EOF:
        count += 1
    await context.write(b"%d" % count)


async def _echo(_: object, context: Any) -> None:
    while (message := await context.read()) is not aio.EOF:
        await context.write(message)


_HANDLERS: Final = {_TAKE: _take, _ECHO: _echo}


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def service(self, details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        handler = _HANDLERS.get(details.method)
        return handler and grpc.stream_stream_rpc_method_handler(handler)


async def _serve() -> None:
    server = aio.server()
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
