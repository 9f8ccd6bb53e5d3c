"""Python's cyclic collector in a broker: short collections, with the loaded journal left out.

A collection holds the event loop, and visits each object of the generations that it collects, at
some 0.1 to 0.2 microseconds each. With 200,000 entries of progress (460,000 objects) a full one
takes 75 to 100 ms of processor time. Nearly all objects of a broker are freed without a collection,
so what one finds is little: connections, tasks and errors that refer to each other.

Therefore young collections are small and full ones rare. What a start has loaded is frozen: full
collections leave it out. It is still freed when its last use ends, unless it is part of a cycle,
and the journal's tables are none. If all progress was written again since, a full collection takes
some 25 ms. Without full collections cycles that outlive two young ones would stay for ever.
"""

import gc
from typing import Final

from fmqbroker.app.probe import BrokerProbe
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqport.clock import Clock
from fmqport.disk import Disk
from fmqport.lifecycle import Lifecycle

THRESHOLDS: Final = (8_000, 2, 5_000)
"""New objects before a young collection (below 1 ms); of those before a middle one (2 to 3 ms); of
those before a full one: after some 100 million new objects beyond those freed."""


def tune() -> None:
    """Set the thresholds of this process."""
    gc.set_threshold(*THRESHOLDS)


class FreezingProbe(BrokerProbe):
    """Leaves what the start has loaded out of later collections; for a broker with a process."""

    async def open_journal(
        self, disk: Disk, settings: BrokerSettings, clock: Clock, lifecycle: Lifecycle
    ) -> Journal:
        """See `Journal.open`."""
        journal = await super().open_journal(disk, settings, clock, lifecycle)
        gc.collect()  # a long turn: nothing is served yet. Else garbage would be frozen, too
        gc.freeze()
        return journal
