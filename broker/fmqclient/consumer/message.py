"""Messages for the program, each made on demand from a delivered batch."""

import logging
from array import array
from collections.abc import Iterable
from copy import copy

from fmqclient.consumer.ack_tracker import Track
from fmqclient.net.loop_turns import LoopTurns
from fmqcore.batch.columns import BadColumns, decode, decode_headers
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchType, check_payload, parse_header
from fmqcore.consume.ranges import Range
from fmqcore.errors import BadCrc, FmqError, InvalidArgument, Malformed
from fmqcore.ids import Epoch, Offset
from fmqproto.v1 import client_pb2

_log = logging.getLogger("fmqclient")


class Chunk:
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
        "session",
        "store_ms",
        "stream",
        "tags",
        "term",
        "topic",
        "track",
        "values",
    )

    born_ms: "array[int] | None"

    def __init__(
        self, topic: str, track: Track, session: "Acker", delivery: client_pb2.Delivery
    ) -> None:
        """Check and decode; raise `BadCrc` or `Malformed` if the bytes were damaged on the wire."""
        raw = delivery.batch
        where = f"{topic}: group {track.group} queue {track.queue} offset {delivery.first_offset}"
        try:
            header = parse_header(raw)
            payload = raw[HEADER_LEN : HEADER_LEN + header.payload_len]
            check_payload(header, payload)
            if header.type != BatchType.DATA:
                raise Malformed(f"{where}: a batch of type {header.type} is no data")
            records = decode(header.attrs, header.record_count, payload)
        except BadBatch as error:
            raise BadCrc(f"{where}: {error}") from error
        except BadColumns as error:
            raise Malformed(f"{where}: {error}") from error
        first, end = delivery.first_offset, delivery.end_offset
        if not header.base_offset <= first < end <= header.end_offset:
            raise Malformed(f"{where}: the batch holds [{header.base_offset}, {header.end_offset})")
        self.topic = topic
        self.track = track
        self.session = session
        self.base = header.base_offset
        self.epoch = header.epoch
        self.read_epoch = session.epoch
        self.ranges: list[Range] = [(Offset(first), Offset(end))]  # to be handed out
        self.generation = delivery.generation
        self.term = track.term
        self.stream = session.stream
        self.nacked: set[int] = set()  # offsets that the program gave back
        self.bytes = len(raw)
        self.credit = end - first  # messages of it that count as buffered
        self.delivery_count = delivery.delivery_count
        self.again = _again(delivery)
        self.store_ms = header.store_ms
        self.values, self.keys, self.tags, self.headers, self.born_ms = records

    def another(self, delivery: client_pb2.Delivery) -> "Chunk":
        """Return another range of the same batch: already decoded, its bytes already counted."""
        first, end = delivery.first_offset, delivery.end_offset
        if not self.base <= first < end <= self.base + len(self.values):
            raise Malformed(f"offset {first}: the batch before it does not hold [{first}, {end})")
        chunk = copy(self)
        chunk.ranges = [(Offset(first), Offset(end))]
        chunk.nacked = set()
        chunk.bytes = 0
        chunk.credit = end - first
        chunk.delivery_count = delivery.delivery_count
        chunk.again = _again(delivery)
        return chunk

    @property
    def may_be_a_copy(self) -> bool:
        """Whether the program may have got some of these messages before."""
        return self.again or self.track.renewed

    def is_done(self, offset: int) -> bool:
        """Whether the program has acked another copy of this message meanwhile."""
        return self.track.is_done(offset, self.term, self.epoch)

    def say_again(self) -> None:
        """Repeat the acks of this redelivered range that are not known to be stored.

        The broker had no room for them, or received them late.
        """
        for first, end in self.ranges:
            if self.track.came_again(first, end, self.epoch):
                self.session.acked()

    def leave_out(self, records: int) -> None:
        """Give back the credit of `records` messages that wait no longer and go to no program."""
        self.credit -= records
        if records and self.stream == self.session.stream:
            self.session.give_credit(0, records)

    def refine(self) -> list[Range]:
        """Remove what is done already; return the ranges that are still to be handed out."""
        track, term, epoch = self.track, self.term, self.epoch
        self.ranges = [
            gap for first, end in self.ranges for gap in track.not_done(first, end, term, epoch)
        ]
        return self.ranges


def _again(delivery: client_pb2.Delivery) -> bool:
    """Whether a copy may have come before. An older broker counts copies instead."""
    return delivery.again or delivery.delivery_count > 1


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
        """Note that some track has new acks."""
        raise NotImplementedError

    def nacked(
        self, chunk: Chunk, first: int, end: int, delay_ms: int, *, unseen: bool = False
    ) -> None:
        """Give a range back. `unseen`: the program never got it."""
        raise NotImplementedError

    def give_credit(self, size: int, records: int = 0) -> None:
        """Return credit for `size` bytes and `records` messages that wait no longer."""
        raise NotImplementedError

    def handing(self) -> None:
        """Note that the program is about to get something of a delivery."""

    def handed(self, chunk: Chunk, first: int, end: int) -> None:
        """Note that the program got a range of a delivery."""


def nack_of(
    track: Track, first: int, end: int, delay_ms: int = 0, *, unseen: bool = False
) -> client_pb2.NackRange:
    """Return the wire form of a range that is given back."""
    return client_pb2.NackRange(
        queue_id=track.queue,
        generation=track.generation,
        first_offset=first,
        end_offset=end,
        delay_ms=delay_ms,
        unseen=unseen,
    )


def acks_of(track: Track) -> list[client_pb2.AckRange]:
    """Take the acks that were not sent yet; they count as sent from now on."""
    return [
        client_pb2.AckRange(
            queue_id=track.queue,
            generation=track.generation,
            first_offset=first,
            end_offset=end,
            epoch=epoch,
        )
        for first, end, epoch in track.take_fresh()
    ]


def control_of(track: Track) -> client_pb2.QueueControl:
    """Return the wire form of whether the queue is paused."""
    return client_pb2.QueueControl(
        queue_id=track.queue,
        generation=track.generation,
        pause=track.paused,
        resume=not track.paused,
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

    __slots__ = ("_chunk", "key", "offset", "value")

    offset: int
    value: bytes
    key: bytes | None

    def __init__(self, chunk: Chunk, offset: int) -> None:
        at = offset - chunk.base
        self._chunk = chunk
        self.offset = offset
        self.value = chunk.values[at]
        keys = chunk.keys
        self.key = (keys[at] or None) if keys is not None else None

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self._chunk.topic

    @property
    def group(self) -> str:
        """The broker group that holds the message."""
        return self._chunk.track.group

    @property
    def queue(self) -> int:
        """The message's queue in that group; order is kept within a queue."""
        return self._chunk.track.queue

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of the message; values are bytes."""
        raw = self._chunk.headers
        return {} if raw is None else decode_headers(raw[self.offset - self._chunk.base])

    @property
    def tag(self) -> bytes | None:
        """The tag of the message, None if it has none."""
        tags = self._chunk.tags
        return None if tags is None else tags[self.offset - self._chunk.base] or None

    @property
    def store_ms(self) -> int:
        """When the broker stored the message, in milliseconds since 1970 UTC."""
        return self._chunk.store_ms

    @property
    def born_ms(self) -> int | None:
        """When the producer took the message, if the producer was opened with `born_time=True`."""
        born = self._chunk.born_ms
        return None if born is None else born[self.offset - self._chunk.base]

    @property
    def read_epoch(self) -> int:
        """The term of the broker group in which the message was delivered."""
        return self._chunk.read_epoch

    @property
    def delivery_count(self) -> int:
        """How often a program got the message, this time included, as far as this broker knows."""
        return self._chunk.delivery_count

    async def ack(self) -> None:
        """Mark the message as done; the ack is sent soon, together with others.

        `Consumer.commit` waits until it is stored. This call waits for nothing, but lets the event
        loop turn if the program has held it for long.
        """
        self.ack_now()
        turns = self._chunk.session.turns
        if turns.listed and turns.due():
            await turns.give()

    def ack_now(self) -> None:
        """Ack without `await`: never lets the loop turn."""
        chunk = self._chunk
        if chunk.session.over is not None:
            raise chunk.session.over
        if chunk.track.ack(self.offset, chunk.term, chunk.epoch):
            chunk.session.acked()

    async def nack(self, *, delay_ms: int = 0) -> None:
        """Redeliver the message after `delay_ms`, to whichever member then holds its queue."""
        if not isinstance(delay_ms, int) or not 0 <= delay_ms < 2**32:
            raise InvalidArgument(
                f"delay_ms={delay_ms!r} must be a whole number from 0, below 2**32"
            )
        chunk = self._chunk
        if chunk.session.over is not None:
            raise chunk.session.over
        chunk.nacked.add(self.offset)
        if chunk.term == chunk.track.term:
            chunk.session.nacked(chunk, self.offset, self.offset + 1, delay_ms)
        if chunk.session.turns.listed and chunk.session.turns.due():
            await chunk.session.turns.give()

    def _is_of(self, session: Acker, track: Track | None) -> bool:
        """Whether the message came by that session, from that queue (None: from any)."""
        chunk = self._chunk
        return chunk.session is session and (track is None or chunk.track is track)

    @property
    def nacked(self) -> bool:
        """Whether this delivery of the message was given back."""
        return self.offset in self._chunk.nacked

    def __repr__(self) -> str:
        return (
            f"Message({self.topic} {self.group}/{self.queue} @{self.offset}, key={self.key!r}, "
            f"{len(self.value)} bytes)"
        )


def give_back(messages: Iterable[Message]) -> None:
    """Give unseen messages back for immediate redelivery; adjacent ones become one range."""
    for chunk, first, end in _runs(messages):
        chunk.session.nacked(chunk, first, end, 0, unseen=True)
        chunk.leave_out(end - first)


def hand_over(messages: Iterable[Message]) -> None:
    """Report that the program got these messages; adjacent ones become one range."""
    for chunk, first, end in _runs(messages):
        chunk.credit -= end - first
        chunk.session.handed(chunk, first, end)


def _runs(messages: Iterable[Message]) -> list[tuple[Chunk, int, int]]:
    runs: list[tuple[Chunk, int, int]] = []
    for message in messages:
        chunk, first, offset = message._chunk, message.offset, message.offset
        if runs and runs[-1][0] is chunk and runs[-1][2] == offset:
            first = runs.pop()[1]
        runs.append((chunk, first, offset + 1))
    return runs
