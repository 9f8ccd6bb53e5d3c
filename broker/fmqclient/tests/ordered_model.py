"""A small cluster around the real core: two groups of two, one chain, senders, lossy streams.

The brokers' decisions are `judge_batch`, `may_acknowledge`, `decide` and `requests.switch`; the
client is the real `OrderedState`. What happens next is drawn from a seed. Not here: time, leases
that outlast their master, journals on disks (`fmqcore/tests/ordered` explores those).
"""

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fmqclient.producer.ordered_state import OrderedState
from fmqclient.producer.ordered_values import (
    Acknowledged,
    Action,
    Batch,
    Connect,
    Failed,
    Report,
    Role,
)
from fmqcore.errors import (
    FmqError,
    Malformed,
    OutOfSequence,
    Overloaded,
    SegmentClosed,
    SenderFenced,
)
from fmqcore.ids import BrokerId, GroupName, Offset
from fmqcore.ordered.delivery import first_offset
from fmqcore.ordered.evidence import (
    Action as Step,
)
from fmqcore.ordered.evidence import (
    Duty,
    Evidence,
    GroupView,
    Params,
    SenderReport,
    Serving,
)
from fmqcore.ordered.machine import decide
from fmqcore.ordered.sending import (
    AckEvidence,
    OrderedBatch,
    Verdict,
    judge_batch,
    may_acknowledge,
)
from fmqcore.zk.chain import Chain, ChainGroup, PerQueue

BOTH = frozenset((BrokerId("m"), BrokerId("s")))
GROUPS = (GroupName("g1"), GroupName("g2"))
READER = "app"
PARAMS = Params(trouble_ms=0)
ERRORS: dict[Verdict, type[FmqError]] = {
    Verdict.GAP: OutOfSequence,
    Verdict.MISALIGNED: Malformed,
    Verdict.FENCED: SenderFenced,
    Verdict.NOT_OPEN: SegmentClosed,
    Verdict.STALE_CHAIN: Overloaded,
    Verdict.LOST: Overloaded,
    Verdict.SEALED: SegmentClosed,
}
Record = tuple[str, int]
"""The program and its queue (`A/0`), and its number of the record there."""


@dataclass(frozen=True)
class Numbers:
    """A batch's content: the program's records `first` to `first + count - 1`."""

    program: str
    first: int
    count: int
    size: int = 1

    def halves(self) -> "tuple[Numbers, Numbers]":
        half = self.count // 2
        first = replace(self, count=half)
        return first, replace(self, first=self.first + half, count=self.count - half)

    def records(self) -> list[Record]:
        return [(self.program, self.first + at) for at in range(self.count)]


@dataclass
class Answer:
    """What a master owes for a batch: due at once if refused, else when the queue is held."""

    correlation: int
    queue: int = 0
    held: int = 0
    offset: int = 0
    error: FmqError | None = None
    expected: int = 0
    segment: int = 0


@dataclass
class GroupModel:
    """A group: the master's records per queue, and how many of them the slave holds."""

    name: GroupName
    queues: int
    records: list[list[Record]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    up: bool = True  # its master; else a takeover reader serves
    linked: bool = True
    sealed: dict[int, PerQueue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records = [[] for _ in range(self.queues)]
        self.held = [0] * self.queues

    @property
    def ends(self) -> PerQueue:
        return tuple(map(len, self.records))

    def view(self) -> GroupView:
        whole = self.up and self.linked
        settled = whole and self.ends == tuple(self.held)
        return GroupView(
            reachable=True,
            takes_writes=self.up,
            read_only=not self.up,
            members=2,
            missing=() if whole else (BrokerId("s"),),
            ends=self.ends if settled else None,
        )


class SenderModel:
    """One program with its ordered producer, its place in line and its stream."""

    def __init__(self, name: str, queues: int) -> None:
        self.name = name
        self.state = OrderedState()
        self.place = ""
        self.roles: deque[Role] = deque()
        self.reports: deque[Report] = deque()
        self.stream: GroupName | None = None  # open to the master of that group
        self.wants: GroupName | None = None
        self.requests: deque[tuple[int, int, int, Batch]] = deque()
        self.answers: deque[Answer] = deque()  # owed, in the order of the batches
        self.replies: deque[Answer] = deque()
        self.added = [0] * queues
        self.acked: list[Record] = []
        self.offsets: list[tuple[GroupName, int, int, Record]] = []
        self.failed: FmqError | None = None

    def apply(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Acknowledged():
                    assert self.failed is None, "an ack after the error"
                    records = action.batch.content.records()  # type: ignore[attr-defined]
                    self.acked += records
                    for at, record in enumerate(records):
                        place = action.group, action.batch.queue, action.offset + at, record
                        self.offsets.append(place)
                case Report():
                    self.reports.append(action)
                case Connect():
                    self.break_stream()
                    self.wants = action.group
                case Failed():
                    self.failed = action.error
                    self.break_stream()
                    self.wants = None

    def break_stream(self) -> None:
        self.stream = None
        self.requests.clear()
        self.answers.clear()
        self.replies.clear()
        self.state.stream_lost()


class ClusterModel:
    """The chain, its groups and the senders. `step` lets one thing happen."""

    def __init__(self, seed: int, *, queues: int, senders: int, records: int) -> None:
        self.random = Random(seed)
        self.queues, self.records = queues, records
        chain_groups = tuple(ChainGroup(name) for name in GROUPS)
        self.chain = Chain("t", queues, chain_groups, heads=((READER, (1,) * queues),))
        self.groups = {name: GroupModel(name, queues) for name in GROUPS}
        self.senders = [SenderModel("AB"[n], queues) for n in range(senders)]
        self.line: list[str] = []
        self.report: SenderReport | None = None
        self.report_for = 0
        self.faults = True
        self.switches = self.lost_places = 0

    # ---- what may happen

    def step(self) -> None:
        sender = self.random.choice(self.senders)
        group = self.groups[self.random.choice(GROUPS)]
        events: list[Any] = [
            lambda: self.hand_in(sender),
            lambda: self.send(sender),
            lambda: self.send(sender),
            lambda: self.judge(sender),
            lambda: self.judge(sender),
            lambda: self.answer(sender),
            lambda: self.hear(sender),
            lambda: self.apply_role(sender),
            lambda: self.take_report(sender),
            lambda: self.connect(sender),
            lambda: self.stand(sender),
            lambda: self.replicate(group),
            self.coordinate,
            lambda: self.give_end(group),
        ]
        self.random.choice(events)()
        if self.faults and self.random.random() < 0.02:
            self.fault(sender, group)

    def fault(self, sender: SenderModel, group: GroupModel) -> None:
        match self.random.randrange(6):
            case 0 | 1:
                sender.break_stream()
            case 2:
                group.linked = False
            case 3 if group.up:
                group.up = False
                group.records = [
                    own[:held] for own, held in zip(group.records, group.held, strict=True)
                ]
                self.break_streams(group)
            case 4 if sender.place:
                self.lose_place(sender)
            case _ if self.chain.last is not None and self.chain.closing is None:
                self.write(replace(self.chain, closing="planned"))
                self.switches += 1

    def lose_place(self, sender: SenderModel) -> None:
        self.line.remove(sender.place)
        sender.place = ""
        sender.roles.clear()
        sender.reports.clear()
        self.lost_places += 1

    def break_streams(self, group: GroupModel) -> None:
        for sender in self.senders:
            if sender.stream == group.name:
                sender.break_stream()

    def heal(self) -> None:
        """No more faults: what is down comes back."""
        self.faults = False
        for group in self.groups.values():
            group.up = group.linked = True

    # ---- the sender's side

    def hand_in(self, sender: SenderModel) -> None:
        state = sender.state
        if not state.epoch or state.error is not None:
            return
        queue = self.random.randrange(self.queues)
        count = self.random.randint(1, 3)
        if sender.added[queue] + count > self.records:
            return
        state.add(queue, Numbers(f"{sender.name}/{queue}", sender.added[queue] + 1, count))
        sender.added[queue] += count

    def connect(self, sender: SenderModel) -> None:
        if sender.stream is None and sender.wants and self.groups[sender.wants].up:
            sender.stream = sender.wants
            sender.state.stream_opened()

    def send(self, sender: SenderModel) -> None:
        taken = sender.state.take(0)
        if taken is not None:
            state = sender.state
            sender.requests.append((taken[0], state.segment, state.epoch, taken[1]))

    def hear(self, sender: SenderModel) -> None:
        if sender.replies:
            reply = sender.replies.popleft()
            state, correlation = sender.state, reply.correlation
            if reply.error is None:
                sender.apply(state.acknowledged(correlation, Offset(reply.offset)))
            else:
                sender.apply(state.refused(correlation, reply.error, reply.expected, 0, 0))

    def apply_role(self, sender: SenderModel) -> None:
        if sender.roles:
            sender.apply(sender.state.apply_role(sender.roles.popleft()))

    def stand(self, sender: SenderModel) -> None:
        if not sender.place and sender.failed is None:
            sender.place = sender.name  # the same sender, by its instance
            self.line.append(sender.place)
            sender.state.session_opened()
            sender.roles.append(self.role_of(sender))

    def role_of(self, sender: SenderModel) -> Role:
        last = self.chain.last
        return Role(
            active=self.chain.sender.id == sender.place,
            sender_epoch=self.chain.sender.epoch,
            segment=0 if last is None else last.number,
            group=GroupName("") if last is None else last.group,
            first_sequence=() if last is None else last.first_sequence,
            closing=self.chain.closing or "",
        )

    # ---- the brokers' side

    def write(self, chain: Chain) -> None:
        if chain.next_number != self.chain.next_number:
            self.report = None
        self.chain = chain
        for sender in self.senders:
            if sender.place:
                sender.roles.append(self.role_of(sender))

    def judge(self, sender: SenderModel) -> None:
        if not sender.requests or sender.stream is None:
            return
        group = self.groups[sender.stream]
        correlation, segment, epoch, batch = sender.requests.popleft()
        queue, count = batch.queue, batch.content.count
        end = Offset(len(group.records[queue]))
        wanted = OrderedBatch(sender.name, segment, epoch, queue, batch.sequence, count)
        made = judge_batch(self.chain, group.name, group.sealed, end, wanted)
        if made.verdict in ERRORS:
            error = ERRORS[made.verdict](made.reason)
            sender.answers.append(Answer(correlation, error=error, expected=made.expected))
            return
        if made.verdict is Verdict.APPEND and self.faults and self.random.random() < 0.05:
            kind = self.random.choice((Overloaded, SegmentClosed))
            sender.answers.append(Answer(correlation, error=kind("not now")))
            return
        if made.verdict is Verdict.APPEND:
            group.records[queue] += batch.content.records()  # type: ignore[attr-defined]
        sender.answers.append(
            Answer(correlation, queue, made.offset + count, made.offset, segment=segment)
        )

    def answer(self, sender: SenderModel) -> None:
        """Send the first owed answer if it is due: acks keep the order of the batches."""
        if not sender.answers or sender.stream is None:
            return
        group, owed = self.groups[sender.stream], sender.answers[0]
        if owed.error is None:
            held = BOTH if owed.held <= group.held[owed.queue] else frozenset()
            evidence = AckEvidence(held, BOTH, 1, 1, 1, 0, 0)
            reason = may_acknowledge(self.chain, group.sealed, owed.segment, evidence, 0)
            last = self.chain.last
            over = last is None or last.number != owed.segment or self.chain.closing is not None
            if reason is not None and not over:
                return
            if reason is not None:
                owed.error = SegmentClosed(reason)
        sender.replies.append(sender.answers.popleft())

    def replicate(self, group: GroupModel) -> None:
        if group.up and not group.linked and self.random.random() < 0.2:
            group.linked = True
        if not group.up and self.random.random() < 0.1:
            group.up = group.linked = True
        if group.up and group.linked:
            queue = self.random.randrange(self.queues)
            left = len(group.records[queue]) - group.held[queue]
            group.held[queue] += self.random.randint(0, left)

    def take_report(self, sender: SenderModel) -> None:
        if sender.reports and sender.place:
            report = sender.reports.popleft()
            last = self.chain.last
            if last is not None and report.segment == last.number:
                self.report = SenderReport(sender.place, report.segment, report.unacked)

    def coordinate(self) -> None:
        evidence = Evidence(
            groups={name: group.view() for name, group in self.groups.items()},
            line=tuple(self.line),
            report=self.report,
            trouble_since_ms=0,
        )
        made = decide(Duty.SEND, self.chain, evidence, 1, PARAMS)
        if made.edit is not None:
            self.write(made.edit)
            self.switches += made.action is Step.OPEN

    def give_end(self, group: GroupModel) -> None:
        held = tuple(group.held)
        serving = Serving.MASTER if group.up else Serving.READER
        evidence = Evidence(
            group=group.name,
            serving=serving,
            sealed=dict(group.sealed),
            held=held if group.up else None,
            durable_ends=None if group.up else group.ends,
        )
        made = decide(Duty.END, self.chain, evidence, 1, PARAMS)
        if made.action is Step.SEAL and made.end is not None:
            group.sealed[made.segment] = made.end
        elif made.edit is not None:
            self.write(made.edit)

    # ---- what a consumer gets in the end

    def consumed(self, queue: int) -> list[Record]:
        got: list[Record] = []
        for segment in self.chain.segments:
            records = self.groups[segment.group].records[queue]
            first = first_offset(self.chain, segment, READER, queue)
            assert first is not None, "an end is not known"
            end = len(records) if segment.end is None else segment.end[queue]
            got += records[first:end]
        return got

    def idle(self) -> bool:
        """Whether every record that was handed in has an outcome."""
        return all(sender.failed is not None or not sender.state.batches for sender in self.senders)
