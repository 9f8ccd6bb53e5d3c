"""The loss of a takeover reader that ended a segment above all that its group holds afterwards.

The master loses its power while slaves hold a tail that its own disk does not. One of them takes
the reads over and ends the segment at its own end; then its disk is lost. What comes back is the
master without that tail, so the end has to be lowered (ADR 0072).
"""

import asyncio
from typing import Final

from e2e.history.cluster_events import FaultKind
from fmqsim.faults import disk_damage as damage
from fmqsim.faults.api import Act, Entry
from fmqsim.scenario.chain_watch import ChainStep, Sprung, Trap
from fmqsim.scenario.hosts import BrokerHost

_TAIL_S: Final = 2.0
_ENDS_S: Final = 6.0
_LOWERED_S: Final = 15.0
_READS_S: Final = 1.0


async def lose_reader(act: Act) -> None:
    """Empty the disk of the takeover reader that has ended a segment of a master without power."""
    if not await act.world.until(lambda: _master_of_sending(act), 10):
        return
    world, master = act.world, act.target
    await _await_tail(act)
    master.hold()
    master.cut_power()
    act.fired("the master")
    lost: list[BrokerHost] = []
    reads_s = act.dice.choice((0.0, act.dice.uniform(0.0, _READS_S)))

    def empty(host: BrokerHost) -> None:
        host.hold()
        host.kill()
        host.storage.files.wipe()
        act.also(FaultKind.DISK_EMPTY, "the reader is lost", on=host.name)
        lost.append(host)

    def spring(sprung: Sprung) -> float:
        if sprung.group == master.group and sprung.writer != master.name:
            world.loop.at_world(reads_s, empty, world.brokers[sprung.writer])
        return 0.0

    trap, lowered = Trap(ChainStep.GIVE_END, False, spring), world.chains.lowered
    world.chains.arm(trap)
    await world.until(lambda: trap.sprung, _ENDS_S)
    world.chains.disarm(trap)
    await asyncio.sleep(reads_s)
    await act.last(0.0, 1.0)
    master.power_on()
    master.let_go()
    await asyncio.sleep(act.dice.uniform(0.0, 1.0))
    for host in lost:
        host.let_go()
    if lost:
        await world.until(lambda: world.chains.lowered > lowered, _LOWERED_S)
    act.healed()


def _master_of_sending(act: Act) -> bool:
    """Let the fault be on the master of the sending group; return whether the group is whole."""
    world = act.world
    master = str(world.state(world.chains.sending_group).master)
    if master not in world.brokers:
        return False
    act.on = master
    return damage.spare(act)


async def _await_tail(act: Act) -> None:
    """Stall the master's disk until a slave holds more than it does, for a while at most."""
    speed = act.target.storage.speed
    speed.stalled_until_s = act.world.loop.now + _TAIL_S
    await act.world.until(lambda: _has_tail(act), _TAIL_S)
    speed.stalled_until_s = 0.0


def _has_tail(act: Act) -> bool:
    held = {name: _durable_end(act, name) for name in act.peers()}
    return any(end > _durable_end(act, act.on) for end in held.values())


def _durable_end(act: Act, name: str) -> int:
    process = act.world.brokers[name].node.process
    journal = act.world.watcher.of(process).journal if process is not None else None
    return int(journal.durable_end) if journal is not None else 0


LOST_READER: Final = Entry(
    "lose the reader of an ended segment", FaultKind.POWER, 3, ("sending",), lose_reader
)
