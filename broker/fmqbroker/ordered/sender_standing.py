"""One ordered session's sender: its place in the line, its epoch, its last report.

A `SenderReport` counts for one closing (`fmqcore.ordered.machine` compares sender and segment); it
is forgotten when the chain's last number changes. `senders` makes the places.
"""

from fmqbroker.runtime.notifier import Signal
from fmqcore.errors import (
    Malformed,
    SenderFenced,
    Unavailable,
)
from fmqcore.ids import GroupName
from fmqcore.ordered.evidence import SenderReport
from fmqcore.ordered.senders import Standing, line_of, sender_of, standing_of
from fmqcore.zk.chain import Chain
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import client_pb2


class SenderStanding:
    """One ordered session's sender. Made by `Senders.standing`."""

    def __init__(
        self,
        topic: TopicConfig,
        chain: Chain,
        place: str,
        *,
        accepts_unknown_end: bool = False,
        own: bool = True,
    ) -> None:
        self.topic = topic
        self.chain = chain  # as of which all below is
        self.place = place  # the node's name
        self.id = sender_of(place)  # `chain.sender.id` while it is active
        self.accepts_unknown_end = accepts_unknown_end
        self.own = own  # this session made the node
        self.epoch = 0  # that the chain gave to this sender; 0 = none yet
        self.standing = Standing.WAITING
        self.places: tuple[str, ...] = ()  # all nodes of the line
        self.line: tuple[str, ...] = ()  # the senders
        self.report: SenderReport | None = None
        self.noted: SenderReport | None = None  # in the node, for other brokers
        self.cut_groups: frozenset[GroupName] = frozenset()  # that it does not reach
        self.moved = Signal()  # something of `SenderState` may have changed
        self.deciding: str = ""  # what the chain waits for, by this broker's coordinator
        self.trouble: str = ""  # why the open segment takes no sends, by the same

    def note_report(self, report: client_pb2.SenderReport) -> None:
        """Keep what the client reported at a closing. Raises `Malformed`."""
        unacked, chain = dict(report.first_unacked), self.chain
        if sorted(unacked) != list(range(chain.queues)):
            raise Malformed(
                f"the report of segment {report.chain_segment} names queues {sorted(unacked)}: "
                f"topic {chain.topic} has queues 0 to {chain.queues - 1}, and each is needed"
            )
        numbers = tuple(unacked[queue] for queue in range(chain.queues))
        self.report = SenderReport(self.id, report.chain_segment, numbers)

    def note_links(self, links: client_pb2.SenderLinks) -> None:
        """Keep which groups of the chain the sender does not reach."""
        known = {GroupName(name) for name in links.cut_groups}
        self.cut_groups = frozenset(known.intersection(g.group for g in self.chain.groups))

    def adopt(self, chain: Chain, places: tuple[str, ...]) -> None:
        """Update the sender's standing from the chain and the line of places just read."""
        self.chain, self.places = chain, places
        self.line = line_of(places, chain.sender.id)
        if chain.sender.id == self.id:
            self.epoch = chain.sender.epoch
        kept = not self.own or self.place in places
        self.standing = standing_of(chain, self.line if kept else (), self.id, self.epoch)
        if self.report is not None and chain.next_number - 1 > self.report.segment:
            self.report = None

    def state(self) -> client_pb2.SenderState:
        """Return what the client is sent, without the last records."""
        active, chain = self.standing is Standing.ACTIVE, self.chain
        last = chain.last
        state = client_pb2.SenderState(
            active=active,
            sender_epoch=self.epoch if active else 0,
            closing_reason=chain.closing or "",
            reason=self._reason(),
        )
        if last is not None:
            state.chain_segment, state.group = last.number, last.group
            if active:
                state.first_sequence.update(dict(enumerate(last.first_sequence)))
        return state

    def _reason(self) -> str:
        if self.standing is Standing.ACTIVE:
            closing = self.chain.closing
            return self.trouble if closing is None else self.deciding or closing
        if self.standing is Standing.NEXT:
            return self.deciding or "the chain is about to go on with this sender"
        if self.standing is Standing.LOST:
            return "its place in the line is gone"
        if self.standing is Standing.FENCED:  # without a place in the line, perhaps
            return f"sender {self.chain.sender.id} has taken over the role"
        before = self.line.index(self.id)
        return f"sender {self.line[0]} is first in line, {before} before this one"

    def places_to_watch(self) -> tuple[str, ...]:
        """Return the nodes whose end may move a sender in line.

        The oldest node of the sender before this one: until it goes or the chain changes, no sender
        behind its owner can become first, so two waiters never wait for each other. And this
        sender's own older node, which keeps its place while it moves.
        """
        at = self.line.index(self.id)
        before = self.line[at - 1 : at] if at else ()
        oldest = (self._oldest_of(sender) for sender in (*before, self.id))
        return tuple(place for place in oldest if place != self.place)

    def _oldest_of(self, sender: str) -> str:
        return next(place for place in self.places if sender_of(place) == sender)

    def require_place(self) -> None:
        """Raise `SenderFenced` or `Unavailable` if this sender's place is gone."""
        chain = self.chain
        if self.standing is Standing.FENCED:
            raise SenderFenced(
                f"sender {chain.sender.id} is active in {chain.topic} with epoch "
                f"{chain.sender.epoch}, this one had {self.epoch}: open the producer again, it "
                "waits in line"
            )
        if self.standing is Standing.LOST:
            raise Unavailable(
                f"sender {self.id} has lost its place in the line of {chain.topic}: the session "
                "with ZooKeeper that kept it is over; an open producer asks for another by itself"
            )
