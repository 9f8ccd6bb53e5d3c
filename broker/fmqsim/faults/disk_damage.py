"""Faults of `table.py` that damage the data on a disk; afterwards a person has to help.

Done only to a group whose other members are all there and in sync: two damaged disks at once are
more than a group promises to survive.
"""

import asyncio

from e2e.history.cluster_events import FaultKind
from fmqbroker.journal.journal import Journal
from fmqcore.ids import BrokerId
from fmqsim.faults.api import Act
from fmqsim.scenario.hosts import BrokerHost

REFUSES_S = 3.0
"""Seconds after which a broker that does not come up with a damaged disk gets an empty one."""
POLL_S = 0.05
SERVE_TIMEOUT_S = 60.0
"""Seconds to wait for the others: their absence is no reason to empty the disk."""


def spare(act: Act) -> bool:
    """Whether the group can do without this broker's disk: no other one is in doubt."""
    world, group = act.world, act.target.group
    config, state = world.configs[group], world.state(group)
    members = {m.id for m in config.members}
    whole = state.isr | {state.master} == members and len(members) > 1
    hosts = [world.brokers[str(m)] for m in members]
    return whole and all(_has_a_copy(act, host) and _is_proven(act, host) for host in hosts)


async def flip_a_bit(act: Act) -> None:
    """Flip a bit in a file of a broker that is down.

    The broker starts again; if it refuses, a person empties its disk.
    """
    if not await act.world.until(lambda: spare(act), 10):
        return
    host = act.target
    host.hold()
    host.kill()
    files = sorted(name for name in host.storage.files.names if name.endswith(".journal"))
    newest = max((name for name in files if name[0].isdigit()), default="checkpoint")
    kind = act.dice.choice((newest, newest, ".index", "checkpoint", "takeover.journal"))
    act.fired(host.storage.flip_some_bit(kind) or host.storage.flip_some_bit(newest))
    host.let_go()
    if await _stuck(act, host):
        host.hold()
        host.kill()
        host.storage.files.wipe()
        act.also(FaultKind.DISK_EMPTY, "a person empties the disk")
        host.let_go()
    await act.world.until(lambda: serves(act, host), 20)
    act.healed()


async def empty_the_disk(act: Act) -> None:
    """Replace the disk of a broker that is down by an empty one; it keeps its name."""
    if not await act.world.until(lambda: spare(act), 10):
        return
    host = act.target
    host.hold()
    host.kill()
    host.storage.files.wipe()
    act.fired()
    await act.last(0.1, 1.0)
    host.let_go()
    await act.world.until(lambda: serves(act, host), 20)
    act.healed()


async def _stuck(act: Act, host: BrokerHost) -> bool:
    """Whether the broker does not come up, though all the others have been there all the while."""
    loop, others = act.world.loop, [act.world.brokers[name] for name in act.peers()]
    started_s = since_s = loop.now
    while not serves(act, host) and loop.now - started_s < SERVE_TIMEOUT_S:
        if not all(other.node.alive and not other.node.paused for other in others):
            since_s = loop.now
        elif loop.now - since_s >= REFUSES_S:
            return True
        await asyncio.sleep(POLL_S)
    return False


def serves(act: Act, host: BrokerHost) -> bool:
    """Whether the broker takes part in its group again."""
    state = act.world.state(host.group)
    return BrokerId(host.name) in state.isr | {state.master} and _has_a_copy(act, host)


def _is_proven(act: Act, host: BrokerHost) -> bool:
    """Whether no disk fault leaves its journal in doubt; one in its checkpoint does for a while."""
    journal = _journal(act, host)
    return journal is not None and not journal.doubts.emptied


def _has_a_copy(act: Act, host: BrokerHost) -> bool:
    """Whether the broker is alive and holds more than a disk that was just replaced.

    The state goes on naming an emptied broker, a master above all.
    """
    journal, opened = _journal(act, host), act.world.state(host.group).last_opened_epoch
    return host.node.alive and journal is not None and journal.epoch >= opened


def _journal(act: Act, host: BrokerHost) -> Journal | None:
    """Return the journal of the broker's process; None while it has none."""
    process = host.node.process
    return act.world.watcher.of(process).journal if process is not None else None
