"""Where an observer of a broker hooks in: the three parts that it watches are made here.

A simulator passes a subclass that makes parts which also report. A probe decides nothing.
"""

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate
from fmqport.clock import Clock
from fmqport.disk import Disk
from fmqport.lifecycle import Lifecycle


class BrokerProbe:
    """Makes the parts of one broker; without an observer, the plain ones."""

    async def open_journal(
        self, disk: Disk, settings: BrokerSettings, clock: Clock, lifecycle: Lifecycle
    ) -> Journal:
        """See `Journal.open`."""
        return await Journal.open(disk, settings, clock, lifecycle)

    def make_gate(self, clock: Clock) -> Gate:
        """Return the gate of a broker that starts."""
        return Gate(clock)

    def make_commit_frontier(self) -> CommitFrontier:
        """Return the commit frontier of a broker that starts."""
        return CommitFrontier()
