"""What a producer's accumulator and its senders ask of each other."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from fmqclient.producer.batches import (
    InFlightBatch,
    PendingBatch,
)
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqcore.errors import (
    FmqError,
)
from fmqcore.ids import GroupName


class Carrier(Protocol):
    """What the accumulator needs of a sender."""

    reason: str  # it does not take anything, for people; empty if it does
    error: FmqError | None  # the last refusal, if nothing was stored since

    @property
    def usable(self) -> bool:
        """Whether new records may be bound for this sender."""
        ...

    def offer(self, buffer: QueueBuffer) -> None:
        """Note that a queue buffer has something to send."""
        ...

    def renew(self) -> None:
        """Open a new session when nothing is in flight: a queue buffer is poisoned."""
        ...


class BufferSource(Protocol):
    """What a sender needs of the accumulator, or of a caller that places its batches itself."""

    def buffers(self) -> Iterator[QueueBuffer]:
        """Yield all queue buffers."""
        ...

    def needs(self, group: GroupName, /) -> bool:
        """Whether the group is to be connected to."""
        ...

    def limit(self, max_bytes: int, max_records: int) -> None:
        """Apply a broker's limits to the batches started from now on."""
        ...

    def remap(self) -> None:
        """Choose groups again: a sender went up or down."""
        ...

    def lift(self) -> None:
        """Resume sending where the awaited answers have come."""
        ...

    def release(self, count: int, size: int) -> None:
        """Free the room of records that have an outcome."""
        ...

    def fail(self, batches: Iterable[PendingBatch | InFlightBatch], error: FmqError) -> None:
        """Fail the records of these batches and forget them."""
        ...

    def is_gone(self, buffer: QueueBuffer, /) -> bool:
        """Whether the topic of the queue buffer is gone."""
        ...

    def has_elsewhere(self, buffer: QueueBuffer, /) -> bool:
        """Whether another group might take what the queue buffer's group does not."""
        ...
