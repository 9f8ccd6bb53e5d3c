"""Messages for the program, each made on demand from a delivered batch."""

import logging
from array import array
from collections.abc import Iterable
from copy import copy

from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.net.loop_turns import LoopTurns
from fmqcore.batch.columns import BadColumns, decode, decode_headers
from fmqcore.batch.header import (
    HEADER_LEN,
    BadBatch,
    BatchType,
    UnknownKind,
    check_payload,
    kind_name,
    parse_header,
)
from fmqcore.consume.ranges import Range
from fmqcore.errors import BadCrc, FmqError, InvalidArgument, Malformed, Unsupported
from fmqcore.ids import Epoch, Offset
from fmqproto.v1 import client_pb2

_log = logging.getLogger("fmqclient")


class DeliveredBatch:
    """One delivery: a range of one batch, decoded into columns."""

    __slots__ = (
        "again",
        "base",
        "born_ms",
        "bytes",
        "credit",
        "delivery_count",
        "epoch",
        "generation",
        "headers",
        "keys",
        "nacked",
        "ranges",
        "read_epoch",
        "segment",
        "session",
        "store_ms",
        "stream",
        "tags",
        "term",
        "topic",
        "tracker",
        "values",
    )

    born_ms: "array[int] | None"

    def __init__(
        self, topic: str, tracker: AckTracker, session: "Acker", delivery: client_pb2.Delivery
    ) -> None:
        """Check and decode; raise `BadCrc` or `Malformed` if the bytes were damaged on the wire.

        Raises `Unsupported` for a batch that only a newer version reads.
        """
        raw = delivery.batch
        where = (
            f"{topic}: group {tracker.group} queue {tracker.queue} offset {delivery.first_offset}"
        )
        try:
            header = parse_header(raw)
            payload = raw[HEADER_LEN : HEADER_LEN + header.payload_len]
            check_payload(header, payload)
            if header.type != BatchType.DATA:
                raise Malformed(f"{where}: a {kind_name(header.type)} batch holds no records")
            records = decode(header.attrs, header.record_count, payload)
        except UnknownKind as error:
            raise Unsupported(f"{where}: {error}") from error
        except BadBatch as error:
            raise BadCrc(f"{where}: {error}") from error
        except BadColumns as error:
            raise Malformed(f"{where}: {error}") from error
        first, end = delivery.first_offset, delivery.end_offset
        if not header.base_offset <= first < end <= header.end_offset:
            raise Malformed(
                f"{where}: its batch has [{header.base_offset}, {header.end_offset}) only"
            )
        self.topic = topic
        self.tracker = tracker
        self.session = session
        self.base = header.base_offset
        self.epoch = header.epoch
        self.read_epoch = session.epoch
        self.ranges: list[Range] = [(Offset(first), Offset(end))]  # to be handed out
        self.generation = delivery.generation
        self.term = tracker.term
        self.stream = session.stream
        self.nacked: set[int] = set()  # offsets that the program gave back
        self.bytes = len(raw)
        self.credit = end - first  # its messages that count as buffered
        self.delivery_count = delivery.delivery_count
        self.segment = delivery.chain_segment
        self.again = _again(delivery)
        self.store_ms = header.store_ms
        self.values, self.keys, self.tags, self.headers, self.born_ms = records

    def another(self, delivery: client_pb2.Delivery) -> "DeliveredBatch":
        """Return another range of the same batch: already decoded, its bytes already counted."""
        first, end = delivery.first_offset, delivery.end_offset
        if not self.base <= first < end <= self.base + len(self.values):
            raise Malformed(f"offset {first}: the batch before it does not hold [{first}, {end})")
        batch = copy(self)
        batch.ranges = [(Offset(first), Offset(end))]
        batch.nacked = set()
        batch.bytes = 0
        batch.credit = end - first
        batch.delivery_count = delivery.delivery_count
        batch.segment = delivery.chain_segment
        batch.again = _again(delivery)
        return batch

    @property
    def may_be_a_copy(self) -> bool:
        """Whether the program may have got some of these messages before."""
        return self.again or self.tracker.renewed

    def is_done(self, offset: int) -> bool:
        """Whether the program has acked another copy of this message meanwhile."""
        return self.tracker.is_done(offset, self.term, self.epoch)

    def report_again(self) -> None:
        """Repeat the acks of this redelivered range that are not known to be stored.

        The broker had no room for them, or received them late.
        """
        for first, end in self.ranges:
            if self.tracker.came_again(first, end, self.epoch):
                self.session.acked()

    def leave_out(self, records: int) -> None:
        """Give back the credit of `records` messages that wait no longer and go to no program."""
        self.credit -= records
        if records and self.stream == self.session.stream:
            self.session.give_credit(0, records)

    def refine(self) -> list[Range]:
        """Remove what is done already; return the ranges that are still to be handed out."""
        tracker, term, epoch = self.tracker, self.term, self.epoch
        self.ranges = [
            gap for first, end in self.ranges for gap in tracker.not_done(first, end, term, epoch)
        ]
        return self.ranges


def _again(delivery: client_pb2.Delivery) -> bool:
    """Whether a copy may have come before. An older broker counts copies instead."""
    return delivery.redelivered or delivery.delivery_count > 1


class Acker:
    """The receiver of acks: a consumer's session."""

    __slots__ = ()

    epoch: Epoch
    """The term of the group in which its broker serves."""
    over: FmqError | None = None
    """Why it takes no more acks: its consumer is closed or has failed."""
    stream = 0
    """Number of streams that it has opened: each has its own credit."""
    turns: LoopTurns
    """Decides when a call that need not wait must let the loop turn."""

    def acked(self) -> None:
        """Note that some tracker has new acks."""
        raise NotImplementedError

    def nacked(
        self, batch: DeliveredBatch, first: int, end: int, delay_ms: int, *, unseen: bool = False
    ) -> None:
        """Give a range back. `unseen`: the program never got it."""
        raise NotImplementedError

    def give_credit(self, size: int, records: int = 0) -> None:
        """Return credit for `size` bytes and `records` messages that wait no longer."""
        raise NotImplementedError

    def handing(self) -> None:
        """Note that the program is about to get messages of a delivery."""

    def note_handed_over(self, batch: DeliveredBatch, first: int, end: int) -> None:
        """Note that the program got a range of a delivery."""


def nack_of(
    tracker: AckTracker, first: int, end: int, delay_ms: int = 0, *, unseen: bool = False
) -> client_pb2.NackRange:
    """Return the wire form of a range that is given back."""
    return client_pb2.NackRange(
        queue_id=tracker.queue,
        generation=tracker.generation,
        first_offset=first,
        end_offset=end,
        delay_ms=delay_ms,
        not_delivered=unseen,
    )


def acks_of(tracker: AckTracker) -> list[client_pb2.AckRange]:
    """Take the acks that were not sent yet; they count as sent from now on."""
    return [
        client_pb2.AckRange(
            queue_id=tracker.queue,
            generation=tracker.generation,
            first_offset=first,
            end_offset=end,
            epoch=epoch,
        )
        for first, end, epoch in tracker.take_fresh()
    ]


def control_of(tracker: AckTracker) -> client_pb2.QueueControl:
    """Return the wire form of whether the queue is paused."""
    return client_pb2.QueueControl(
        queue_id=tracker.queue,
        generation=tracker.generation,
        pause=tracker.paused,
        resume=not tracker.paused,
    )


def warn_of_skipped(topic: str, group: str, broker_group: str, what: client_pb2.Skipped) -> None:
    """Log that retention deleted messages before the consumer group had acked them."""
    _log.warning(
        "%s: group %s queue %d: %d messages from offset %d on were deleted by retention before "
        "consumer group %s had acked them",
        *(topic, broker_group, what.queue_id, what.end_offset - what.first_offset),
        *(what.first_offset, group),
    )


class Message:
    """One message. `value` and `key` are attributes; the rest is looked up on access."""

    __slots__ = ("_batch", "key", "offset", "value")

    offset: int
    value: bytes
    key: bytes | None

    def __init__(self, batch: DeliveredBatch, offset: int) -> None:
        at = offset - batch.base
        self._batch = batch
        self.offset = offset
        self.value = batch.values[at]
        keys = batch.keys
        self.key = (keys[at] or None) if keys is not None else None

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self._batch.topic

    @property
    def group(self) -> str:
        """The broker group that holds the message."""
        return self._batch.tracker.group

    @property
    def queue(self) -> int:
        """The message's queue in that group; order is kept within a queue."""
        return self._batch.tracker.queue

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of the message; values are bytes. Raises `Malformed`."""
        raw = self._batch.headers
        try:
            return {} if raw is None else decode_headers(raw[self.offset - self._batch.base])
        except BadColumns as error:
            where = f"{self.topic}: group {self.group} queue {self.queue} offset {self.offset}"
            raise Malformed(f"{where}: {error}") from error

    @property
    def tag(self) -> bytes | None:
        """The tag of the message, None if it has none."""
        tags = self._batch.tags
        return None if tags is None else tags[self.offset - self._batch.base] or None

    @property
    def store_ms(self) -> int:
        """When the broker stored the message, in milliseconds since 1970 UTC."""
        return self._batch.store_ms

    @property
    def born_ms(self) -> int | None:
        """When the producer took the message, if the producer was opened with `born_time=True`."""
        born = self._batch.born_ms
        return None if born is None else born[self.offset - self._batch.base]

    @property
    def segment(self) -> int:
        """The segment of an ordered topic's chain; 0 in other topics.

        In an ordered topic, order by (segment, offset) within a queue.
        """
        return self._batch.segment

    @property
    def read_epoch(self) -> int:
        """The term of the broker group in which the message was delivered."""
        return self._batch.read_epoch

    @property
    def delivery_count(self) -> int:
        """How often a program got the message, this time included, as far as this broker knows."""
        return self._batch.delivery_count

    async def ack(self) -> None:
        """Mark the message as done; the ack is sent soon, together with others.

        `Consumer.commit` waits until it is stored. This call waits for nothing, but lets the event
        loop turn if the program has held it for long.
        """
        self.ack_now()
        turns = self._batch.session.turns
        if turns.listed and turns.due():
            await turns.give()

    def ack_now(self) -> None:
        """Ack without `await`: never lets the loop turn."""
        if self._batch.session.over is not None:
            raise self._batch.session.over
        self._note_done()

    def _note_done(self) -> None:
        """Record the ack, even if it can reach no broker any more: a commit reports that."""
        batch = self._batch
        if batch.tracker.ack(self.offset, batch.term, batch.epoch):
            batch.session.acked()

    async def nack(self, *, delay_ms: int = 0) -> None:
        """Redeliver the message after `delay_ms`, to whichever member then holds its queue."""
        if not isinstance(delay_ms, int) or not 0 <= delay_ms < 2**32:
            raise InvalidArgument(
                f"delay_ms={delay_ms!r} must be a whole number from 0, below 2**32"
            )
        batch = self._batch
        if batch.session.over is not None:
            raise batch.session.over
        batch.nacked.add(self.offset)
        if batch.term == batch.tracker.term:
            batch.session.nacked(batch, self.offset, self.offset + 1, delay_ms)
        if batch.session.turns.listed and batch.session.turns.due():
            await batch.session.turns.give()

    def _is_of(self, session: Acker, tracker: AckTracker | None) -> bool:
        """Whether the message came by that session, from that queue (None: from any)."""
        batch = self._batch
        return batch.session is session and (tracker is None or batch.tracker is tracker)

    @property
    def nacked(self) -> bool:
        """Whether this delivery of the message was given back."""
        return self.offset in self._batch.nacked

    def __repr__(self) -> str:
        return (
            f"Message({self.topic} {self.group}/{self.queue} @{self.offset}, key={self.key!r}, "
            f"{len(self.value)} bytes)"
        )


def give_back(messages: Iterable[Message]) -> None:
    """Give unseen messages back for immediate redelivery; adjacent ones become one range."""
    for batch, first, end in _runs(messages):
        batch.session.nacked(batch, first, end, 0, unseen=True)
        batch.leave_out(end - first)


def hand_over(messages: Iterable[Message]) -> None:
    """Report that the program got these messages; adjacent ones become one range."""
    for batch, first, end in _runs(messages):
        batch.credit -= end - first
        batch.session.note_handed_over(batch, first, end)


def _runs(messages: Iterable[Message]) -> list[tuple[DeliveredBatch, int, int]]:
    runs: list[tuple[DeliveredBatch, int, int]] = []
    for message in messages:
        batch, first, offset = message._batch, message.offset, message.offset
        if runs and runs[-1][0] is batch and runs[-1][2] == offset:
            first = runs.pop()[1]
        runs.append((batch, first, offset + 1))
    return runs
