"""The machines that the parts of a cluster run on, and the network between them.

As root each part has its own network namespace, joined to this process's namespace by a pair of
virtual cables; this process forwards between them, and links are cut in its packet filter (nft).
All of this depends on processes that die with this one, so nothing is left behind, not even by
SIGKILL. Otherwise every part runs on the loopback address and only the links of `fmqdev.proxy` are
cut.
"""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from e2e.chaos.tools import ToolFailed, run
from fmqadapters.process.spawn import spawn
from fmqdev.proxy import ANYBODY, Link, Proxies

CLIENTS: Final = "clients"
"""This process: producers, consumers, and observers."""

_NET: Final = "10.77"
_START_TIMEOUT_S: Final = 10.0
_FILTER: Final = """
table ip fmq {
    chain forward { type filter hook forward priority 0; }
    chain output { type filter hook output priority 0; }
    chain input { type filter hook input priority 0; }
}
"""


class Cut(Enum):
    """The fate of packets from one machine to another."""

    DROP = "drop"  # swallowed, as when a cable is pulled
    RESET = "reset"  # the sender's connections are reset


_VERDICTS: Final = {
    Cut.DROP: "counter drop",
    Cut.RESET: "tcp dport 0-65535 counter reject with tcp reset",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """The place where one part runs."""

    name: str
    host: str
    under: tuple[str, ...] = ()  # the command that runs something there


class Network(Protocol):
    """Machines and the links between them."""

    one_way: bool
    """Whether one direction can be cut alone, and clients from any part."""

    def machine(self, name: str) -> Machine:
        """Return the machine of that name; it is created at first use."""
        ...

    def address(self, caller: str, to: str, port: int) -> str:
        """Return what `caller` dials to reach a port of another machine ("": any other caller)."""
        ...

    def cut(self, sender: str, receiver: str, how: Cut) -> None:
        """Cut one direction (on loopback: both)."""
        ...

    def felt(self) -> bool:
        """Whether anything was sent over a link since it was cut."""
        ...

    def heal(self) -> None:
        """Let everything through again."""
        ...

    def close(self) -> None:
        """Remove all machines."""
        ...


class Namespaces:
    """`Network` of network namespaces. For a process that already has its own namespace."""

    one_way = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._machines: dict[str, Machine] = {}
        self._holders: dict[str, int] = {}
        run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        run("nft", "-f", "-", stdin=f"flush ruleset\n{_FILTER}")

    def machine(self, name: str) -> Machine:
        """See `Network`."""
        if name not in self._machines:
            self._machines[name] = self._make(name, len(self._machines) + 1)
        return self._machines[name]

    def _make(self, name: str, number: int) -> Machine:
        log = self._directory / "namespaces.log"
        holder = spawn(["unshare", "--net", "--", "sleep", "infinity"], log)
        self._holders[name] = holder.pid
        self._wait_for(holder.pid)
        inside = ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--")
        cable, ours, theirs = f"fmq{number}", f"{_NET}.{number}.1", f"{_NET}.{number}.2"
        run("ip", "link", "add", cable, "type", "veth", "peer", "eth0", "netns", str(holder.pid))
        run("ip", "addr", "add", f"{ours}/24", "dev", cable)
        run("ip", "link", "set", cable, "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", f"{theirs}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "ip", "route", "add", "default", "via", ours)
        return Machine(name, theirs, inside)

    @staticmethod
    def _wait_for(holder: int) -> None:
        """Wait until the holder has left this process's namespace."""
        own, until = os.readlink("/proc/self/ns/net"), time.monotonic() + _START_TIMEOUT_S
        while os.readlink(f"/proc/{holder}/ns/net") == own:
            if time.monotonic() > until:
                raise ToolFailed("a new network namespace did not come up")
            time.sleep(0.01)

    def address(self, caller: str, to: str, port: int) -> str:
        """See `Network`."""
        return f"{self.machine(to).host}:{port}"

    def cut(self, sender: str, receiver: str, how: Cut) -> None:
        """See `Network`."""
        match = [
            f"ip {side} {self._machines[name].host}"
            for side, name in (("saddr", sender), ("daddr", receiver))
            if name != CLIENTS
        ]
        chain = {sender: "output", receiver: "input"}.get(CLIENTS, "forward")
        verdict = {
            Cut.DROP: "counter drop",
            Cut.RESET: "tcp dport 0-65535 counter reject with tcp reset",
        }
        rule = " ".join([*match, verdict[how]])
        run("nft", "add", "rule", "ip", "fmq", chain, *rule.split())

    def felt(self) -> bool:
        """See `Network`: whether packets met a rule."""
        return bool(re.search(r"counter packets [1-9]", run("nft", "list", "ruleset")))

    def heal(self) -> None:
        """See `Network`."""
        for chain in ("forward", "output", "input"):
            run("nft", "flush", "chain", "ip", "fmq", chain)

    def close(self) -> None:
        """See `Network`."""
        for holder in self._holders.values():
            os.kill(holder, 9)


class Loopback:
    """`Network` of one machine: links through proxies, cut in both directions at once."""

    one_way = False

    def __init__(self) -> None:
        self.who: Callable[[int], str] = lambda _: ""  # which machine has this port
        self._proxies = Proxies()
        self._proxies.__enter__()
        self._links: dict[tuple[str, str, int], Link] = {}
        self._cut: list[tuple[Link, str]] = []

    def machine(self, name: str) -> Machine:
        """See `Network`."""
        return Machine(name, "127.0.0.1")

    def address(self, caller: str, to: str, port: int) -> str:
        """See `Network`."""
        key = (caller, to, port)
        if key not in self._links:
            who = None if caller else (lambda port: self.who(port))
            self._links[key] = self._proxies.link(f"127.0.0.1:{port}", who=who)
        return self._links[key].address

    def cut(self, sender: str, receiver: str, how: Cut) -> None:
        """See `Network`."""
        for (caller, to, _), link in self._links.items():
            other = {sender: receiver, receiver: sender}.get(to)
            if other is not None and caller in ("", other):
                who = ANYBODY if caller else other
                {Cut.DROP: link.hold, Cut.RESET: link.cut}[how](who)
                self._cut.append((link, who))

    def felt(self) -> bool:
        """See `Network`: here, whether there is such a link at all."""
        return bool(self._cut)

    def heal(self) -> None:
        """See `Network`."""
        while self._cut:
            link, who = self._cut.pop()
            link.resume(who)

    def close(self) -> None:
        """See `Network`."""
        self._proxies.__exit__(None, None, None)
