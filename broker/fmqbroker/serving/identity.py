"""The broker's identity: a new incarnation per start, under a name that is free.

A live node that stands under this broker's name at the start is either left from its last
incarnation, whose session has not expired yet, or belongs to another process with the same broker
id. The data directory shows which: it remembers its brokers' incarnations, and this process holds
its lock, so those are dead. Any other node is left alone: it goes away by itself if its process is
dead (its directory was lost or replaced); if it stays, this broker refuses to start. It must not
take the name: the node of one would stand for the other, and no broker would take over from it.

The directory also remembers its cluster and group: topics are numbered separately in each cluster,
so a journal in the wrong group would deliver one topic's messages as another's.

And it remembers for how long this broker promised its master to claim nothing: an incarnation that
is configured to promise less keeps an earlier promise, which may still run (F3).

Order of effects: directory and name are checked, the new incarnation and its promise are
remembered, then it is announced (`live_node.py`), then it promises. Leaves the file `incarnations`
in the data directory: the home, the promise, and three short lines at most.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.errors import InvalidArgument, NameTaken, StorageFull, Unavailable
from fmqcore.failover.term_rules import promise_ms
from fmqcore.ids import BrokerId
from fmqcore.journal.journal_identity import GRANT, INCARNATIONS, homes_of
from fmqcore.zk.live_broker import LiveBroker
from fmqport.clock import Clock
from fmqport.disk import Disk

_POLL_S: Final = 0.1
_SESSIONS: Final = 2
"""Session timeouts to wait for a name: ZooKeeper checks its sessions once a tick, and a
timeout is at least two ticks, so a session ends within two timeouts."""

_log = structlog.get_logger()


class Identity(NamedTuple):
    """The identity of one start of a broker: its id and incarnation."""

    incarnation: str
    earlier: frozenset[str]  # of processes that are dead: their live node may be replaced
    granted_ms: int  # no life under this name promised for longer, nor will this one


async def begin(
    me: BrokerId, group: GroupStore, disk: Disk, clock: Clock, grant_ms: int
) -> Identity:
    """Create a new incarnation; needs the group loaded and the directory locked.

    May take as long as a session needs to expire. Raises `NameTaken` if another process lives
    under this name, `InvalidArgument` if the directory belongs to another group.
    """
    raw = await disk.read_file(INCARNATIONS) or b""
    lines, homes = raw.decode("ascii", "replace").split(), homes_of(raw)
    grants = [line for line in lines if line.startswith(GRANT)]
    if homes and homes[0] != group.home:
        raise InvalidArgument(
            f"the data directory is of group {homes[0]} (cluster/group), not of {group.home}: name "
            f"the directory of {me}, or an empty one; if it is to be this group's from now on, and "
            f"its topics have the same numbers here, delete the file {INCARNATIONS} in it"
        )
    earlier = frozenset(lines) - frozenset(homes) - frozenset(grants)
    node = await _wait_for_name(me, group, earlier, clock)
    incarnation = f"{clock.random_id():016x}"
    granted_ms = max(grant_ms, *(_granted_ms(line) for line in grants), 0)
    known = [incarnation, *([node.incarnation] if node is not None else [])]
    await _remember(disk, group.home, granted_ms, known)
    return Identity(incarnation, earlier, granted_ms)


async def forget_promises(
    identity: Identity, group: GroupStore, disk: Disk, clock: Clock, grant_ms: int
) -> None:
    """Shorten the remembered promise once a longer one of an earlier incarnation is over."""
    if identity.granted_ms > grant_ms:
        await clock.sleep(promise_ms(identity.granted_ms) / 1000)
        known = [identity.incarnation, *sorted(identity.earlier)]  # none of them need have gone yet
        await _remember(disk, group.home, grant_ms, known)


async def _remember(disk: Disk, home: str, granted_ms: int, known: Sequence[str]) -> None:
    kept = [home, f"{GRANT}{granted_ms}", *known]
    try:
        await disk.replace_file(INCARNATIONS, "".join(f"{line}\n" for line in kept).encode())
    except StorageFull as error:  # reads go on with a full disk; the next start may have to wait
        _log.warning("incarnation_not_remembered", error=str(error))


def _granted_ms(line: str) -> int:
    digits = line.removeprefix(GRANT)
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


async def _wait_for_name(
    me: BrokerId, group: GroupStore, earlier: frozenset[str], clock: Clock
) -> LiveBroker | None:
    """Wait until no other process's node stands; return that of the last incarnation, if any."""
    until_ms = clock.monotonic_ms() + _SESSIONS * group.session_timeout_ms
    logged = False
    while (node := group.live.get(me)) is not None and node.incarnation not in earlier:
        if clock.monotonic_ms() >= until_ms:
            raise NameTaken(
                f"broker id {me} is in use: incarnation {node.incarnation or '?'} at "
                f"{node.address or 'an unknown address'} lives under it in ZooKeeper; stop that "
                "process, or start this one with another id"
            )
        if not logged:
            logged = True
            _log.warning(
                "name_in_use",
                broker=me,
                incarnation=node.incarnation,
                address=node.address,
                waiting_ms=_SESSIONS * group.session_timeout_ms,
                reason="its session may be over soon: it is not of this data directory's last "
                "broker",
            )
        await clock.sleep(_POLL_S)
        try:
            await group.refresh()
        except Unavailable:  # no answer proves nothing: sessions do not run out meanwhile either
            until_ms = clock.monotonic_ms() + _SESSIONS * group.session_timeout_ms
    return node
