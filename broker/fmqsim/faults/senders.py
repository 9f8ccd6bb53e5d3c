"""Faults of the active sender of an ordered topic.

They come only if the scene has such a topic: in the table of `table.py` they would make each seed
another run. A sender that stands still loses its place in line; the next one takes over, and the
one before goes on with what it had on its way: it must be fenced.
"""

from collections.abc import Callable
from typing import Final

from e2e.history.events import FaultKind
from fmqsim.engine.node import Node
from fmqsim.faults.api import Act, Entry
from fmqsim.scenario.hosts import ClientHost

_STILL_S: Final = (0.2, 5.0)
_FOUND_S: Final = 20.0


async def pause_sender(act: Act) -> None:
    """Pause the active sender, perhaps past its place in line."""
    await _stand_still(act, Node.pause)


async def wedge_sender(act: Act) -> None:
    """Block the event loop of the active sender, perhaps past its place in line."""
    await _stand_still(act, Node.wedge)


async def kill_sender(act: Act) -> None:
    """Kill the active sender with SIGKILL."""
    if (host := await _sender(act)) is None:
        return
    host.hold()
    host.kill()
    act.fired(on=host.name)
    await act.last(0.1, 3.0)
    host.let_go()
    act.healed()


async def _stand_still(act: Act, freeze: Callable[[Node], None]) -> None:
    if (host := await _sender(act)) is None:
        return
    freeze(host.node)
    act.fired(on=host.name)
    await act.last(*_STILL_S)
    host.node.resume()
    act.healed()


async def _sender(act: Act) -> ClientHost | None:
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
    Entry("kill the sender", FaultKind.CLIENT, 2, (), kill_sender),
)
