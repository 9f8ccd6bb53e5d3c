"""A ZooKeeper ensemble of real server processes, each on its own machine.

Leaves a folder for each server in its folder, as `fmqadapters.zookeeper.embedded` describes.
"""

import asyncio
import random
import shutil
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.chaos.machines import Network
from fmqadapters.process.free_ports import free_ports
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper, Peers, ZooKeeperFailed
from fmqdev.processes import Child

_START_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.05


class Ensemble:
    """Servers `zk1`, `zk2`, ... Start it from the main thread."""

    def __init__(self, directory: Path, network: Network, size: int = 3) -> None:
        self.names = [f"zk{number}" for number in range(1, size + 1)]
        self._network = network
        ports = iter(free_ports(3 * size))
        machines = {name: network.machine(name) for name in self.names}
        clients = {name: next(ports) for name in self.names}
        peers = tuple(f"{machines[n].host}:{next(ports)}:{next(ports)}" for n in self.names)
        self._children: dict[str, Child] = {}
        self._servers: dict[str, EmbeddedZooKeeper] = {}
        for own, name in enumerate(self.names):
            folder = directory / name
            folder.mkdir(parents=True)
            self._servers[name] = EmbeddedZooKeeper(
                folder,
                clients[name],
                host=machines[name].host,
                peers=Peers(peers, own) if size > 1 else None,
                under=machines[name].under,
            )

    def address(self, caller: str = "") -> str:
        """Return the address for a session of `caller` ("": this process, past any link)."""
        if not caller:
            return ",".join(server.address for server in self._servers.values())
        return ",".join(
            self._network.address(caller, name, server.port)
            for name, server in self._servers.items()
        )

    async def start(self) -> None:
        """Start all stopped servers and wait until all serve. Raises `ZooKeeperFailed`."""
        for name in self.names:
            self.start_server(name)
        await self.wait_serving(self.names)

    def start_server(self, name: str) -> None:
        """Start a server's process, unless it runs."""
        if not self.alive(name):
            server = self._servers[name]
            server.start()
            assert server.process is not None
            self._children[name] = Child.of(server.process)

    async def wait_serving(self, names: Sequence[str]) -> None:
        """Wait until these servers serve. Raises `ZooKeeperFailed`."""
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                for name in names:
                    while not await asyncio.to_thread(self._servers[name].ready):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ZooKeeperFailed(
                f"{name} does not serve after {_START_TIMEOUT_S:g} s; see {self._servers[name].log}"
            ) from None

    def child(self, name: str) -> Child:
        """Return a server's process."""
        return self._children[name]

    def alive(self, name: str) -> bool:
        """Whether a server's process runs."""
        return name in self._children and self._children[name].alive()

    async def leader(self) -> str:
        """Return the name of the present leader ("" if no server reports to lead)."""
        for name in self.names:
            if self.alive(name) and await asyncio.to_thread(self._leads, name):
                return name
        return ""

    def _leads(self, name: str) -> bool:
        server = self._servers[name]
        try:
            with socket.create_connection((server.host, server.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode: leader" in _all(connection)
        except OSError:
            return False

    def expire(self, session_id: int) -> None:
        """End a session, as the servers do when it was silent for too long.

        A session may move to another connection, and a client that closes it there ends it. A
        session's password is a function of the session number (`ZooKeeperServer.generatePasswd`).
        """
        name = next(n for n in self.names if self.alive(n))
        server = self._servers[name]
        with socket.create_connection((server.host, server.port), timeout=5) as connection:
            connect = struct.pack(">iqiqi", 0, 0, 10_000, _signed(session_id), 16)
            _send(connection, connect + password_of(session_id))
            answer = connection.recv(4096)
            if len(answer) < 20 or struct.unpack_from(">i", answer, 8)[0] <= 0:
                raise ZooKeeperFailed(f"{name} no longer has session {session_id:#x}")
            _send(connection, struct.pack(">ii", 1, _CLOSE_SESSION))
            connection.recv(4096)

    async def back_up(self, copy: Path) -> None:
        """Copy the data of the leader, or of the only server, while it runs."""
        server = self._servers[await self.leader() or self.names[0]]
        await asyncio.to_thread(shutil.copytree, server.directory / "data", copy)

    def put_data(self, copy: Path | None) -> None:
        """Replace the data of all servers, which must not run; None: by none."""
        for server in self._servers.values():
            data = server.directory / "data"
            shutil.rmtree(data)
            if copy is not None:
                shutil.copytree(copy, data)

    async def stop(self) -> None:
        """Kill all servers."""
        for child in self._children.values():
            child.kill()
        await asyncio.gather(*(child.ended(10) for child in self._children.values()))


_CLOSE_SESSION: Final = -11
_SECRET: Final = 0xB3415C00
_MASK: Final = (1 << 48) - 1


def password_of(session_id: int) -> bytes:
    """Return a session's password: the bytes of `new java.util.Random(id ^ secret)`."""
    state = (((session_id ^ _SECRET) & (1 << 64) - 1) ^ 0x5DEECE66D) & _MASK
    words = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & _MASK
        words.append(state >> 16)
    return struct.pack("<4I", *words)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack(">i", len(body)) + body)


def _all(connection: socket.socket) -> bytes:
    answer = b""
    while part := connection.recv(4096):
        answer += part
    return answer


def some_of(names: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Return `count` of the servers, chosen at random."""
    return sorted(rng.sample(list(names), count))
