"""Up to where every configured member holds the journal, as its master knows it in its term.

A member counts with the position that it last reported durable in this term, also after its stream
broke: in a term a slave only appends, so a lower report means that its disk was lost. It must have
reached the term's start, so nothing that an earlier term acknowledged lies above. Grants play no
part.

Who may claim the reads counts as a member, too: a slave that was removed from the configuration
gives a segment's end as a takeover reader until the in-sync set is without it. And who joins that
set must have on its disk what was acknowledged before it was a member (`promised_end`).
"""

from collections.abc import Mapping
from typing import Protocol

from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.term import NO_TERM, Term
from fmqbroker.replication.view import LinkView
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.group_config import GroupConfig


class Links(Protocol):
    """The master's slaves (`replication.view.MasterReplication`)."""

    changed: Signal
    reported: Signal

    @property
    def successors(self) -> frozenset[BrokerId]:
        """The slaves that may claim the reads now."""
        ...

    @property
    def links(self) -> Mapping[BrokerId, LinkView]:
        """Every configured slave with its link's state."""
        ...


class Configured(Protocol):
    """An object with the group's configuration: `serving.broker_group_state.GroupStore`."""

    config: GroupConfig


class MemberEnds:
    """The durable ends of the members."""

    def __init__(
        self,
        me: BrokerId,
        journal: Journal,
        term: Term,
        group: Configured,
        links: Links,
        committed: Signal,
    ) -> None:
        """`committed` fires when the commit frontier has moved."""
        self.me = me
        self.known = Signal()  # `all_end` is known where it was not
        self._journal = journal
        self._term = term
        self._group = group
        self._links = links
        self._committed = committed
        self._of: Epoch = NO_TERM
        self._start = Position(0)
        self._durable: dict[BrokerId, Position] = {}
        self._held: Position | None = None  # the highest `all_end` of the term

    @property
    def changed(self) -> tuple[Signal, Signal]:
        """Fire when `all_end` may have risen without the commit frontier's `all_end`.

        That one counts slaves in sync; an ordered ack also waits for a member out of sync.
        """
        return self._links.changed, self._links.reported

    @property
    def members(self) -> frozenset[BrokerId]:
        """All that the configuration lists, who may claim the reads besides, and this broker."""
        listed = frozenset(m.id for m in self._group.config.members)
        return listed | self._links.successors | {self.me}

    def note(self) -> None:
        """Take over what the slaves have reported."""
        term = self._term.newest
        if term != self._of:
            self._of, self._start = term, dict(self._journal.state.epochs).get(term, Position(0))
            self._durable.clear()
            self._held = None
        for broker, view in self._links.links.items():
            if view.epoch == term:
                self._durable[broker] = view.durable_end

    def durable_on(self, position: Position) -> frozenset[BrokerId]:
        """Return the members whose disks hold everything below `position`."""
        self.note()
        slaves = {b for b, end in self._durable.items() if end >= max(position, self._start)}
        own = {self.me} if self._journal.durable_end >= position else set()
        return self.members & (slaves | own)

    def present_end(self) -> Position | None:
        """Return the position up to which every member's disk holds the journal now (K14).

        None: a member has not reached the start of this broker's own term. It falls when a member
        loses its disk, and when one is configured that lacks records.
        """
        if not self._term.held:
            return None
        self.note()
        ends = [self._durable.get(broker, Position(0)) for broker in self.members - {self.me}]
        end = min([self._journal.durable_end, *ends])
        if end < self._start:
            return None
        self._held = end if self._held is None else max(self._held, end)
        return end

    def all_end(self) -> Position | None:
        """Return the highest `present_end` of the term: records may be acknowledged up to it."""
        self.present_end()
        return self._held if self._term.held else None

    def promised_end(self) -> Position:
        """Return the end below which records may have been acknowledged, by any term's master."""
        self.all_end()
        return self._start if self._held is None else self._held

    async def run(self) -> None:
        """Note what the slaves report, also without a question: a link that comes again forgets."""
        known_in = NO_TERM
        while True:
            self.note()
            term = self._of if self.all_end() is not None else NO_TERM
            if term not in (NO_TERM, known_in):
                self.known.notify()
            known_in = term
            signals = [*self.changed, self._term.changed]
            if self._term.held and not term:  # the first report of a slave in sync is only a commit
                signals.append(self._committed)
            await wait_any(*signals)
