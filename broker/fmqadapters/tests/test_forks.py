"""A program that forks while its connections come and go: neither process crashes or hangs."""

import os
import subprocess
import sys

import pytest

FORKS = 400
PROGRAM = f"""
import asyncio, os, socket
from fmqadapters.grpc import GrpcTransport
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import ROUTES

ended = dict()

async def connect(forked):
    while not forked.is_set():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            connection = GrpcTransport().connect("127.0.0.1:%d" % silent.getsockname()[1])
            try:
                await connection.call(ROUTES, client_pb2.RouteRequest(), 0.02)
            except TransportError:
                pass
        await connection.close()

async def fork(forked):
    for _ in range({FORKS}):
        child = os.fork()
        if child == 0:
            os._exit(0)
        await asyncio.sleep(0.005)
        status = os.waitpid(child, 0)[1]
        ended[status] = ended.get(status, 0) + 1
    forked.set()

async def main():
    forked = asyncio.Event()
    await asyncio.gather(fork(forked), *(connect(forked) for _ in range(8)))

asyncio.run(main())
print(ended)
"""


@pytest.mark.processes
def test_program_that_forks_while_it_connects_does_not_crash() -> None:
    """With gRPC's own fork support it ended by a signal, or stood still, within seconds."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{{0: {FORKS}}}\n"), done.stderr[-2000:]
