"""The ZooKeeper adapter only: start, auth, leaks, close without an answer."""

import asyncio
import errno
import os
import socket
import sys
import threading
import time

import psutil
import pytest

from fmqadapters.process.free_ports import free_port
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcore.errors import Unavailable
from fmqdev.proxy import Proxies
from fmqport.coordination import ConnectionLost, SessionState, Write

pytestmark = pytest.mark.processes


async def connected_again(session: ZooKeeperSession) -> None:
    async with asyncio.timeout(30):
        while session.state is not SessionState.CONNECTED:
            await asyncio.sleep(0.01)
    await session.sync("/")


async def test_unreachable_zookeeper_is_reported_with_its_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    session = ZooKeeperSession(address, timeout_ms=2000)
    with pytest.raises(ConnectionLost, match=f"no ZooKeeper answers at {address}"):
        await session.start(0.3)


async def test_session_outlives_a_server_that_sends_garbage(zookeeper: str) -> None:
    server, _, root = zookeeper.partition("/")
    with Proxies() as proxies, socket.create_server(("127.0.0.1", 0)) as liar:
        link = proxies.link(server)
        session = ZooKeeperSession(f"{link.address}/{root}", timeout_ms=2000)
        await session.start(30)
        try:
            link.target = f"127.0.0.1:{liar.getsockname()[1]}"
            link.cut()
            link.resume()
            connection, _ = await asyncio.to_thread(liar.accept)
            with connection:
                connection.sendall(b"\x00\x00\x00\x03HTTP/1.1 400 Bad Request\r\n\r\n")
                link.target = server
            await connected_again(session)
        finally:
            await session.close()


@pytest.mark.parametrize("what", ["descriptors", "sleep"])
async def test_session_outlives_local_resource_errors(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """No descriptor to resolve a name, or a failing sleep: the session dials again later."""
    server, _, root = zookeeper.partition("/")
    refused = threading.Event()

    def refuse(*_arguments: object) -> None:
        refused.set()
        number = errno.EMFILE if what == "descriptors" else errno.EINVAL
        raise OSError(number, os.strerror(number))

    with Proxies() as proxies:
        link = proxies.link(server)
        session = ZooKeeperSession(f"{link.address}/{root}", timeout_ms=2000)
        await session.start(30)
        try:
            with monkeypatch.context() as patch:
                if what == "descriptors":
                    patch.setattr(socket, "getaddrinfo", refuse)
                else:
                    patch.setattr(time, "sleep", refuse)
                link.cut()
                assert await asyncio.to_thread(refused.wait, 30)
            link.resume()
            await connected_again(session)
        finally:
            await session.close()


async def test_nodes_of_an_authenticated_session_are_its_own(zookeeper: str) -> None:
    owner = ZooKeeperSession(zookeeper, timeout_ms=2000, auth="fmq:secret")
    stranger = ZooKeeperSession(zookeeper, timeout_ms=2000)
    await stranger.start(30)  # first: it creates the root, for all
    try:
        await owner.start(30)
        await owner.create("/a", b"1")
        await owner.set("/a", b"2", 0)
        with pytest.raises(Unavailable, match="refuses these credentials"):
            await stranger.set("/a", b"3", 1)
        await stranger.create("/b", b"")
        with pytest.raises(Unavailable, match="refuses these credentials"):
            await stranger.set_all([Write("/b", b"3", 0), Write("/a", b"3", 1)])
        node = await stranger.get("/b")
        assert node is not None
        assert node.version == 0
    finally:
        await owner.close()
        await stranger.close()


WEDGED = """
import asyncio, ctypes, sys, time
from fmqadapters.zookeeper.session import ZooKeeperSession

async def main():
    session = ZooKeeperSession(sys.argv[1], timeout_ms=1000)
    await session.start(30)
    await session.create("/own", b"", ephemeral=True)
    if sys.argv[2] == "holding the lock":
        ctypes.PyDLL(None).sleep(300)  # no other thread of this process runs meanwhile
    time.sleep(300)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["alone", "holding the lock"])
async def test_process_with_a_wedged_loop_loses_its_session(zookeeper: str, how: str) -> None:
    """Whether kazoo's threads run on or not, its ephemerals go."""
    witness = ZooKeeperSession(zookeeper, timeout_ms=2000)
    await witness.start(30)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WEDGED, zookeeper, how)
    try:
        async with asyncio.timeout(60):
            while await witness.get("/own") is None:
                await asyncio.sleep(0.01)
            while await witness.get("/own") is not None:
                await asyncio.sleep(0.01)
        assert process.returncode is None, "it lives"
    finally:
        process.kill()
        await process.wait()
        await witness.close()


async def test_a_hundred_sessions_leave_nothing_behind(zookeeper: str) -> None:
    async def one() -> None:
        session = ZooKeeperSession(zookeeper, timeout_ms=2000)
        await session.start(30)
        session.watch("/", lambda: None)
        await session.sync("/")
        await session.close()

    await one()
    process = psutil.Process()
    before = process.num_fds(), threading.active_count()
    for _ in range(100):
        await one()
    # An ended thread counts until the scheduler lets it exit: a leaked one stays.
    async with asyncio.timeout(30):
        while process.num_fds() > before[0] or threading.active_count() > before[1]:
            await asyncio.sleep(0.05)


async def test_close_is_bounded_when_no_server_answers(zookeeper: str) -> None:
    server, _, root = zookeeper.partition("/")
    with Proxies() as proxies:
        link = proxies.link(server)
        session = ZooKeeperSession(f"{link.address}/{root}", timeout_ms=30_000)
        await session.start(30)
        link.hold()
        async with asyncio.timeout(20):  # its bound is 5 s; the session's timeout would be 30
            await session.close()


async def test_a_cancelled_call_leaves_the_session_in_order(zookeeper: str) -> None:
    session = ZooKeeperSession(zookeeper, timeout_ms=2000)
    await session.start(30)
    try:
        calls = [asyncio.create_task(session.get("/")) for _ in range(50)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in done[::2])
        assert all(result is not None for result in done[1::2])
        assert await session.get("/") is not None
    finally:
        await session.close()


async def test_existing_root_needs_no_create_permission_above(zookeeper: str) -> None:
    """An ensemble shared by teams: the root exists, and nodes above it may not be created."""
    server, _, root = zookeeper.partition("/")
    admin = ZooKeeperSession(f"{zookeeper}/team", timeout_ms=4000, auth="admin:secret")
    await admin.start(30)
    await admin.create("/fmq", b"")
    client = admin._kazoo._client
    for_all, _ = await asyncio.to_thread(client.get_acls, "/")
    await asyncio.to_thread(client.set_acls, f"/{root}/team/fmq", for_all)
    await admin.close()
    session = ZooKeeperSession(f"{server}/{root}/team/fmq", timeout_ms=4000)
    await session.start(30)
    await session.create("/a/b", b"x", make_parents=True)
    assert await session.children("/a") == ["b"]
    await session.close()
    nowhere = ZooKeeperSession(f"{server}/{root}/team/other", timeout_ms=4000)
    with pytest.raises(Unavailable, match="refuses these credentials"):
        await nowhere.start(30)
