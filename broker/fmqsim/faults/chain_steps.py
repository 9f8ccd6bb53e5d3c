"""Faults at a chosen step of a switch of an ordered topic.

Each makes the chain switch (a member of the sending group is killed, the group, or the sender),
waits for its step, and strikes at that moment: before the step's write in ZooKeeper, which is then
lost or late, or just after it, when its writer does not know that it stands. The victim is the
broker that takes the step (the coordinator of the moment), or a member of the step's group.

They come only if the scene has an ordered topic: see `senders.py`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from e2e.history.cluster_events import FaultKind
from fmqsim.faults import disk_damage as damage
from fmqsim.faults.api import Act, Entry
from fmqsim.scenario.chain_watch import ChainStep, Sprung, Trap
from fmqsim.scenario.hosts import BrokerHost, ClientHost

_COMES_S: Final = 6.0
"""Longest wait for the step."""
_UNKNOWN_COMES_S: Final = 9.0
"""The same for an end that is declared unknown: the lease of 4 s is waited out first."""
_ROLES: Final = ("writer", "writer", "master", "slave")
_LATE_S: Final = (0.3, 6.0)
STEPS: tuple[tuple[ChainStep, int], ...] = (
    (ChainStep.CLOSE, 3),
    (ChainStep.SEAL, 2),
    (ChainStep.GIVE_END, 4),
    (ChainStep.DECLARE_UNKNOWN, 1),
    (ChainStep.OPEN, 4),
    (ChainStep.MOVE_HEADS, 2),
    (ChainStep.DROP, 2),
)
"""The steps with their weights."""

Host = BrokerHost | ClientHost
Strike = Callable[[BrokerHost], None]


# ---- the coordinator, or a member of the step's group


async def kill_at_step(act: Act) -> None:
    """Kill a broker with SIGKILL at a step."""
    await _hurt_at_step(act, BrokerHost.kill)


async def cut_power_at_chain_step(act: Act) -> None:
    """Cut the power of a broker's machine at a step."""
    await _hurt_at_step(act, BrokerHost.cut_power)


async def _hurt_at_step(act: Act, hurt: Strike) -> None:
    hit: list[BrokerHost] = []

    def strike(victim: BrokerHost) -> None:
        victim.hold()
        hurt(victim)
        hit.append(victim)

    before, late_s = act.dice.random() < 0.5, act.dice.choice((None, act.dice.uniform(*_LATE_S)))
    held = await _strike_at_step(act, strike, before, late_s)
    await act.last(0.3, 4.0)
    for victim in hit:
        victim.power_on()
        victim.let_go()
    _let_go(held)
    act.healed()


async def pause_at_step(act: Act) -> None:
    """Pause a broker at a step, perhaps past its session; its write may come while it stands."""
    hit: list[BrokerHost] = []

    def strike(victim: BrokerHost) -> None:
        route = act.world.ensemble.route(victim.name)
        if victim.node.alive and route.ended_early in (0, route.heard_of):  # see `expire`
            victim.node.pause()
            hit.append(victim)

    before, late_s = act.dice.random() < 0.5, act.dice.choice((None, act.dice.uniform(*_LATE_S)))
    held = await _strike_at_step(act, strike, before, late_s)
    await act.last(0.3, 6.0)
    for victim in hit:
        victim.node.resume()
    _let_go(held)
    act.healed()


async def cut_off_at_step(act: Act) -> None:
    """Cut a broker off from ZooKeeper at a step; its group and its clients still reach it."""
    hit: list[BrokerHost] = []

    def strike(victim: BrokerHost) -> None:
        act.world.ensemble.route(victim.name).hold()
        hit.append(victim)

    before, late_s = act.dice.random() < 0.5, act.dice.choice((None, act.dice.uniform(*_LATE_S)))
    held = await _strike_at_step(act, strike, before, late_s)
    await act.last(0.3, 6.0)
    for victim in hit:
        act.world.ensemble.route(victim.name).heal()
    _let_go(held)
    act.healed()


async def late_write_at_step(act: Act) -> None:
    """Let a step's write come late: another broker may have taken the step by then."""
    held = await _strike_at_step(act, lambda _: None, True, act.dice.uniform(*_LATE_S))
    await act.last(0.3, 3.0)
    _let_go(held)
    act.healed()


async def _strike_at_step(
    act: Act, strike: Strike, before: bool, late_s: float | None
) -> list[Host]:
    """Strike at a drawn step, or in the end, if it does not come; return what is held down.

    A strike `before` the step's write makes it come late, or, without `late_s`, never.
    """
    step, role = _step(act), act.dice.choice(_ROLES)

    def struck(victim: BrokerHost, detail: str) -> None:
        strike(victim)
        act.fired(detail, on=victim.name)

    def spring(sprung: Sprung) -> float | None:
        when = "before" if before else "after"
        victim, detail = _victim(act, role, sprung), f"{role}, {when} {sprung.step.value}"
        act.world.loop.at_world(0, struck, victim, detail)
        return late_s

    trap = Trap(step, before, spring)
    held = await _provoke(act, trap)
    if trap.sprung is None:
        struck(act.target, f"no {step.value} came")
    return held


def _step(act: Act) -> ChainStep:
    steps, weights = zip(*STEPS, strict=True)
    (step,) = act.dice.choices(steps, weights)
    assert isinstance(step, ChainStep)
    return step


def _victim(act: Act, role: str, sprung: Sprung) -> BrokerHost:
    world = act.world
    writer = world.brokers.get(sprung.writer, act.target)
    group = sprung.group or writer.group
    master = str(world.state(group).master)
    members = [str(m.id) for m in world.configs[group].members]
    match role:
        case "master" if master in world.brokers:
            return world.brokers[master]
        case "slave" if slaves := [name for name in members if name != master]:
            return world.brokers[act.dice.choice(slaves)]
        case _:
            return writer


# ---- the disk of a member


async def empty_at_step(act: Act) -> None:
    """Empty the disk of a member of the sending group at a step; all other disks are whole.

    Either this broker's end makes the chain switch, or the sender's, and the broker works until
    then.
    """
    if not await act.world.until(lambda: damage.spare(act), 10):
        return
    host, emptied = act.target, False

    def strike(detail: str) -> None:
        nonlocal emptied
        emptied = True
        host.hold()  # also if another fault has ended it: one `let_go` follows
        if host.node.alive:
            host.kill()
        host.storage.files.wipe()
        act.fired(detail)

    def spring(sprung: Sprung) -> float:
        if not host.node.alive or damage.spare(act):
            act.world.loop.at_world(0, strike, f"at {sprung.step.value}")
        return 0.0

    trap = Trap(_step(act), act.dice.random() < 0.5, spring)
    sender = act.world.clients.get(act.world.traffic.ordered_sender)
    first: Host = sender if sender is not None and act.dice.random() < 0.4 else host
    await _wait_for(act, trap, [first])
    if not emptied and await act.world.until(lambda: not host.node.alive or damage.spare(act), 10):
        strike(f"no {trap.step.value} came")
    await act.last(0.1, 2.0)
    _let_go([first, host] if emptied else [first])
    await act.world.until(lambda: damage.serves(act, host), 20)
    act.healed()


async def lose_group_and_disk(act: Act) -> None:
    """Cut the power of all members of the sending group; one of them comes back empty."""
    if not await act.world.until(lambda: damage.spare(act), 10):
        return
    world, dice = act.world, act.dice
    hosts = [world.brokers[name] for name in (act.on, *act.peers())]
    for host in hosts:
        host.hold()
        host.cut_power()
    act.target.storage.files.wipe()
    act.fired("the whole group is without power, one disk is gone")
    await act.last(0.3, 6.0)
    dice.shuffle(hosts)
    for host in hosts:
        await asyncio.sleep(dice.choice((0.0, dice.uniform(0.0, 2.0))))
        host.power_on()
        host.let_go()
    await world.until(lambda: damage.serves(act, act.target), 20)
    act.healed()


# ---- groups


async def groups_in_turn(act: Act) -> None:
    """Kill a member of each group that takes the sends, one group after the other."""
    world, dice = act.world, act.dice
    down: list[BrokerHost] = []
    for _ in range(dice.randint(2, 4)):
        host = _member(act, dice.choice(("master", "slave")))
        number = world.chains.newest_segment
        if host is None or host in down:
            break
        host.hold()
        host.kill()
        down.append(host)
        act.on = host.name
        act.fired(f"segment {number}")
        await world.until(lambda: world.chains.newest_segment > number, _COMES_S)  # noqa: B023
        if len(down) > 1 and dice.random() < 0.7:  # else two groups lack a member for a while
            down.pop(0).let_go()
        await asyncio.sleep(dice.uniform(0.0, 1.0))
    for host in down:
        host.let_go()
    if not down:
        act.fired("no group takes sends", on=act.target.name)
    act.healed()


# ---- within


async def _provoke(act: Act, trap: Trap) -> list[Host]:
    """Make the chain switch and wait for the trap; return what is held down for that."""
    world, dice = act.world, act.dice
    await world.until(lambda: _member(act, "master"), _COMES_S)
    group = world.chains.sending_group
    members = [b for b in world.brokers.values() if b.group == group and not b.gone]
    sender = world.clients.get(world.traffic.ordered_sender)
    hosts: list[BrokerHost | ClientHost | None]
    if trap.step is ChainStep.DECLARE_UNKNOWN:
        hosts = [*members]
    elif dice.random() < 0.3:
        hosts = [sender]
    else:
        roles = ("slave",) if trap.step is ChainStep.SEAL else ("master", "slave")
        hosts = [_member(act, dice.choice(roles))]
    return await _wait_for(act, trap, [h for h in hosts if h is not None])


async def _wait_for(act: Act, trap: Trap, hosts: list[Host]) -> list[Host]:
    world = act.world
    for host in hosts:
        host.hold()
        host.kill()
        world.loop.note(f"to make the chain switch, {host.name} is killed")
    world.chains.arm(trap)
    unknown = trap.step is ChainStep.DECLARE_UNKNOWN
    await world.until(lambda: trap.sprung, _UNKNOWN_COMES_S if unknown else _COMES_S)
    world.chains.disarm(trap)
    return hosts


def _member(act: Act, role: str) -> BrokerHost | None:
    """Return a member of the group that takes the sends; None if there is none."""
    world = act.world
    group = world.chains.sending_group
    if not group:
        return None
    master = str(world.state(group).master)
    hosts = [b for b in world.brokers.values() if b.group == group and not b.gone]
    found = [b for b in hosts if (b.name == master) is (role == "master")]
    return act.dice.choice(found) if found else None


def _let_go(hosts: list[Host]) -> None:
    for host in hosts:
        host.let_go()


_SENDING: Final = ("sending",)

CHAIN_STEPS: Final = (
    Entry("kill at a chain's step", FaultKind.KILL, 8, _SENDING, kill_at_step),
    Entry("pause at a chain's step", FaultKind.PAUSE, 5, _SENDING, pause_at_step),
    Entry("cut the power at a chain's step", FaultKind.POWER, 2, _SENDING, cut_power_at_chain_step),
    Entry("cut off at a chain's step", FaultKind.CUT, 4, _SENDING, cut_off_at_step),
    Entry("late write at a chain's step", FaultKind.ZOOKEEPER, 3, _SENDING, late_write_at_step),
    Entry("empty a disk at a chain's step", FaultKind.DISK_EMPTY, 3, _SENDING, empty_at_step),
    Entry("lose a group and a disk", FaultKind.DISK_EMPTY, 1.5, _SENDING, lose_group_and_disk),
    Entry("groups in turn", FaultKind.KILL, 3, _SENDING, groups_in_turn),
)
