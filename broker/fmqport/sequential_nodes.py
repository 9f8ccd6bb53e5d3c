"""A line of ephemeral sequential nodes: its order, and one's own place after a lost answer.

A create whose answer was lost may have made a node that stands in the line for as long as the
session lives, and whose number its owner does not know. The remedy is ZooKeeper's own ("Recipes and
Solutions", recoverable errors and the GUID; Curator's `withProtection`, kazoo's `Lock`): the name
carries a token that no other caller uses, and the owner looks for it before it creates again. The
look is synced here: a server behind the others would not show the node.
"""

import re
from collections.abc import Iterable
from typing import Final

from fmqport.coordination import Coordination

_NUMBER: Final = re.compile(r"[0-9]{10}$")


def in_sequence(names: Iterable[str]) -> list[str]:
    """Return the sequential nodes among these names, in the order of their creation."""
    numbers = {name: found[0] for name in names if (found := _NUMBER.search(name))}
    return sorted(numbers, key=numbers.__getitem__)


async def find_own(coordination: Coordination, path: str) -> str | None:
    """Return the name of this session's node at `path` plus ten digits, or None.

    It sees every create that this session sent before, answered or not, and no later create is
    still on its way. Raises `Unavailable`.
    """
    parent, _, prefix = path.rpartition("/")
    await coordination.sync(parent or "/")
    for name in in_sequence(await coordination.children(parent or "/")):
        if name[: -len("0000000000")] == prefix:
            node = await coordination.get(f"{parent}/{name}")
            if node is not None and node.owner == coordination.session_id:
                return name
    return None


async def create_once(coordination: Coordination, path: str, data: bytes) -> str:
    """Return the name of this session's node at `path` plus ten digits; create it if there is none.

    The last part of `path` has a token that no other caller uses, and one call is under way at a
    time. Raises `NoNode` (no parent), `Unavailable`: then, or when cancelled, the node may exist.
    Whoever still wants it calls again with the same `path` once connected; who does not, deletes
    what `find_own` returns, until that is answered, or ends the session.
    """
    return await find_own(coordination, path) or await coordination.create_sequential(path, data)
