"""Faults of the active sender of an ordered topic.

They come only if the scene has such a topic: in the table of `table.py` they would make each seed
another run. A sender that stands still loses its place in line; the next one takes over, and the
one before goes on with what it had on its way: it must be fenced.
"""

from collections.abc import Callable
from typing import Final

from e2e.history.cluster_events import FaultKind
from fmqsim.engine.node import Node
from fmqsim.faults.acts import kill_host
from fmqsim.faults.api import Act, Entry
from fmqsim.scenario.hosts import BrokerHost, ClientHost

_STILL_S: Final = (0.2, 5.0)
_FOUND_S: Final = 20.0
_TAKEN_OVER_S: Final = 8.0
_GONE_ON_S: Final = 12.0
"""The next sender gets the role, the lease on the segment runs out, another one is opened."""


async def pause_sender(act: Act) -> None:
    """Pause the active sender, perhaps past its place in line."""
    await _stand_still(act, Node.pause)


async def wedge_sender(act: Act) -> None:
    """Block the event loop of the active sender, perhaps past its place in line."""
    await _stand_still(act, Node.wedge)


async def zombie_sender(act: Act) -> None:
    """Let the active sender stand still until another one has stored records, and wake it.

    Or only what it sends stands still: then its batches arrive when another one has the role.
    """
    if (host := await find_sender(act)) is None:
        return
    world, traffic = act.world, act.world.traffic
    links = [(host.name, broker) for broker in world.brokers]
    if stalled := act.dice.random() < 0.5:
        for link in links:
            world.network.stall(*link)
    else:
        host.node.pause()
    act.fired("its links" if stalled else "itself", on=host.name)
    await world.until(lambda: traffic.ordered_sender != host.name, _TAKEN_OVER_S)
    stored = len(traffic.ordered_stored)
    await world.until(lambda: len(traffic.ordered_stored) > stored, _TAKEN_OVER_S)
    await act.last(0.0, 1.0)
    for link in links if stalled else ():
        world.network.heal(*link)
    host.node.resume()
    act.healed()


async def kill_sender(act: Act) -> None:
    """Kill the active sender with SIGKILL."""
    if (host := await find_sender(act)) is None:
        return
    await kill_host(act, host, 0.1, 3.0)


async def kill_sender_and_group(act: Act) -> None:
    """Kill the active sender and the group that it sends to, until another one may have gone on.

    That is without the end of the group's segment, if the other sender accepts that.
    """
    if (sender := await find_sender(act)) is None:
        return
    chains, group = act.world.chains, act.world.chains.sending_group
    brokers = [host for host in act.world.brokers.values() if host.group == group]
    hosts: list[ClientHost | BrokerHost] = [sender, *brokers]
    for host in hosts:
        host.hold()
        host.kill()
    act.fired(f"and {group}", on=sender.name)
    newest = chains.newest_segment
    await act.world.until(lambda: chains.newest_segment > newest, _GONE_ON_S)
    await act.last(0.0, 2.0)
    for host in hosts:
        host.let_go()
    act.healed()


async def _stand_still(act: Act, freeze: Callable[[Node], None]) -> None:
    if (host := await find_sender(act)) is None:
        return
    freeze(host.node)
    act.fired(on=host.name)
    await act.last(*_STILL_S)
    host.node.resume()
    act.healed()


async def find_sender(act: Act) -> ClientHost | None:
    """Return the machine of the active sender once its program runs; None: it does not."""
    world = act.world

    def found() -> ClientHost | None:
        host = world.clients.get(world.traffic.ordered_sender)
        return host if host is not None and host.node.alive else None

    await world.until(found, _FOUND_S)
    return found()


SENDERS: Final = (
    Entry("pause the sender", FaultKind.CLIENT, 5, (), pause_sender),
    Entry("wedge the sender", FaultKind.CLIENT, 3, (), wedge_sender),
    Entry("zombie sender", FaultKind.CLIENT, 5, (), zombie_sender),
    Entry("kill the sender", FaultKind.CLIENT, 2, (), kill_sender),
    Entry("kill the sender and its group", FaultKind.CLIENT, 2, (), kill_sender_and_group),
)
