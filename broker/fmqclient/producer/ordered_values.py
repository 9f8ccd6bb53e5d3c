"""Values of an ordered producer's state: batches, the role, the queues, and the actions to take."""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from fmqcore.errors import (
    FmqError,
)
from fmqcore.ids import GroupName, Offset
from fmqcore.zk.chain import PerQueue


class Content(Protocol):
    """A batch's records, opaque to the state."""

    @property
    def count(self) -> int:
        """Number of records."""
        ...

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        ...

    def halves(self) -> "tuple[Content, Content]":
        """Return the same records as two batches; there are two records or more."""
        ...


@dataclass(slots=True, eq=False)
class Batch:
    """Consecutive records of one queue; never divided differently after the first send."""

    queue: int
    sequence: int  # of the first record
    content: Content
    open_attempts: int = 0  # sends without a certain refusal; 0: stored nowhere

    @property
    def end(self) -> int:
        """The sequence after the last record."""
        return self.sequence + self.content.count


@dataclass(frozen=True, slots=True)
class Role:
    """The chain as a broker described it to this sender: `SenderState` on the wire."""

    active: bool
    sender_epoch: int
    segment: int
    group: GroupName
    first_sequence: PerQueue
    closing: str = ""  # why the segment takes no more; "" = it is open
    reason: str = ""  # what sends wait for


@dataclass(frozen=True, slots=True)
class Report:
    """Send a report over the session that keeps the place in line."""

    segment: int
    unacked: PerQueue


@dataclass(frozen=True, slots=True)
class Connect:
    """Leave the stream, if one is open, and open one to the master of `group`."""

    group: GroupName


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Report that a batch is stored."""

    batch: Batch
    group: GroupName
    segment: int
    offset: Offset  # of the first record


@dataclass(frozen=True, slots=True)
class Failed:
    """Fail all records and leave all streams, for good. `batch`: the refused one, if any."""

    error: FmqError
    batch: Batch | None = None


Action = Report | Connect | Acknowledged | Failed


@dataclass(slots=True)
class QueueState:
    """One queue of an ordered producer: its batches without an ack, and how far it is sent."""

    unacked: int  # the lowest sequence without an ack
    batches: deque[Batch] = field(default_factory=deque)  # L11
    sent: int = 0  # number of them sent over this stream, in order
    retry_ms: int = 0  # not before
    rewound_at: int = 0  # refusals of batches up to this correlation are answered by a rewind

    @property
    def end(self) -> int:
        """The sequence of the next new record."""
        return self.batches[-1].end if self.batches else self.unacked

    @property
    def next(self) -> int:
        """The sequence to send next."""
        return self.batches[self.sent].sequence if self.sent < len(self.batches) else self.end

    def index_of(self, sequence: int) -> int | None:
        """Return which batch starts with the sequence; None if none does."""
        if sequence == self.end:
            return len(self.batches)
        found = (i for i, batch in enumerate(self.batches) if batch.sequence == sequence)
        return next(found, None)
