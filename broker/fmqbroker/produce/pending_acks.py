"""Unsent acks of one produce session, in the order of their batches (P3).

An OK ack is due when the end that its level names (`AckLevel`) has passed its batch, within the
epoch in which the batch was appended (P1, P2, R6). Any other end of the wait (a timeout, the loss
of the role or of replicas) makes the ack DELIVERY_UNKNOWN, never OK (P4). A master that may write
no more, because its group is drained, still waits for its slaves: the outcome is known only here.
The deadline of a batch is checked only once that batch is first in line.

Sending and appending are the work of `produce/session.py`.
"""

from collections import deque
from typing import Final, NamedTuple

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import wait_any
from fmqbroker.serving.gate import Gate
from fmqcore.ids import Epoch, Offset, Permission, Position
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

FSYNCED: Final = (int(client_pb2.PERSISTED), int(client_pb2.ALL))
"""Levels that require the master's own fsync, whatever the group's policy."""

_ACK_BYTES: Final = 256
"""Memory accounted for each pending ack or refusal until its producer reads it."""
_LEASE_CHECK_S: Final = 0.25
"""Interval at which a waiting ack checks the gate: an expiring lease sends no signal."""


class PendingAck(NamedTuple):
    """An ack not yet sent: due when its level's end passes `end`, or at once if `code` is set."""

    correlation: int
    level: int
    end: Position = Position(0)
    base_offset: Offset = Offset(0)
    store_ms: int = 0
    size: int = 0
    deadline_ms: int = 0
    epoch: Epoch = Epoch(0)
    failed_below: Position = Position(0)  # of the commit frontier, when this was made
    code: int = 0
    message: str = ""
    never_appended: bool = False  # of a refusal: P9


class AckQueue:
    """FIFO queue of pending acks, and the bytes that they account for."""

    def __init__(self, journal: Journal, commit: CommitFrontier, gate: Gate, clock: Clock) -> None:
        self._journal = journal
        self._commit = commit
        self._gate = gate
        self._clock = clock
        self._waiting: deque[PendingAck] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: PendingAck) -> None:
        """Append a pending ack to the queue."""
        self._waiting.append(waiting)
        self.bytes += _held_bytes(waiting)

    def take_due(self) -> list[client_pb2.ProduceAck]:
        """Remove and return all acks that may be sent now."""
        line, journal, commit = self._waiting, self._journal, self._commit
        end = journal.end
        ends = (commit.commit_end, end, end, journal.durable_end, commit.all_end)  # by AckLevel
        epoch = self._newest_term()
        acks: list[client_pb2.ProduceAck] = []
        while line:
            first = line[0]
            if first.code:
                ack = _failed(first, first.code, first.message)
                ack.never_appended = first.never_appended
            elif first.end <= ends[first.level] and first.epoch == epoch:  # P1, P2
                ack = client_pb2.ProduceAck(
                    correlation=first.correlation,
                    base_offset=first.base_offset,
                    store_ms=first.store_ms,
                )
            elif (reason := self._loss_reason(first, epoch)) is not None:
                ack = _failed(first, client_pb2.DELIVERY_UNKNOWN, reason)
            else:
                break
            acks.append(ack)
            self.bytes -= _held_bytes(first)
            line.popleft()
        return acks

    async def wait(self) -> None:
        """Wait until the first ack in the queue may be due."""
        first = self._waiting[0]
        signals = [self._commit.changed, self._gate.changed]
        if first.level in FSYNCED:
            signals.append(self._journal.flushed)
        left_s = (first.deadline_ms - self._clock.monotonic_ms()) / 1000
        await wait_any(*signals, timeout_s=max(0.0, min(left_s, _LEASE_CHECK_S)))

    def _newest_term(self) -> Epoch:
        """Newest term in the journal; its first frames may bear the number before (ADR 0020)."""
        epochs = self._journal.state.epochs
        return epochs[-1][0] if epochs else Epoch(0)

    def _loss_reason(self, first: PendingAck, epoch: Epoch) -> str | None:
        """Return why `first` can no longer be acknowledged; None while it can."""
        if first.epoch != epoch:
            return f"appended in epoch {first.epoch}, but the broker is in epoch {epoch}"
        if first.failed_below < self._commit.failed_below >= first.end:
            cause = self._commit.unwritable_reason or "an in-sync slave"
            return f"lost before the policy held: {cause}"
        if not (self._gate.permission() & Permission.WRITE or self._gate.is_master()):
            return f"this broker may no longer write: {self._gate.reason}"
        if self._clock.monotonic_ms() >= first.deadline_ms:
            return "the policy did not hold in time"
        return None


def _held_bytes(waiting: PendingAck) -> int:
    return waiting.size + len(waiting.message) + _ACK_BYTES


def _failed(waiting: PendingAck, code: int, message: str) -> client_pb2.ProduceAck:
    return client_pb2.ProduceAck(
        correlation=waiting.correlation,
        code=client_pb2.ErrorCode.Name(code),
        message=message,
    )
