"""Port: coordination. A small tree of versioned nodes: compare-and-set, ephemerals, watches.

The model is ZooKeeper's. A session lives as long as its process *works*: it is bound to the
progress of the event loop. A loop that has not turned for a whole session timeout counts as wedged.
From then on nothing keeps the session, whatever threads of the client library still run: it ends
within three timeouts after the loop stopped. (A process that is stopped altogether loses it once
the server has heard nothing for one timeout.)

Ephemerals are evidence, never truth. After `ConnectionLost` an operation may or may not have been
applied: read, compare the writer's own token, then decide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from fmqcore.errors import Unavailable


class ConnectionLost(Unavailable):
    """No answer: a write may or may not have been applied."""


class SessionExpired(Unavailable):
    """The session ended, and its ephemerals with it; `Coordination` starts a new one by itself."""


class NotEmpty(Unavailable):
    """Delete refused: there are nodes below."""


class BadVersion(Exception):
    """Compare-and-set refused: the node changed since it was read."""


class NodeExists(Exception):
    """Create refused: the node exists already."""


class NoNode(Exception):
    """There is no such node (or no parent)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read: its bytes, its version, and the session that owns it (0 = persistent).

    `modified_ms`: when it was written, by the clock of the server that led then; 0 = not known.
    """

    data: bytes
    version: int
    owner: int
    modified_ms: int = 0


class Write(NamedTuple):
    """One compare-and-set within `Coordination.set_all`; version -1 = whatever it is."""

    path: str
    data: bytes
    version: int


class SessionState(Enum):
    """What is known of the client's own session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection; the session may still live on the server
    LOST = "lost"  # expired; a new one is being made


class Coordination(Protocol):
    """One session with the ensemble, recreated after every expiry."""

    @property
    def state(self) -> SessionState:
        """The state of the session now."""
        ...

    @property
    def session_id(self) -> int:
        """Id of the current session; changes after an expiry; 0 while there is none."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """The negotiated session timeout in milliseconds."""
        ...

    def on_state(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call back (on the loop) at every change of state; return a function that stops it."""
        ...

    async def start(self, timeout_s: float) -> None:
        """Connect; raise `ConnectionLost` naming the addresses if no server answers in time."""
        ...

    async def close(self) -> None:
        """End the session: its ephemerals go at once."""
        ...

    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        """Return the node, or None; may be stale (a follower's view) unless `synced`."""
        ...

    async def sync(self, path: str) -> None:
        """Make later reads see at least all that was written before the call."""
        ...

    async def children(self, path: str) -> list[str]:
        """Return the names below `path`, sorted; empty if there is no such node."""
        ...

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        """Create a node. Raises `NodeExists`, `NoNode` (no parent), `ConnectionLost`."""
        ...

    async def create_sequential(self, path: str, data: bytes) -> str:
        """Create an ephemeral node at `path` plus ten digits; return its name, without parents.

        The digits count all creations below the parent, of every name and session, and are never
        given again while the parent exists: `fmqport.sequential_nodes.in_sequence` sorts by them.
        Raises `NoNode` (no parent), `ConnectionLost`.

        **After any `Unavailable`, or a cancelled call,** this session may own a node whose name the
        caller does not know; it would stand there for as long as the session lives. So the last
        part of `path` has a token that no other caller uses, and the caller looks for it before it
        creates again: `fmqport.sequential_nodes.create_once` does both.
        """
        ...

    async def set(self, path: str, data: bytes, version: int) -> int:
        """Compare-and-set by version; return the new version. Raises `BadVersion`, `NoNode`."""
        ...

    async def set_all(self, writes: Sequence[Write]) -> list[int]:
        """Do all these compare-and-sets or none; return the new versions, in the same order.

        At least one, of distinct nodes. Raises `BadVersion` or `NoNode` with the path of the first
        that is refused; then none was done. A server shows its readers all or none, though two
        reads are two: the transaction may lie between them.

        **After `ConnectionLost`** all or none was done, and what was not done never will be (a
        server drops what comes late from a session's earlier connection). So one synced `get` on
        the new connection, of a node whose data names its writer, answers for all. Another
        writer's data there: decide again from it.
        """
        ...

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a node; -1 = any version. A missing node is no error.

        Raises `BadVersion`, and `NotEmpty` if there are nodes below.
        """
        ...

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` (on the loop) whenever `path`'s data, existence or children may differ.

        Survives reconnects and expiry (then it is called once more, as anything may have changed).
        Calls may be spurious and are coalesced; the caller must read. Returns a function that stops
        it.
        """
        ...
