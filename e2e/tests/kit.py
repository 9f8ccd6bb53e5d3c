"""A small sound run to break: one group of two, a topic of two queues, one consumer group.

Every method records what such a run would show, in order; a test leaves something out, adds
something, or changes `events` and the journals afterwards.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from e2e.checks.findings import Check
from e2e.checks.verdict import Limits, Verdict, judge
from e2e.history.client_events import (
    Acked,
    Committed,
    Committing,
    Delivered,
    Joined,
    Place,
    Sent,
    Stored,
)
from e2e.history.cluster_events import (
    Down,
    Ending,
    Ends,
    Fault,
    FaultKind,
    Floor,
    GroupSetup,
    Phase,
    PhaseName,
    Serves,
    Setup,
    State,
    Step,
    Up,
)
from e2e.history.events import Event
from e2e.history.journals import Journal, load
from e2e.traffic.values import value_of
from fmqcore.batch.columns import encode
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import Offset, Permission, Position, TopicId
from fmqcore.policy import AckPolicy
from fmqcore.tests.journal.writer import JournalWriter
from fmqcore.zk.group_state import Mode

FULL, READ, NONE = Permission.FULL, Permission.READ, Permission.NONE
GROUP, MASTER, SLAVE = "g1", "g1-0", "g1-1"
TOPIC, READERS, MEMBER, PRODUCER = "orders", "billing", "m.1", "p"
ANY = Limits(acked_records=0, reader_changes=0)


def place(queue: int = 0) -> Place:
    return Place(TOPIC, GROUP, queue)


class Kit:
    """Records the events of a run; each takes 10 ms."""

    def __init__(self, policy: AckPolicy | None = None, members: int = 2) -> None:
        self.events: list[Event] = []
        self.writer = JournalWriter()
        self.second: JournalWriter | None = None  # the slave's journal, if it differs
        self.now = 1000.0
        self.records = 0
        self.epoch = 1
        self.reader = MASTER
        self.trouble: dict[str, str] = {}  # broker → why its journal is not readable
        self.floors: dict[int, int] = {}
        self.names = tuple(f"{GROUP}-{n}" for n in range(members))
        setup = GroupSetup(GROUP, MASTER, self.names, policy or AckPolicy())
        self.add(Setup(self.at(), (setup,), 100, 0))
        self.deleted_below = Position(0)
        for name in self.names:
            self.add(Up(self.at(), name, GROUP, 0, 0, 0))
        self.writer.open_epoch(1, MASTER)
        self.writer.topic(7, TOPIC, 2)
        self.state(Mode.MASTER, MASTER)
        self.serves(MASTER, FULL)
        self.serves(SLAVE, NONE)
        self.add(Joined(self.at(), MEMBER, READERS, TOPIC))

    # ---- time and events
    def at(self) -> float:
        self.now += 10
        return self.now

    def add(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def wait(self, ms: float) -> None:
        self.now += ms

    # ---- the cluster
    def state(self, mode: Mode, reader: str, isr: Sequence[str] | None = None, **more: Any) -> None:
        slaves = self.names[1:] if isr is None else tuple(isr)
        self.reader = reader
        self.add(State(self.at(), GROUP, mode, self.epoch, MASTER, reader, slaves, **more))

    def serves(self, broker: str, permission: Permission, epoch: int = 0) -> None:
        self.add(Serves(self.at(), broker, GROUP, permission, epoch or self.epoch))

    def fault(self, kind: FaultKind, on: str, number: int = 1, step: Step = Step.FIRED) -> None:
        self.add(Fault(self.at(), number, kind, on, step))

    def end(self, broker: str, how: Ending, durable_end: int = -1) -> None:
        self.add(Down(self.at(), broker, GROUP, how, durable_end=durable_end))

    def up(self, broker: str, end: int | None = None) -> None:
        end = int(self.writer.end) if end is None else end
        self.add(Up(self.at(), broker, GROUP, 0, end, end))

    def ends(self, broker: str, end: int = -1, commit_end: int = -1, asked_ago: float = 0) -> None:
        """Record a journal's ends: the whole journal, or up to `end`."""
        now, end = self.at(), int(self.writer.end) if end < 0 else end
        commit_end = end if commit_end < 0 else commit_end
        self.add(Ends(now - asked_ago, now, broker, GROUP, 0, end, end, commit_end))

    def phase(self, name: PhaseName) -> None:
        self.add(Phase(self.at(), name))

    def take_over(self) -> None:
        """The master dies, and a slave takes the reads over."""
        self.end(MASTER, Ending.KILLED, int(self.writer.end))
        self.epoch += 1
        self.state(Mode.SLAVE_CONSUME, SLAVE)
        self.serves(SLAVE, READ)

    def come_back(self) -> None:
        """The master comes back after its slave is gone."""
        self.up(MASTER)
        self.epoch += 1
        self.writer.open_epoch(self.epoch, MASTER)
        self.state(Mode.MASTER, MASTER)
        self.serves(MASTER, FULL)

    def hand_over(self) -> None:
        """The master comes back, and the slave hands the reads over."""
        self.up(MASTER)
        self.serves(SLAVE, NONE)
        self.epoch += 1
        self.state(Mode.HANDOVER, SLAVE)
        self.epoch += 1
        self.writer.open_epoch(self.epoch, MASTER)
        self.state(Mode.MASTER, MASTER)
        self.serves(MASTER, FULL)

    # ---- clients
    def send(self, count: int = 3, queue: int = 0, level: str = "replicated") -> list[int]:
        """Record sends, without storing them."""
        records = []
        for _ in range(count):
            self.records += 1
            records.append(self.records)
            self.add(Sent(self.at(), PRODUCER, self.records, TOPIC, level, "k", f"k{queue}"))
        return records

    def store(self, records: Sequence[int], queue: int = 0) -> BatchHeader:
        """Append the records to the journal."""
        values = [value_of(record, 40) for record in records]
        attrs, payload = encode(values, [b"k"] * len(values))
        return self.writer.append(
            BatchType.DATA,
            payload,
            attrs=attrs,
            topic_id=7,
            queue_id=queue,
            record_count=len(values),
            base_offset=self.writer.state.next_offsets.get((TopicId(7), queue), 0),
        )

    def acked(self, records: Sequence[int], header: BatchHeader, more: int = 0) -> None:
        """Record the producer's acks, with offsets `more` beyond that batch."""
        now = self.at()
        for at, record in enumerate(records):
            offset = header.base_offset + more + at
            self.add(Stored(now, PRODUCER, record, place(header.queue_id), offset))

    def produce(self, count: int = 3, queue: int = 0, level: str = "replicated") -> BatchHeader:
        """Send, store and acknowledge records."""
        records = self.send(count, queue, level)
        header = self.store(records, queue)
        for name in self.names:
            self.ends(name)
        self.acked(records, header)
        return header

    def deliver(
        self, offsets: Sequence[int], queue: int = 0, who: str = MEMBER, epoch: int | None = None
    ) -> None:
        records = self.stored(queue)
        for offset in offsets:
            what = (place(queue), offset, records[offset], 1, "k")
            term = self.epoch if epoch is None else epoch
            self.add(Delivered(self.at(), who, READERS, *what, term))

    def ack(self, offsets: Sequence[int], queue: int = 0, who: str = MEMBER) -> None:
        for offset in offsets:
            self.add(Acked(self.at(), who, READERS, place(queue), offset))

    def commit(self, floor: int = -1, queue: int = 0, who: str = MEMBER) -> None:
        """Record a commit: requested, stored (if a floor is given) and confirmed."""
        self.add(Committing(self.at(), who, READERS))
        if floor >= 0:
            self.store_floor(floor, queue)
            if self.reader == MASTER:
                self.ends(MASTER)
        self.add(Committed(self.at(), who, READERS))

    def store_floor(self, floor: int, queue: int = 0, version: int = 0) -> None:
        key = OffsetKey(READERS, TopicId(7), queue)
        self.writer.offsets({key: OffsetEntry(version or len(self.events), Offset(floor))})

    def consume(self, offsets: Sequence[int], queue: int = 0, who: str = MEMBER) -> None:
        """Deliver, ack and commit; the floor is after the last offset."""
        self.deliver(offsets, queue, who)
        self.ack(offsets, queue, who)
        self.commit(offsets[-1] + 1, queue, who)

    def floor_seen(self, floor: int, broker: str = MASTER, queue: int = 0) -> None:
        now = self.at()
        self.add(Floor(now, now, broker, READERS, place(queue), floor))

    def stored(self, queue: int = 0) -> dict[int, int]:
        """Return offset → record, as the journal has them now."""
        journal = self.journal(MASTER)
        return {
            offset: record
            for batch in journal.batches
            if batch.header.type == BatchType.DATA and batch.header.queue_id == queue
            for offset, record in enumerate(batch.records, batch.header.base_offset)
        }

    # ---- the end
    def journal(self, broker: str) -> Journal:
        writer = self.second if self.second is not None and broker != MASTER else self.writer
        checkpoint = (
            writer.checkpoint(journal_start=self.deleted_below) if self.deleted_below else None
        )
        found = load(broker, GROUP, list(writer.files(checkpoint).items()))
        return replace(found, trouble=(self.trouble[broker],)) if broker in self.trouble else found

    def journals(self) -> list[Journal]:
        return [self.journal(name) for name in self.names]

    def drained(self) -> None:
        self.phase(PhaseName.DRAINED)
        self.phase(PhaseName.OVER)

    def judge(self, limits: Limits = ANY, **journals: Journal) -> Verdict:
        found = [journals.get(j.broker, j) for j in self.journals()]
        return judge(self.events, found, limits)

    def broken(self, limits: Limits = ANY) -> set[Check]:
        """Return the checks that find something."""
        return {finding.check for finding in self.judge(limits).findings}

    def change(self, kind: type, nth: int, **fields: Any) -> None:
        """Change the nth event of a kind."""
        found = [at for at, event in enumerate(self.events) if isinstance(event, kind)]
        self.events[found[nth]] = self.events[found[nth]]._replace(**fields)

    def without(self, kind: type, nth: int) -> None:
        """Leave out the nth event of a kind."""
        found = [at for at, event in enumerate(self.events) if isinstance(event, kind)]
        del self.events[found[nth]]


def sound(policy: AckPolicy | None = None) -> Kit:
    """Return a sound run with a takeover."""
    kit = Kit(policy)
    kit.phase(PhaseName.CALM)
    kit.produce(3)
    kit.produce(2, queue=1)
    kit.consume([0, 1, 2])
    kit.phase(PhaseName.TROUBLE)
    kit.produce(2)
    kit.take_over()
    kit.deliver([3, 4])
    kit.ack([3, 4])
    kit.commit()
    kit.floor_seen(5, SLAVE)
    kit.hand_over()
    kit.store_floor(5)
    kit.floor_seen(5)
    kit.phase(PhaseName.HEALED)
    kit.produce(3)
    kit.phase(PhaseName.WHOLE)
    kit.consume([5, 6, 7])
    kit.consume([0, 1], queue=1)
    kit.phase(PhaseName.ANSWERED)
    kit.drained()
    return kit


__all__ = ["Kit", "place", "replace", "sound"]
