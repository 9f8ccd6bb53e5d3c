"""Faults of the network between groups, and between the active sender and a group.

A chain of groups has links that no group has alone: its coordinator is any broker, a switch needs
the group that is left and the group that is next, and the sender reaches one and not the other.
They come with `--moves` only: in the table of `table.py` they would make each seed another run.
"""

from itertools import product
from typing import Final

from e2e.history.cluster_events import FaultKind
from fmqsim.faults.acts import kill_host
from fmqsim.faults.api import Act, Entry
from fmqsim.faults.senders import find_sender

_LASTS_S: Final = (0.3, 9.0)
"""Up to long after a segment is closed, and its end declared unknown."""


async def cut_from_another_group(act: Act) -> None:
    """Cut a broker, or its whole group, off from members of another group."""
    others = _other_groups(act)
    if not others:
        return
    ours = [act.on, *act.peers()] if act.dice.random() < 0.5 else [act.on]
    theirs = act.dice.choice(others)
    await _cut(act, ours, act.dice.sample(theirs, act.dice.randint(1, len(theirs))))


async def cut_sender_from_group(act: Act) -> None:
    """Cut the active sender off from all members of a group, of the sending one perhaps."""
    if (host := await find_sender(act)) is None:
        return
    groups = [*_other_groups(act), [act.on, *act.peers()]]
    await _cut(act, [host.name], act.dice.choice(groups))


async def cut_sender_and_kill(act: Act) -> None:
    """Cut the active sender off from another group, and kill the master that it sends to."""
    if (host := await find_sender(act)) is None or not (others := _other_groups(act)):
        return
    world = act.world
    links = list(product([host.name], act.dice.choice(others)))
    for link in links:
        world.network.cut(*link)
    act.fired(_text(links), on=host.name)
    master = str(world.state(world.chains.sending_group or act.target.group).master)
    if master in world.brokers:
        await kill_host(act, world.brokers[master], *_LASTS_S)
    _heal(act, links)
    act.healed()


async def _cut(act: Act, ours: list[str], theirs: list[str]) -> None:
    way = act.dice.choice(("both", "to", "from"))
    links: list[tuple[str, str]] = []
    if way != "from":
        links += product(ours, theirs)
    if way != "to":
        links += product(theirs, ours)
    for link in links:
        act.world.network.cut(*link)
    act.fired(_text(links), on=ours[0])
    await act.last(*_LASTS_S)
    _heal(act, links)
    act.healed()


def _heal(act: Act, links: list[tuple[str, str]]) -> None:
    for link in links:
        act.world.network.heal(*link)


def _text(links: list[tuple[str, str]]) -> str:
    return " ".join(f"{a}->{b}" for a, b in links)


def _other_groups(act: Act) -> list[list[str]]:
    """Return the brokers of each group but the target's."""
    brokers = act.world.brokers
    groups = {host.group for host in brokers.values()} - {act.target.group}
    return [sorted(name for name in brokers if brokers[name].group == g) for g in sorted(groups)]


GROUP_CUTS: Final = (
    Entry("cut from another group", FaultKind.CUT, 4, ("sending", "any"), cut_from_another_group),
    Entry("cut the sender from a group", FaultKind.CUT, 4, ("sending",), cut_sender_from_group),
    Entry("cut the sender and kill", FaultKind.CUT, 3, ("sending",), cut_sender_and_kill),
)
