"""Simulated network: hosts, links, listening servers and every fault of a network.

A host is a node, known by its name. Faults are set on directed links and stay until they are
lifted. Each end notices a silent peer (cut off, stopped, without power) by itself after two to four
seconds: gRPC's keepalive, as `fmqadapters.grpc.options` sets it.
"""

import asyncio
from typing import Final, Protocol

from fmqport.transport import TransportError
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node, Process
from fmqsim.engine.wire import CLIENT, SERVER, Frame, Link, Wire

KEEPALIVE_S: Final = (2.0, 4.0)
_FIRST_PORT: Final = 40_000
_RESETS_KNOWN_S: Final = 0.3
_SOON_S: Final = 0.05  # whole links are quicker by far


class Listener(Protocol):
    """A server of one process, as the network uses it (`adapters.transport.SimServer`)."""

    process: Process
    address: str
    wires: dict[Wire, None]

    def begin(self, wire: Wire, frame: Frame) -> None:
        """Handle an incoming stream or call."""
        ...


class Network:
    """All hosts and links."""

    def __init__(self, loop: SimLoop, *, window_bytes: int = 4 * 1024 * 1024) -> None:
        self.loop = loop
        self.window_bytes = window_bytes
        self.delay_s, self.jitter_s, self.loss = 0.0002, 0.0003, 0.0  # of a link that is whole
        self.dark: set[str] = set()  # hosts without power: they do not even refuse
        self.resets_known_s = 0.0  # by then all know of the connections that were broken
        self._links: dict[tuple[str, str], Link] = {}
        self._servers: dict[str, Listener] = {}
        self._wires: dict[Wire, None] = {}
        self._port = _FIRST_PORT
        self._watched: set[str] = set()

    def attach(self, node: Node) -> None:
        """Notice from now on when a node's processes stop or go on."""
        if node.name not in self._watched:
            self._watched.add(node.name)
            node.on_stand.append(lambda: self._look(node))

    def link(self, source: str, target: str) -> Link:
        """Return the directed link between two hosts."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(source, target)
            self.calm(link)
        return link

    # ---- faults

    def cut(self, source: str, target: str) -> None:
        """Cut a link: nothing from `source` reaches `target`, and neither end is notified."""
        self.loop.note(f"cut {source}->{target}")
        self.link(source, target).cut = True
        self._look_at_all()

    def stall(self, source: str, target: str) -> None:
        """Stall a link: `target` takes in no data from `source`, though the connection lives."""
        self.loop.note(f"stall {source}->{target}")
        self.link(source, target).stalled = True

    def heal(self, source: str, target: str) -> None:
        """Restore a link."""
        link = self.link(source, target)
        if link.cut or link.stalled:
            self.loop.note(f"heal {source}->{target}")
            self.broke()  # an end that gave up has sent that meanwhile: it arrives only now
        link.cut = link.stalled = False
        for pipe in list(link.pipes):
            pipe.flush()
        self._look_at_all()

    def reset(self, one: str, other: str) -> int:
        """Reset all connections between two hosts and return their number."""
        self.loop.note(f"reset {one}-{other}")
        wires = [w for w in self._wires if {p.node.name for p in w.processes} == {one, other}]
        for wire in wires:
            wire.reset("connection reset by peer")
        self.broke()
        return len(wires)

    def broke(self) -> None:
        """Record that connections have just been broken; their ends react a moment later."""
        self.resets_known_s = self.loop.now + _RESETS_KNOWN_S

    def heal_all(self) -> None:
        """Restore every link."""
        for source, target in list(self._links):
            link = self._links[source, target]
            link.lose_next_reply = 0
            self.calm(link)
            self.heal(source, target)

    def calm(self, link: Link) -> None:
        """Give a link the default delay, jitter and loss."""
        link.delay_s, link.jitter_s, link.loss = self.delay_s, self.jitter_s, self.loss

    # ---- silence

    @property
    def silent(self) -> bool:
        """Whether an end still waits for a peer that it cannot hear."""
        return any(wire.blocked_at is not None for wire in self._wires)

    @property
    def late(self) -> bool:
        """Whether frames sent over a slow or lossy link have yet to arrive."""
        soon = self.loop.now + _SOON_S
        return any(pipe.last_s > soon for link in self._links.values() for pipe in link.pipes)

    def _look(self, node: Node) -> None:
        """Recheck a node's connections for silence after its processes stopped or went on."""
        for wire in list(self._wires):
            if any(process.node is node for process in wire.processes):
                self._watch(wire)

    def _look_at_all(self) -> None:
        for wire in list(self._wires):
            self._watch(wire)

    def _watch(self, wire: Wire) -> None:
        if not self._silent(wire):
            wire.blocked_at = None
        elif wire.blocked_at is None:
            wire.blocked_at = self.loop.now
            for side in (CLIENT, SERVER):
                after = self.loop.random.uniform(*KEEPALIVE_S)
                self.loop.at_world(after, self._give_up, wire, side, wire.blocked_at)

    def _give_up(self, wire: Wire, side: int, since: float) -> None:
        if wire.blocked_at == since:
            wire.close(side, "keepalive watchdog timeout")
            self.broke()

    def _silent(self, wire: Wire) -> bool:
        client, server = (process.node for process in wire.processes)
        return (
            client.paused
            or server.paused
            or not all(wire.up)
            or self.link(client.name, server.name).cut
            or self.link(server.name, client.name).cut
        )

    def process_died(self, process: Process) -> None:
        """Close a dead process's sockets as its kernel does; silently if the power is gone."""
        for server in [s for s in self._servers.values() if s.process is process]:
            self.unlisten(server)
        silent = process.node.name in self.dark
        for wire in list(self._wires):
            for side in (CLIENT, SERVER):
                if wire.processes[side] is process:
                    wire.died(side, silent=silent)
            self._watch(wire)

    # ---- connecting

    def listen(self, address: str, server: Listener) -> str:
        """Bind an address and return it; port 0 picks a free port.

        Raises `TransportError` naming the address if it is taken.
        """
        host, _, port = address.rpartition(":")
        if port == "0":
            self._port += 1
            address = f"{host}:{self._port}"
        if address in self._servers:
            raise TransportError(f"cannot listen on {address}: it is taken")
        self._servers[address] = server
        return address

    def unlisten(self, server: Listener) -> None:
        """Free the server's address."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    def dial(self, process: Process, address: str) -> "asyncio.Future[Wire]":
        """Connect: the future gets a connection, a refusal, or nothing ever."""
        done: asyncio.Future[Wire] = self.loop.create_future()
        host = address.rpartition(":")[0]
        way = self.link(process.node.name, host)
        if not way.cut:
            delay = way.draw(self.loop.random)
            self.loop.at_world(delay, self._dialled, process, host, address, done)
        return done

    def _dialled(
        self, process: Process, host: str, address: str, done: "asyncio.Future[Wire]"
    ) -> None:
        here = process.node.name
        back, server = self.link(host, here), self._servers.get(address)
        if back.cut or host in self.dark:
            return
        delay = back.draw(self.loop.random)
        if server is None:
            self.loop.at_world(delay, self._refuse, done)
            return
        if server.process.node.paused or not process.alive:
            return
        self._port += 1
        wire = Wire(
            self.loop,
            (self.link(here, host), back),
            (process, server.process),
            server.begin,
            f"{here}:{self._port}",
            lambda wire: self._gone(server, wire),
        )
        self._wires[wire] = server.wires[wire] = None
        self.loop.at_world(delay, self._accepted, wire, done)

    def _refuse(self, done: "asyncio.Future[Wire]") -> None:
        if not done.done():
            done.set_exception(TransportError("connection refused"))

    def _accepted(self, wire: Wire, done: "asyncio.Future[Wire]") -> None:
        if done.done():
            wire.close(CLIENT, "no caller waits for it")
        elif not wire.up[CLIENT]:
            done.set_exception(TransportError("connection reset by peer"))
        else:
            done.set_result(wire)

    def _gone(self, server: Listener, wire: Wire) -> None:
        self._wires.pop(wire, None)
        server.wires.pop(wire, None)
