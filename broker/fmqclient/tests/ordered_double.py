"""Brokers of an ordered topic over real gRPC, in memory, with the chain's real decisions.

As `double.py`: not a broker; nothing is stored on a disk or replicated, and every member holds what
the master has. `judge_batch`, `decide` and `records_before` are the brokers' own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from fmqadapters.grpc import GrpcTransport
from fmqclient.tests.double import BrokerDouble, ClusterDouble
from fmqclient.tests.double_parts import GroupDouble
from fmqclient.tests.ordered_model import ERRORS, PARAMS
from fmqcore.errors import FmqError
from fmqcore.ids import GroupName, Offset
from fmqcore.ordered.evidence import (
    Action,
    Duty,
    Evidence,
    GroupView,
    SenderReport,
    Serving,
)
from fmqcore.ordered.machine import decide
from fmqcore.ordered.sending import OrderedBatch, Verdict, judge_batch
from fmqcore.zk.chain import Chain, ChainGroup, PerQueue
from fmqport.transport import CallContext, Stream, Transport
from fmqproto.v1 import client_pb2

Fate = Callable[[client_pb2.ProduceBatch], FmqError | str | None]
"""An error: refused; "lose": appended, the stream dies; "hang": appended, no ack; None: judged."""


@dataclass(eq=False)
class Session:
    """One stream of a sender."""

    stream: Stream
    place: str
    own: bool  # it keeps the place
    opening: client_pb2.ProduceOpen
    epoch: int = 0
    heard: list[client_pb2.ProduceRequest] = field(default_factory=list)
    _replies: "asyncio.Queue[client_pb2.ProduceReply | None]" = field(default_factory=asyncio.Queue)

    def send(self, reply: client_pb2.ProduceReply) -> None:
        """Let the reply leave after those before it: a stream takes one at a time."""
        self._replies.put_nowait(reply)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write the replies until the context ends, and those that wait then, if it ends well."""
        task = asyncio.create_task(self._write())
        try:
            yield
            self._replies.put_nowait(None)
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _write(self) -> None:
        while (reply := await self._replies.get()) is not None:
            await self.stream.send(reply)


class OrderedBroker(BrokerDouble):
    """A master, or the broker at which senders stand."""

    cluster: "OrderedDouble"

    async def _produce(self, _: CallContext, stream: Stream) -> None:
        opening = (await stream.receive()).open
        self.opened += 1
        chain = self.cluster
        if opening.sender.topic_id != chain.topics.get(opening.sender.topic):
            error = client_pb2.Error(code=client_pb2.UNKNOWN_TOPIC, message="another topic")
            refused = client_pb2.ProduceOpened(error=error)
            await stream.send(client_pb2.ProduceReply(opened=refused))
            return
        if chain.no_place is not None:
            raise chain.no_place
        session = chain.enter(stream, opening)
        self.streams.append(stream)
        opened = client_pb2.ProduceOpened(
            window_bytes=1 << 20,
            max_batch_bytes=self.max_batch_bytes,
            heartbeat_ms=chain.heartbeat_ms if session.own else 0,
            sender_id=session.place,
        )
        try:
            async with session.writing():
                session.send(client_pb2.ProduceReply(opened=opened))
                chain.publish(session)
                while (request := await stream.receive()) is not None:
                    session.heard.append(request)
                    self.requests.append(request)
                    if request.HasField("sender_report"):
                        chain.note_report(session, request.sender_report)
                    judged = [self._judged(session, batch) for batch in request.batches]
                    acks = [ack for ack in judged if ack is not None]
                    if acks:
                        session.send(client_pb2.ProduceReply(acks=acks))
                    chain.coordinate()
        finally:
            chain.leave(session)

    def _judged(
        self, session: Session, batch: client_pb2.ProduceBatch
    ) -> client_pb2.ProduceAck | None:
        ack = client_pb2.ProduceAck(correlation=batch.correlation)
        fate = self.cluster.fate(batch)
        error = fate if isinstance(fate, FmqError) else None
        if error is None:
            error = self.cluster.append(self.group, batch, ack)
        if error is not None:
            ack.code, ack.message = int(error.code), str(error)  # type: ignore[assignment]
        elif fate == "lose":
            session.stream.cancel()
            return None
        return None if fate == "hang" else ack


class OrderedDouble(ClusterDouble):
    """Two groups, the chain of `changes`, and its senders."""

    def __init__(self, queues: int, transport: Transport) -> None:
        super().__init__(2, queues, transport)
        for name, old in list(self.brokers.items()):
            broker = self.brokers[name] = OrderedBroker(self, name, old.group)
            broker.permission = old.permission
        self.topics = {"changes": 1}
        self.queues = queues
        groups = tuple(ChainGroup(GroupName(name)) for name in self.groups)
        self.chain = Chain("changes", queues, groups)
        self.sessions: list[Session] = []
        self.line: list[str] = []
        self.report: SenderReport | None = None
        self.reports: list[SenderReport] = []
        self.sealed: dict[int, PerQueue] = {}
        self.heartbeat_ms = 200
        self.full: set[str] = set()  # groups that take no segment
        self.fate: Fate = lambda batch: None
        self.no_place: FmqError | None = None  # why no broker gives a place in the line

    async def routes(
        self, context: CallContext, request: client_pb2.RouteRequest
    ) -> client_pb2.RouteReply:
        reply = await super().routes(context, request)
        for topic in reply.topics:
            topic.ordered = topic.name == "changes"
        return reply

    def recreate(self, topic_id: int) -> None:
        """Delete the topic, and create another one with that name."""
        self.topics = {"changes": topic_id}
        self.chain = Chain("changes", self.queues, self.chain.groups)
        self.line, self.report, self.sealed = [], None, {}
        for group in self.groups.values():
            group.topic_id = topic_id
            group.stored.clear()
        for session in list(self.sessions):
            session.stream.cancel()

    # ---- senders

    def enter(self, stream: Stream, opening: client_pb2.ProduceOpen) -> Session:
        own = not opening.sender.sender_id
        place = opening.sender.sender_id or f"{opening.sender.name}-{len(self.sessions)}"
        session = Session(stream, place, own, opening)
        self.sessions.append(session)
        if own:
            self.line.append(place)
        return session

    def leave(self, session: Session) -> None:
        if session.own and session.place in self.line:
            self.line.remove(session.place)
            self.coordinate()

    def note_report(self, session: Session, report: client_pb2.SenderReport) -> None:
        unacked = tuple(report.first_unacked[queue] for queue in range(self.queues))
        made = SenderReport(session.place, report.chain_segment, unacked)
        self.reports.append(made)
        self.report = made

    def publish(self, session: Session) -> None:
        """Send what the chain is now, as a broker does."""
        self.coordinate()
        self._send_state(session)

    def _send_state(self, session: Session) -> None:
        chain, last = self.chain, self.chain.last
        active = chain.sender.id == session.place
        if session.epoch and chain.sender.epoch > session.epoch:
            session.stream.cancel()
            return
        state = client_pb2.SenderState(active=active, closing_reason=chain.closing or "")
        if last is not None:
            state.chain_segment, state.group = last.number, last.group
        if active and last is not None:
            session.epoch = state.sender_epoch = chain.sender.epoch
            state.first_sequence.update(dict(enumerate(last.first_sequence)))
            for queue in range(self.queues):
                self._add_last(state, queue)
        else:
            state.reason = f"sender {self.line[0] if self.line else '?'} is first in line"
        session.send(client_pb2.ProduceReply(sender_state=state))

    def _add_last(self, state: client_pb2.SenderState, queue: int) -> None:
        own = next(s for s in self.chain.segments if s.sender_epoch == state.sender_epoch)
        for segment in reversed([s for s in self.chain.segments if s.number < own.number]):
            assert segment.end is not None
            offset = segment.end[queue] - 1
            if offset >= segment.start[queue]:
                stored = self.groups[segment.group].stored[queue]
                raw = next(b.raw for b in reversed(stored) if b.base_offset <= offset)
                record = state.last_records[queue]
                record.ordered_sequence = own.first_sequence[queue] - 1
                record.offset, record.batch = offset, raw
                return

    # ---- the chain

    def ends(self, group: GroupDouble) -> PerQueue:
        return tuple(group.next_offset(queue) for queue in range(self.queues))

    def append(
        self, group: GroupDouble, batch: client_pb2.ProduceBatch, ack: client_pb2.ProduceAck
    ) -> FmqError | None:
        end = Offset(group.next_offset(batch.queue_id))
        wanted = OrderedBatch(
            self.chain.sender.id,
            *(batch.chain_segment, batch.sender_epoch, batch.queue_id),
            *(batch.ordered_sequence, batch.record_count),
        )
        name = GroupName(group.name)
        made = judge_batch(self.chain, name, self.sealed, end, wanted)
        ack.expected_sequence = made.expected
        if made.verdict in ERRORS:
            return ERRORS[made.verdict](made.reason)
        ack.base_offset = made.offset
        if made.verdict is Verdict.APPEND:
            assert group.append(batch, 0) == made.offset
        return None

    def coordinate(self) -> None:
        """Take every step that is due, and report each to the senders."""
        while True:
            step = self._next_step()
            if step is None:
                return
            if step.next_number != self.chain.next_number:
                self.report = None
            self.chain = step
            for session in list(self.sessions):
                if session.own and session.place in self.line:
                    self._send_state(session)

    def _next_step(self) -> Chain | None:
        views = {
            GroupName(name): GroupView(
                reachable=True,
                takes_writes=True,
                members=2,
                ends=self.ends(group),
                full=name in self.full,
            )
            for name, group in self.groups.items()
        }
        evidence = Evidence(groups=views, line=tuple(self.line), report=self.report)
        made = decide(Duty.SEND, self.chain, evidence, 1, PARAMS)
        if made.edit is not None:
            return made.edit
        for name, group in self.groups.items():
            evidence = Evidence(
                group=GroupName(name),
                serving=Serving.MASTER,
                held=self.ends(group),
                sealed=dict(self.sealed),
            )
            made = decide(Duty.END, self.chain, evidence, 1, PARAMS)
            if made.action is Action.SEAL and made.end is not None:
                self.sealed[made.segment] = made.end
                return self._next_step()
            if made.edit is not None:
                return made.edit
        return None

    def switch(self) -> None:
        """Close the open segment, as a person asks."""
        assert self.chain.closing is None
        self.chain = replace(self.chain, closing="planned")
        for session in list(self.sessions):
            if session.own and session.place in self.line:
                self._send_state(session)
        self.coordinate()

    def values_of_chain(self, queue: int = 0) -> list[bytes]:
        """What a consumer gets of a queue: the sequences in order, each once."""
        found: dict[tuple[int, int], bytes] = {}
        for segment in self.chain.segments:
            stored = self.groups[segment.group].stored.get(queue, [])
            values = [value for batch in stored for value in batch.values]
            end = len(values) if segment.end is None else segment.end[queue]
            for offset in range(segment.start[queue], end):
                sequence = segment.first_sequence[queue] + offset - segment.start[queue]
                found.setdefault((segment.sender_epoch, sequence), values[offset])
        return [found[key] for key in sorted(found)]


@asynccontextmanager
async def ordered_cluster(queues: int = 1) -> AsyncIterator[OrderedDouble]:
    double = OrderedDouble(queues, GrpcTransport())
    try:
        for broker in double.brokers.values():
            await broker.start()
        yield double
    finally:
        for broker in double.brokers.values():
            await broker.stop()
