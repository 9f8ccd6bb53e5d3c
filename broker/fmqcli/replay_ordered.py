"""Send a replay to an ordered topic, each record once, even if it is killed at any moment.

The chain itself names what is stored. A sender that gets the role learns each queue's last record
(`producer.last`), and nothing of an earlier sender can be stored after that. The end of each queue
is noted with the progress: the last record's sequence and digest. So a resumed run knows how many
records after the noted place are stored, and leaves them out.

Order of effects: the role is given → the queues' ends are noted → a chunk is sent → all its records
are stored → the progress is noted. One chunk is in flight, so what is stored and not noted lies in
the first chunk of the resumed run.

What another sender stored in between would be counted, too. The digest finds it: the last record of
a queue must be the one of the archive that the sequence stands for.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple

from fmqcli.replay_notes import (
    ORDERED,
    Archived,
    noted_number,
    require_kind,
    require_same,
    undecodable,
)
from fmqcli.send_waits import active_sender, stalls_reported
from fmqclient.producer.ordered import OrderedProducer
from fmqclient.producer.ordered_records import LastRecord, OrderedResult
from fmqcore.errors import (
    DeliveryUnknown,
    FmqError,
    InvalidArgument,
    Malformed,
    OutOfSequence,
    Overloaded,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
)
from fmqcore.names import MAX_NAME
from fmqcore.placement import ByChain
from fmqcore.zk.topic import TopicConfig

CLOSE_TIMEOUT_S: Final = 5.0
"""How long an interrupted run waits for its chunk: the next run leaves out what is stored."""
_RESTART: Final = "send everything again with another --name, into an empty topic"
_DIGEST_CHARS: Final = 64


class QueueEnd(NamedTuple):
    """The last record of a queue at the noted place."""

    sequence: int = 0
    digest: str = ""  # "" = there is none, or it was not readable


# ---- what is sent: pure
@dataclass(slots=True)
class OrderedPlan:
    """The queue of each record, and the ends of the queues: all that must outlive the sender."""

    topic: TopicConfig
    same_queue: bool
    ends: list[QueueEnd]
    """By queue; empty: nothing was ever sent."""

    @classmethod
    def of(cls, state: Mapping[str, Any], topic: TopicConfig, same: bool) -> "OrderedPlan":
        """Return the plan that was noted. Raises `InvalidArgument` if it no longer fits."""
        if not topic.groups:
            raise Malformed(f"the routes of ordered topic {topic.name} name no group")
        if not state:
            return cls(topic, same, [])
        require_kind(state, ORDERED)
        try:
            topic_id = noted_number(state["topic_id"])
            ends = [QueueEnd(noted_number(n, bits=64), _digest(d)) for n, d in state["ends"]]
            noted_same = bool(state["same_queue"])
        except (KeyError, TypeError, ValueError) as error:
            raise undecodable(error) from None
        plan = cls(topic, noted_same, ends)
        require_same(topic, topic_id, noted_same, same)
        if len(ends) != plan.queues:
            raise InvalidArgument(
                f"topic {topic.name} had {len(ends)} queues when this replay started, and has "
                f"{plan.queues}: choose another --name"
            )
        return plan

    @property
    def queues(self) -> int:
        """The number of queues of the topic: the same one in each group."""
        return self.topic.groups[0].queues

    def state(self) -> dict[str, Any]:
        """Return the plan as it is to be noted."""
        return {
            "kind": ORDERED,
            "topic_id": self.topic.id,
            "same_queue": self.same_queue,
            "ends": [[*end] for end in self.ends],
        }

    def queue_of(self, record: Archived) -> int:
        """Return the record's queue: by its key, or where it came from."""
        if not self.same_queue:
            return ByChain(self.queues).queue(record.key or b"")
        if record.queue >= self.queues:
            raise UnknownQueue(
                f"a record came from queue {record.queue}, and topic {self.topic.name} has queues "
                f"0 to {self.queues - 1}, and records before it may be stored: send everything "
                "again with another --name, into an empty topic, with as many queues or without "
                "--same-queue"
            )
        return record.queue

    def begin(self, last: Mapping[int, LastRecord]) -> None:
        """Start after what the topic holds, unless a run before has started."""
        if not self.ends:
            found = [last.get(queue) for queue in range(self.queues)]
            self.ends = [_end_of(record) if record else QueueEnd() for record in found]

    def unstored(
        self, records: Sequence[Archived], queues: Sequence[int], last: Mapping[int, LastRecord]
    ) -> list[int]:
        """Return which records of a run's first chunk are to be sent: those that lack in `last`.

        Raises `OutOfSequence` if the topic holds something else, `Unavailable` if that is unclear.
        """
        by_queue: dict[int, list[int]] = defaultdict(list)
        for number, queue in enumerate(queues):
            by_queue[queue].append(number)
        stored: set[int] = set()
        for queue, end in enumerate(self.ends):
            numbers, record = by_queue[queue], last.get(queue)
            count = self._stored_after(queue, end, record.sequence if record else 0, len(numbers))
            expected = digest_of(records[numbers[count - 1]]) if count else end.digest
            if record is not None:
                self._require_own(queue, record, expected, count)
            stored.update(numbers[:count])
        return [number for number in range(len(records)) if number not in stored]

    def advance(
        self, records: Sequence[Archived], queues: Sequence[int], sequences: Mapping[int, int]
    ) -> None:
        """Count a chunk as stored. `sequences`: by queue, that of the last record."""
        newest = {queue: number for number, queue in enumerate(queues)}
        for queue, number in newest.items():
            self.ends[queue] = QueueEnd(sequences[queue], digest_of(records[number]))

    def _stored_after(self, queue: int, end: QueueEnd, sequence: int, most: int) -> int:
        """Return how many records after the noted place a queue holds."""
        if sequence < end.sequence:
            raise OutOfSequence(
                f"{self._where(queue)} ends at sequence {sequence:,}, and this replay left it at "
                f"{end.sequence:,}: what was stored there is lost, as a release may accept; "
                f"{_RESTART}"
            )
        if sequence - end.sequence > most:
            raise self._foreign(queue, sequence)
        return sequence - end.sequence

    def _require_own(self, queue: int, last: LastRecord, expected: str, count: int) -> None:
        """Raise unless the last record of a queue is the expected one; "" = not known."""
        if last.readable and expected and digest_of(last) != expected:
            raise self._foreign(queue, last.sequence)
        if count and not last.readable:
            raise Unavailable(
                f"{self._where(queue)}: no broker returns the last record, sequence "
                f"{last.sequence:,}, so this replay cannot compare it with the archive: run it "
                f"again when the brokers of that group answer, or {_RESTART}"
            )

    def _foreign(self, queue: int, sequence: int) -> FmqError:
        return OutOfSequence(
            f"{self._where(queue)} ends at sequence {sequence:,} with a record of another sender: "
            f"it has sent since this replay stopped; {_RESTART}"
        )

    def _where(self, queue: int) -> str:
        return f"queue {queue} of topic {self.topic.name}"


def digest_of(record: Archived | LastRecord) -> str:
    """Return a digest of what an archive and a broker both know of a record."""
    headers = sorted((record.headers or {}).items())
    parts = [record.value, record.key or b""]
    parts += [part for name, content in headers for part in (name.encode(), content)]
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def _end_of(record: LastRecord) -> QueueEnd:
    return QueueEnd(record.sequence, digest_of(record) if record.readable else "")


def _digest(value: object) -> str:
    """Return a noted digest. Raises `ValueError`."""
    if not isinstance(value, str) or len(value) not in (0, _DIGEST_CHARS):
        raise ValueError(f"{value!r} is not a digest")
    return value


def _advised(topic: str, error: FmqError) -> FmqError:
    """Return the error that ends a replay, with the next step."""
    cause = error.__cause__ if isinstance(error, DeliveryUnknown) else error
    match cause:
        case UnknownTopic():
            return UnknownTopic(f"topic {topic}: {error}; {_RESTART}")
        case TooLarge():
            return type(error)(f"topic {topic}: {error}")
        case _:
            return type(error)(f"topic {topic}: {error}; run the replay again: it goes on")


# ---- how it is sent
class OrderedSends:
    """The sends of one run, a chunk at a time. Entering waits for the topic's one role."""

    def __init__(self, connected: Any, plan: OrderedPlan, label: str, acks: str) -> None:
        if acks != "replicated":
            raise InvalidArgument(
                f"--acks {acks}: topic {plan.topic.name} is ordered, and every copy of an ordered "
                "record is awaited: leave --acks out"
            )
        self._plan = plan
        self._producer: OrderedProducer = connected.ordered_producer(
            plan.topic.name,
            name=f"replay-{label}"[:MAX_NAME].rstrip(".-"),
            close_timeout_s=CLOSE_TIMEOUT_S,
        )
        self._sequences: dict[int, int] = {}
        self._handed_in = 0
        self._resumes = bool(plan.ends)
        self._contexts = AsyncExitStack()

    async def __aenter__(self) -> "OrderedSends":
        async with AsyncExitStack() as contexts:
            producer = await contexts.enter_async_context(active_sender(self._producer))
            await contexts.enter_async_context(stalls_reported(producer, lambda: self._handed_in))
            self._plan.begin(producer.last)
            self._sequences = {queue: last.sequence for queue, last in producer.last.items()}
            self._contexts = contexts.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._contexts.aclose()

    def state(self) -> dict[str, Any]:
        """Return what is to be noted with the progress."""
        return self._plan.state()

    async def store(self, records: Sequence[Archived], _: int) -> AsyncGenerator[int]:
        """Send a chunk, and yield its length once all records are stored."""
        queues = [self._plan.queue_of(record) for record in records]
        numbers: Sequence[int] = range(len(records))
        if self._resumes:
            numbers = self._plan.unstored(records, queues, self._producer.last)
            self._resumes = False
        try:
            for result in await self._send([(records[n], queues[n]) for n in numbers]):
                self._sequences[result.queue] = result.sequence
        except FmqError as error:
            raise _advised(self._plan.topic.name, error) from None
        self._plan.advance(records, queues, self._sequences)
        yield len(records)

    async def _send(self, rows: Sequence[tuple[Archived, int]]) -> list[OrderedResult]:
        """Send records, as many at a time as the producer has room for."""
        futures: list[asyncio.Future[OrderedResult]] = []
        oldest = iter(futures)
        try:
            for record, queue in rows:
                while (future := self._hand_in(record, queue)) is None:
                    await asyncio.wait([next(oldest)])
                futures.append(future)
            if futures:
                await asyncio.wait(futures)
        finally:
            for future in futures:  # the error that ends this reports their fate
                future.add_done_callback(lambda f: f.cancelled() or f.exception())
        return [future.result() for future in futures]

    def _hand_in(self, record: Archived, queue: int) -> "asyncio.Future[OrderedResult] | None":
        """Hand one record to the producer; None: it has no room."""
        try:
            future = self._producer.send_nowait(
                record.value, key=record.key, headers=record.headers, tag=record.tag, queue=queue
            )
        except Overloaded:
            return None
        self._handed_in += 1
        return future
