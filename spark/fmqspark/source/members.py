"""Which directory is of which group: `g1=/data/g1-0`, and the chain that goes with them.

A chain is read from a file: what `fmq ordered status TOPIC -o json` prints, or the JSON of the node
`ordered/<topic>`. Leaves nothing on disk.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fmqcore.errors import InvalidArgument, Malformed
from fmqcore.ids import GroupName
from fmqcore.journal.journal_identity import INCARNATIONS, decode_home
from fmqcore.zk.chain import NO_TOPIC, Chain
from fmqcore.zk.chain_json import chain_from_json
from fmqspark.source.files import read_small


class MemberPath(NamedTuple):
    """The data directory of one member of a group."""

    group: GroupName
    path: str


def members_of(chain: Chain, named: Iterable[str]) -> tuple[MemberPath, ...]:
    """Parse `GROUP=DIRECTORY` of each member. Raises `InvalidArgument`."""
    groups = {g.group for g in chain.groups} | {s.group for s in chain.segments}
    found = []
    for text in named:
        group, equals, path = text.partition("=")
        if not equals or not path:
            raise InvalidArgument(
                f"{text}: {chain.topic} lies on several groups, so name each directory with its "
                f"group, like {min(groups)}={text}"
            )
        if group not in groups:
            raise InvalidArgument(
                f"{text}: {chain.topic} is not in group {group}: use {', '.join(sorted(groups))}"
            )
        found.append(MemberPath(GroupName(group), path))
    _require_homes(chain, found)
    return tuple(found)


def _require_homes(chain: Chain, members: Iterable[MemberPath]) -> None:
    """Raise `InvalidArgument` for a directory that belongs to another group, by its own file.

    Otherwise its records would count as faults of the group that it was named for. A copy without
    that file is taken as named.
    """
    clusters: dict[str, str] = {}
    for group, path in members:
        cluster, slash, home = _home(path).partition("/")
        if not slash:
            continue
        if home != group:
            raise InvalidArgument(
                f"{group}={path}: this directory belongs to group {home} of cluster {cluster}, by "
                f"its file {INCARNATIONS}: name it as {home}={path}"
            )
        clusters.setdefault(cluster, path)
    if len(clusters) > 1:
        named = ", ".join(f"{path} to {cluster}" for cluster, path in clusters.items())
        raise InvalidArgument(
            f"the directories belong to different clusters ({named}), and ordered topic "
            f"{chain.topic} belongs to one: name the directories of that one alone"
        )


def _home(path: str) -> str:
    """Return `cluster/group` as the directory names it; "" if it does not."""
    try:
        return decode_home(read_small(path, INCARNATIONS) or b"")
    except (Malformed, OSError):
        return ""


def paths_of(members: Sequence[MemberPath], group: GroupName) -> tuple[str, ...]:
    """Return the directories of one group, in the order in which they are named."""
    return tuple(member.path for member in members if member.group == group)


def read_chain(file: Path, topic: str = "") -> Chain:
    """Read a chain; `topic` "": the only one in the file. Raises `InvalidArgument`, `OSError`."""
    try:
        data = json.loads(file.read_bytes())
        nodes = [_node(part) for part in (data if isinstance(data, list) else [data])]
        chains = [chain_from_json(json.dumps(node).encode()) for node in nodes]
    except (ValueError, KeyError, TypeError, RecursionError, Malformed) as error:
        raise InvalidArgument(
            f"{file} holds no chain ({error}): write it with fmq ordered status TOPIC -o json"
        ) from None
    named = [chain for chain in chains if topic in ("", chain.topic)]
    if len(named) != 1:
        held = ", ".join(chain.topic for chain in chains) or "none"
        raise InvalidArgument(f"{file} holds {len(named)} chains of {topic or 'a topic'}: {held}")
    if named[0].topic_id == NO_TOPIC:
        raise InvalidArgument(f"{file}: the chain of {named[0].topic} has no topic_id")
    return named[0]


def _node(part: Any) -> Any:
    """Return a node's JSON, also out of a status that holds it."""
    return part["chain"] if isinstance(part, dict) and "chain" in part else part
