"""ZooKeeper's tree, pure: versioned nodes, transactions, and the watches that they fire.

Rules and the order of checks are those of ZooKeeper's request processor. It knows sessions by
number only, no time and no network.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fmqadapters.zookeeper.session_core import Request, Verb
from fmqcore.errors import Unavailable
from fmqport.coordination import BadVersion, Node, NodeExists, NoNode, NotEmpty


@dataclass(slots=True)
class Znode:
    """One node."""

    data: bytes
    version: int = 0
    owner: int = 0
    children: dict[str, None] = field(default_factory=dict)
    created: int = 0  # children, ever: the number of the next sequential one
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class Txn:
    """One committed change, equal on every server. The end of a session deletes its nodes."""

    zxid: int
    verb: Verb | None  # CREATE, WRITE, DELETE; None: a session begins or ends
    paths: tuple[str, ...] = ()
    data: tuple[bytes, ...] = ()  # of each path; (): all are empty
    owner: int = 0
    ended: int = 0  # the session that ends with it
    wall_ms: int = 0

    def written(self) -> Iterator[tuple[str, bytes]]:
        """Yield each path with its data."""
        return zip(self.paths, self.data or (b"",) * len(self.paths), strict=True)


def parent_of(path: str) -> str:
    """Return the path of the parent."""
    return path.rpartition("/")[0] or "/"


class Tree:
    """All nodes as one server knows them, up to `zxid`."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(b"")}

    def copy(self) -> "Tree":
        """Return an independent copy: a snapshot."""
        made = Tree()
        made.zxid = self.zxid
        made.nodes = {
            path: replace(node, children=dict(node.children)) for path, node in self.nodes.items()
        }
        return made

    def get(self, path: str) -> Node | None:
        """Return a node as a client reads it, or None."""
        node = self.nodes.get(path)
        return None if node is None else Node(node.data, node.version, node.owner, node.modified_ms)

    def owned_by(self, session: int) -> tuple[str, ...]:
        """Return the paths of the session's ephemeral nodes."""
        return tuple(path for path, node in self.nodes.items() if node.owner == session)

    def path_of(self, request: Request) -> str:
        """Return the path that a write is about: a sequential node's has its number."""
        above = self.nodes.get(parent_of(request.path))
        number = f"{above.created:010d}" if request.sequential and above is not None else ""
        return request.path + number

    def refuse(self, request: Request) -> Exception | None:
        """Return why this write cannot be done; None if it can."""
        if request.verb is Verb.WRITE_ALL:
            return next(filter(None, map(self.refuse, request.writes)), None)
        path = self.path_of(request)
        node = self.nodes.get(path)
        if request.verb is Verb.CREATE:
            above = self.nodes.get(parent_of(path))
            if above is None:
                return NoNode(path)
            if node is not None:
                return NodeExists(path)
            if above.owner:
                return Unavailable(f"ZooKeeper refuses to {request}: its parent is an ephemeral")
            return None
        if node is None:
            return NoNode(path)
        if request.version not in (-1, node.version):
            return BadVersion(path)
        if request.verb is Verb.DELETE and node.children:
            return NotEmpty(f"cannot {request}: there are nodes below it")
        return None

    def read(self, request: Request) -> object:
        """Return the answer to a read. Raises `NoNode`."""
        path, node = request.path, self.nodes.get(request.path)
        if request.verb is Verb.WATCH:
            return node is not None
        if node is None:
            raise NoNode(path)
        if request.verb is Verb.READ:
            return Node(node.data, node.version, node.owner, node.modified_ms)
        return sorted(node.children)

    def apply(self, txn: Txn) -> list[tuple[str, bool]]:
        """Apply a change; return the watched paths: (path, whether it is about the children)."""
        self.zxid = txn.zxid
        concerned: list[tuple[str, bool]] = []
        for path, data in txn.written():
            above = parent_of(path)
            if txn.verb is Verb.CREATE:
                self.nodes[path] = Znode(data, 0, txn.owner, modified_ms=txn.wall_ms)
                self.nodes[above].children[path.rpartition("/")[2]] = None
                self.nodes[above].created += 1
                concerned += [(path, False), (above, True)]
            elif txn.verb is Verb.WRITE:
                self.nodes[path].data = data
                self.nodes[path].version += 1
                self.nodes[path].modified_ms = txn.wall_ms
                concerned.append((path, False))
            else:
                del self.nodes[path]
                del self.nodes[above].children[path.rpartition("/")[2]]
                concerned += [(path, False), (path, True), (above, True)]
        return concerned
