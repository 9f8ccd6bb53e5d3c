"""Which stream speaks for which slave, at its master. Owner: replication.

One a slave: a newer one takes the place of the older, of which nothing counts from then on (R6).
Not their life (`replication/master_stream.py`), nor what they said (`LinkView`). Leaves nothing on
disk.
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
"""A stream that said something within so many heartbeats lives."""


class Streams:
    """At most one link of each slave."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._links: dict[BrokerId, MasterLink] = {}
        self._dials: dict[BrokerId, tuple[str, int]] = {}  # the newest, as long as I live

    def __iter__(self) -> Iterator[MasterLink]:
        """In the order of the slaves' names."""
        return (link for _, link in sorted(self._links.items()))

    def of(self, broker: BrokerId) -> MasterLink | None:
        """The one that speaks for that slave."""
        return self._links.get(broker)

    def counts(self, link: MasterLink) -> bool:
        """False: a newer one has taken its place, or nothing that was said before counts."""
        return self._links.get(link.broker) is link

    def twin(self, link: MasterLink) -> str:
        """Another process of that name whose stream lives; "" if there is none."""
        other = self._links.get(link.broker)
        if other is None or other.incarnation == link.incarnation:
            return ""
        silent_ms = self._clock.monotonic_ms() - other.heard_ms
        if silent_ms > _TWIN_HEARTBEATS * self._settings.heartbeat_ms:
            return ""
        return f"incarnation {other.incarnation} was heard {silent_ms} ms ago"

    def overtaken(self, link: MasterLink) -> str:
        """Why this Hello comes too late: the network held it up, and its slave dialled again."""
        incarnation, dial = self._dials.get(link.broker, ("", 0))
        if incarnation != link.incarnation or dial <= link.dial:
            return ""
        return f"dial {link.dial} of {link.broker} comes after dial {dial}"

    def replace(self, link: MasterLink) -> None:
        """From now on this stream alone speaks for its slave; nothing of the older one counts."""
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
        """It has ended, and it counted."""
        assert self.counts(link)
        del self._links[link.broker]

    def end_all(self, *, but: MasterLink | None = None) -> None:
        """Nothing that they said counts: each slave dials again."""
        for link in list(self):
            if link is not but:
                del self._links[link.broker]
                link.cancel()
