"""The master's registry of slave streams: at most one per slave. Owner: replication.

A newer stream replaces the older one, and nothing from the older counts from then on (R6). Not
here: a stream's life (`replication/master_stream.py`) and what it reported (`LinkView`). Leaves
nothing on disk.
"""

from collections.abc import Iterator
from typing import Final

from fmqbroker.replication.master_stream import MasterLink
from fmqbroker.replication.view import LinkView
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.ids import BrokerId, Epoch
from fmqcore.policy import NOTHING
from fmqport.clock import Clock

_TWIN_HEARTBEATS: Final = 2
"""A stream heard within this many heartbeats counts as alive."""


class Streams:
    """At most one link per slave."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._links: dict[BrokerId, MasterLink] = {}
        self._dials: dict[
            BrokerId, tuple[str, int]
        ] = {}  # the newest, as long as this process lives

    def __iter__(self) -> Iterator[MasterLink]:
        """Iterate over the links in the order of the slaves' names."""
        return (link for _, link in sorted(self._links.items()))

    def of(self, broker: BrokerId) -> MasterLink | None:
        """Return the link that speaks for that slave; None if there is none."""
        return self._links.get(broker)

    def counts(self, link: MasterLink) -> bool:
        """Return False if a newer link has replaced this one or all links were ended."""
        return self._links.get(link.broker) is link

    def twin_reason(self, link: MasterLink) -> str | None:
        """Return how another live process uses the same name; None if there is none."""
        other = self._links.get(link.broker)
        if other is None or other.incarnation == link.incarnation:
            return None
        silent_ms = self._clock.monotonic_ms() - other.heard_ms
        if silent_ms > _TWIN_HEARTBEATS * self._settings.heartbeat_ms:
            return None
        return f"incarnation {other.incarnation} was heard {silent_ms} ms ago"

    def overtaken_reason(self, link: MasterLink) -> str | None:
        """Return why a Hello is outdated: its slave has dialled again; None if it is current."""
        incarnation, dial = self._dials.get(link.broker, ("", 0))
        if incarnation != link.incarnation or dial <= link.dial:
            return None
        return f"dial {link.dial} of {link.broker} comes after dial {dial}"

    def replace(self, link: MasterLink) -> None:
        """Let this link alone speak for its slave: nothing from the older one counts any more."""
        older = self._links.get(link.broker)
        self._links[link.broker] = link
        self._dials[link.broker] = link.incarnation, link.dial
        view = link.view
        view.connected = view.caught_up = False
        view.sent_end = view.received_end = view.durable_end = NOTHING
        view.epoch = Epoch(0)
        view.incarnation = link.incarnation
        view.reader = link.slave.reader
        if older is not None:
            older.view = LinkView()
            older.cancel()

    def remove(self, link: MasterLink) -> None:
        """Remove a link that has ended; it must be the current one."""
        assert self.counts(link)
        del self._links[link.broker]

    def end_all(self, *, but: MasterLink | None = None) -> None:
        """End all links except `but`: nothing they reported counts, and each slave dials again."""
        for link in list(self):
            if link is not but:
                del self._links[link.broker]
                link.cancel()
