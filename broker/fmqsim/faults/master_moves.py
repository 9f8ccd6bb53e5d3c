"""A person wants another master (ADR 0022): a switchover or a promotion, at any time.

These faults come only if the scene asks for moves: in the table of `table.py` they would make each
seed another run. The wish stays: a group is whole again once the wanted master is master.
"""

import asyncio
from typing import Final

from e2e.history.cluster_events import FaultKind
from fmqcore.zk.group_state import Mode
from fmqsim.faults import disk_damage as damage
from fmqsim.faults.api import Act, Entry

_GONE_S: Final = 10.0


async def wish(act: Act) -> None:
    """Want any member as master, whatever the state is."""
    _want(act, act.dice.choice([act.on, *act.peers()]))
    act.healed()


async def wish_and_kill(act: Act) -> None:
    """Want another master, and kill a broker of the group at any step of the switchover."""
    world, dice = act.world, act.dice
    wanted = act.dice.choice(act.peers() or [act.on])
    before = str(world.state(act.target.group).master)
    _want(act, wanted)
    await asyncio.sleep(dice.choice((dice.uniform(0, 0.05), dice.uniform(0, 0.6))))
    host = world.brokers[dice.choice((before or act.on, before or act.on, wanted))]
    host.hold()
    host.kill()
    act.also(FaultKind.KILL, f"{host.name} is killed in mid-move")
    await act.last(0.05, 3.5)
    host.let_go()
    act.healed()


async def promote(act: Act) -> None:
    """Kill the master and promote the broker that then serves reads."""
    await _promote(act, wipe=False)


async def promote_for_good(act: Act) -> None:
    """Promote as in `promote`, and wipe the old master's disk."""
    if await act.world.until(lambda: damage.spare(act), 10):
        await _promote(act, wipe=True)


async def _promote(act: Act, *, wipe: bool) -> None:
    world, host, group = act.world, act.target, act.target.group
    host.hold()
    host.kill()
    if wipe:
        host.storage.files.wipe()
        act.also(FaultKind.DISK_EMPTY, "its disk is gone")

    def read() -> bool:
        state = world.state(group)
        return state.mode is Mode.SLAVE_CONSUME and str(state.reader) != act.on

    if await world.until(read, _GONE_S):
        _want(act, str(world.state(group).reader), lost=act.on)
    else:
        act.fired("no broker takes over the reads")
    await act.last(0.2, 4.0)
    host.let_go()
    act.healed()


def _want(act: Act, broker: str, lost: str = "") -> None:
    group = act.target.group
    if lost:  # its copy counts for nothing any more: as if its disk were gone
        act.also(FaultKind.DISK_EMPTY, f"{lost} is declared lost")
    if any(str(m.id) == broker for m in act.world.configs[group].members):
        act.world.operator.request_master(group, broker, lost)
        act.fired(f"{broker} shall be master of {group}")


MOVES: Final = (
    Entry("wish", FaultKind.OPERATOR, 10, ("master", "any"), wish),
    Entry("wish and kill", FaultKind.KILL, 8, ("master",), wish_and_kill),
    Entry("promote", FaultKind.KILL, 4, ("master",), promote),
    Entry("promote for good", FaultKind.DISK_EMPTY, 2, ("master",), promote_for_good),
)
