"""The ordered batches of one session, from their arrival to their acks, in one order.

Batches are taken one after the other: while one waits for a read of the chain, those behind it wait
too. Acks leave in the order of the batches. An ack that does not become due before the batch's
deadline is DELIVERY_UNKNOWN; one of a segment that closed meanwhile is SEGMENT_CLOSED: the batch
may be stored, and its sender sends it again into the next segment.

The session reads the stream and sends the acks; `append.py` judges and knows when an ack may be OK.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fmqbroker.ordered.append import Draft, Gap, OrderedAppend, Stored
from fmqbroker.runtime.notifier import Signal
from fmqcore import errors
from fmqcore.errors import ErrorCode, FmqError
from fmqcore.ids import Epoch, TopicId
from fmqcore.ordered.sending import OrderedBatch
from fmqproto.v1 import client_pb2

_LEVELS: Final = (int(client_pb2.REPLICATED), int(client_pb2.ALL))
_ACK_BYTES: Final = 256
"""Memory accounted for each pending ack or refusal until its sender reads it."""
_CHECK_S: Final = 0.25
"""Interval at which a waiting ack is checked: a lease that ends sends no signal."""


Cleared = tuple[int, Epoch]
"""A segment and the term in which a batch was appended."""


class Pending(NamedTuple):
    """An ack not yet sent: of a stored batch, or the refusal of one."""

    correlation: int
    stored: Stored | None
    deadline_ms: int = 0
    size: int = 0
    error: FmqError | None = None


class SessionBatches:
    """FIFO queue of one session's batches. Satisfies the protocol of `produce`'s session."""

    def __init__(
        self,
        append: OrderedAppend,
        topic_id: TopicId,
        sender: str,
        check: Callable[[client_pb2.ProduceBatch], None],
        require: Callable[[TopicId], int],
        ack_timeout_ms: int,
    ) -> None:
        """`sender`: its id. `check` validates a batch's content; `require` as in `take`."""
        self.bytes = 0
        self._append = append
        self._topic_id = topic_id
        self._sender = sender
        self._check = check
        self._require = require
        self._ack_timeout_ms = ack_timeout_ms
        self._waiting: deque[Pending] = deque()
        self._arrived = Signal()  # an ack waits where none did

    @property
    def signals(self) -> Sequence[Signal]:
        """What may make another ack due; an idle session sleeps until a batch arrives."""
        if not self._waiting:
            return (self._arrived,)
        append = self._append
        parts = append.commit, append.lease, append.seals, append.cache
        return [*(part.changed for part in parts), *append.ends.changed]

    def wait_s(self) -> float | None:
        """Return after how many seconds an ack may be due without a signal; None: none waits."""
        if not self._waiting:
            return None
        left_ms = self._waiting[0].deadline_ms - self._append.clock.monotonic_ms()
        return max(0.0, min(left_ms / 1000, _CHECK_S))

    async def take(self, batches: Sequence[client_pb2.ProduceBatch]) -> None:
        """Judge and append these batches, in their order; queue an ack or a refusal of each."""
        for batch in batches:
            held = _ACK_BYTES + len(batch.payload)
            try:
                stored = await self._take(batch)
            except FmqError as error:
                pending = Pending(batch.correlation, None, size=_ACK_BYTES, error=error)
            else:
                timeout_ms = batch.timeout_ms or self._ack_timeout_ms
                deadline_ms = self._append.clock.monotonic_ms() + timeout_ms
                pending = Pending(batch.correlation, stored, deadline_ms, held)
            self._waiting.append(pending)
            self.bytes += pending.size
            if len(self._waiting) == 1:  # its ack does not wait for those behind it
                self._arrived.notify()

    def take_due(self) -> list[client_pb2.ProduceAck]:
        """Remove and return all acks that may be sent now."""
        acks: list[client_pb2.ProduceAck] = []
        cleared: set[Cleared] = set()
        while self._waiting and (ack := self._due(self._waiting[0], cleared)) is not None:
            acks.append(ack)
            self.bytes -= self._waiting.popleft().size
        return acks

    # ---- inside
    async def _take(self, batch: client_pb2.ProduceBatch) -> Stored:
        if batch.topic_id != self._topic_id or not batch.chain_segment:
            raise errors.InvalidArgument(
                "the session of an ordered producer takes ordered batches of one topic only"
            )
        if int(batch.ack) not in _LEVELS:
            raise errors.InvalidArgument(
                "an ordered batch is acknowledged once all members of the group hold it: "
                "no other level can be asked for"
            )
        self._check(batch)
        place = OrderedBatch(
            self._sender,
            batch.chain_segment,
            batch.sender_epoch,
            batch.queue_id,
            batch.ordered_sequence,
            batch.record_count,
        )
        draft = Draft(
            self._topic_id, place, batch.payload, batch.payload_crc, batch.attrs, batch.tag_mask
        )
        return await self._append.take(draft, self._require)

    def _due(self, first: Pending, cleared: set[Cleared]) -> client_pb2.ProduceAck | None:
        """Return the ack that may be sent for the first in line; None while it waits.

        `cleared`: of which segments and terms a batch may be acknowledged, in this turn.
        """
        stored = first.stored
        if stored is None:
            assert first.error is not None
            return _refusal(first.correlation, first.error)
        append, kind = self._append, (stored.segment, stored.term)
        if kind not in cleared and (failure := append.failure(stored)) is not None:
            return _refusal(first.correlation, failure)
        if append.is_durable(stored) and (kind in cleared or append.obstacle(stored) is None):
            cleared.add(kind)  # K14: what `obstacle` looks at besides does not change in a turn
            return client_pb2.ProduceAck(
                correlation=first.correlation, base_offset=stored.offset, store_ms=stored.store_ms
            )
        if append.clock.monotonic_ms() >= first.deadline_ms:
            reason = append.obstacle(stored) or "not all members hold it"
            return _refusal(first.correlation, errors.DeliveryUnknown(f"not in time: {reason}"))
        return None


def _refusal(correlation: int, error: FmqError) -> client_pb2.ProduceAck:
    code: ErrorCode = error.code
    return client_pb2.ProduceAck(
        correlation=correlation,
        code=client_pb2.ErrorCode.Name(int(code)),
        message=str(error),
        expected_sequence=error.expected if isinstance(error, Gap) else 0,
    )
