"""What an ordered producer knows, and what follows from each event. Pure: events in, actions out.

    add -> batches (cut once) -> take -> stream -> acknowledged | refused
                                  ^                             |
    role (SenderState) ----> rewind to the first without an ack-+

Order of effects at a closing, which keeps the order over a switch: (1) freeze: from here on no ack
of that segment counts; (2) report the first sequence without an ack; (3) keep every batch from
there on; (4) when the next segment is open, connect to its group; (5) send all of them again, cut
as before, then go on. The report and what is sent again start at the same sequence (L12), so the
next segment leaves no gap, and consumers know by the sequence what is there twice.

Numbered as in `docs/internals/invariants.md`:

L11. The batches of a queue are all records from `unacked` on, in order, without a gap. They are cut
     once: a master answers a batch that it has only if it comes again with the same records.
L12. While frozen, `unacked` does not move.
L13. After an error nothing is sent and no ack counts: `error` is final.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from fmqclient.producer.ordered_values import (
    Acknowledged,
    Action,
    Batch,
    Connect,
    Content,
    Failed,
    QueueState,
    Report,
    Role,
)
from fmqcore.error_spec import RetryAction, spec_of
from fmqcore.errors import (
    FmqError,
    Malformed,
    OutOfSequence,
    SegmentClosed,
    SenderFenced,
)
from fmqcore.ids import GroupName, Offset
from fmqcore.zk.chain import PerQueue

SLOW_RETRY: Final = 5
"""Factor of the usual pause before a segment that takes no more records is tried again."""

OWN_ROLE_MS: Final = 3000
"""A sender that has joined the line again learns within this time that a later epoch is its own."""
LEFT_OUT_MS: Final = 10_000
"""A chain that ends before the sender's segment for that long has lost it: no server lags more."""


# ---- actions


class OrderedState:
    """The state of one ordered producer. Times are milliseconds of the client's clock."""

    def __init__(self) -> None:
        self.epoch = 0  # of this sender; 0 = it never had the role
        self.segment = 0
        self.group = GroupName("")
        self.active = False
        self.frozen = False  # L12: the segment is closing
        self.reason = "it has asked for the role"  # what is awaited, for people
        self.error: FmqError | None = None  # L13
        self.queues: list[QueueState] = []
        self.in_flight_bytes = 0
        self.is_open = False  # a stream to the segment's master
        self.has_rejoined = False  # its place in line is another one than when it got the role
        self._sent: dict[int, Batch] = {}  # by correlation, on the present stream
        self._correlation = 0
        self._reported = 0  # the segment, over the present session
        self._turn = 0  # the queue whose batch leaves next
        self._fenced_ms: int | None = None  # since when a master knows a later sender
        self._is_left_out = False  # the line's newest role ends before this segment
        self._left_out_ms: int | None = None  # since when, at least

    @property
    def unacked(self) -> PerQueue:
        """By queue, the lowest sequence without an ack."""
        return tuple(queue.unacked for queue in self.queues)

    @property
    def batches(self) -> Sequence[Batch]:
        """Every batch without an ack."""
        return [batch for queue in self.queues for batch in queue.batches]

    # ---- records

    def add(self, queue: int, content: Content) -> Batch:
        """Give the next sequences of the queue to a batch."""
        assert self.epoch, "a sender without the role has no sequences"
        state = self.queues[queue]
        batch = Batch(queue, state.end, content)
        state.batches.append(batch)
        return batch

    def all_sent(self, queue: int) -> bool:
        """Whether a new batch of the queue would be the next to leave."""
        state = self.queues[queue]
        return state.sent == len(state.batches)

    def may_send(self) -> bool:
        """Whether the open segment takes batches over the open stream, as far as is known."""
        return self.is_open and not self.frozen and self.error is None

    def take(self, now_ms: int) -> tuple[int, Batch] | None:
        """Return the next batch and its correlation; it counts as sent. None: nothing may leave."""
        if not self.may_send():
            return None
        for _ in self.queues:
            state = self.queues[self._turn]
            self._turn = (self._turn + 1) % len(self.queues)
            if state.sent < len(state.batches) and now_ms >= state.retry_ms:
                batch = state.batches[state.sent]
                state.sent += 1
                batch.open_attempts += 1
                self._correlation += 1
                self._sent[self._correlation] = batch
                self.in_flight_bytes += batch.content.size
                return self._correlation, batch
        return None

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Return when the first queue that may not send now may do so again.

        Ask with the time for which `take` had nothing: a later one may lie between the two.
        """
        waiting = (q.retry_ms for q in self.queues if q.sent < len(q.batches))
        return min((retry_ms for retry_ms in waiting if retry_ms > now_ms), default=None)

    @property
    def in_flight(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._sent)

    # ---- streams

    def stream_opened(self) -> None:
        """A stream to the master of `group` is open: send all that has no ack, from its start."""
        self._forget_stream()
        self.is_open = True

    def stream_lost(self) -> None:
        """What was sent may be stored or not; the same batches go over the next stream."""
        self._forget_stream()

    def _forget_stream(self) -> None:
        self.is_open = False
        self._sent.clear()
        self.in_flight_bytes = 0
        for queue in self.queues:
            queue.sent, queue.retry_ms = 0, 0

    def session_opened(self) -> None:
        """The place in line is a new one: a report has to be made again, if it is this sender's."""
        self._reported = 0
        self.has_rejoined = self.epoch > 0

    def session_lost(self) -> None:
        """Note that no broker keeps the place: the last one may have known an older chain."""
        self._note_in_chain()

    # ---- the role

    def apply_role(self, role: Role, *, in_line: bool = True) -> list[Action]:
        """Take the chain as a broker describes it. An older description changes nothing.

        `in_line`: the broker keeps this sender's place in line, so it is owed the reports.
        """
        if self.error is not None:
            return []
        if not self.epoch:
            self.reason = role.reason
            return self._begin(role, in_line) if role.active else []
        if role.sender_epoch > self.epoch:
            another = "another sender is active"
            return self._succeed(role, in_line) if role.active else self.fence(another)
        if not role.active:
            self.active, self.reason = False, role.reason
            return []
        if role.sender_epoch < self.epoch:
            return []
        if role.segment < self.segment:
            self._is_left_out = self._is_left_out or in_line
            return []
        self._note_in_chain()
        self.active, self.reason = True, role.reason
        if role.segment > self.segment:
            return self._follow(role, in_line)
        return self._close(role, in_line) if role.closing else []

    def _note_in_chain(self) -> None:
        self._is_left_out, self._left_out_ms = False, None

    def _begin(self, role: Role, in_line: bool) -> list[Action]:
        self.queues = [QueueState(first) for first in role.first_sequence]
        return self._enter(role, in_line)

    def _enter(self, role: Role, in_line: bool) -> list[Action]:
        """Go on in another segment, from the first record without an ack."""
        self._forget_stream()
        self.active, self.frozen, self.reason = True, False, role.reason
        self._fenced_ms = None
        self.epoch, self.segment, self.group = role.sender_epoch, role.segment, role.group
        self.has_rejoined = False
        return [Connect(role.group), *(self._close(role, in_line) if role.closing else ())]

    def _close(self, role: Role, in_line: bool) -> list[Action]:
        self.frozen = True
        self.reason = role.reason or role.closing
        if not in_line or self._reported == role.segment:
            return []
        self._reported = role.segment
        return [Report(role.segment, self.unacked)]

    def _follow(self, role: Role, in_line: bool) -> list[Action]:
        """The next segment must start at the first record without an ack."""
        if role.first_sequence != self.unacked:
            return self._fail(
                OutOfSequence(
                    f"segment {role.segment} of the chain starts with the sequences "
                    f"{list(role.first_sequence)}, and this sender has all from "
                    f"{list(self.unacked)} on: open the ordered producer again, and go on after "
                    "its `last` records"
                )
            )
        return self._enter(role, in_line)

    def _succeed(self, role: Role, in_line: bool) -> list[Action]:
        """It lost its place in line, and got the role again: with nothing in doubt, go on.

        The new segment starts after the chain's last known record. If that is the last one with an
        ack, and no other sender had an epoch in between, nothing was stored by another. The
        sequences alone do not show it: one that accepted an unknown end may have used lower ones.
        What was sent without an ack may still be stored in a segment whose end is not known: sent
        again under another epoch, it would come twice.
        """
        in_doubt = any(batch.open_attempts for batch in self.batches)
        another = role.sender_epoch != self.epoch + 1
        if role.first_sequence != self.unacked or in_doubt or another:
            return self.fence("its place in line was lost while records had no answer")
        return self._enter(role, in_line)

    def fence(self, reason: str) -> list[Action]:
        """End: another sender may have stored records."""
        return self._fail(
            SenderFenced(
                f"this ordered producer has lost its role: {reason}; open it again: it waits in "
                "line, and its `last` records show which of the records without an answer are "
                "stored"
            )
        )

    def _fail(self, error: FmqError, batch: Batch | None = None) -> list[Action]:
        self.end(error)
        return [Failed(error, batch)]

    def end(self, error: FmqError) -> None:
        """Send nothing more, and take no ack (L13)."""
        self.error = self.error or error
        self.active = False
        self._forget_stream()

    # ---- answers

    def acknowledged(self, correlation: int, base_offset: Offset) -> list[Action]:
        """A batch is stored in the segment, and so are all before it (K13)."""
        batch = self._answered(correlation)
        if batch is None or self.frozen:
            return []
        self._note_in_chain()  # an ack needs the chain as it is now
        state = self.queues[batch.queue]
        actions: list[Action] = []
        while state.batches and state.batches[0].sequence <= batch.sequence:
            done = state.batches.popleft()
            state.sent = max(0, state.sent - 1)
            state.unacked = done.end
            offset = Offset(base_offset - (batch.sequence - done.sequence))
            actions.append(Acknowledged(done, self.group, self.segment, offset))
            self.reason = ""
        return actions

    def refused(
        self, correlation: int, error: FmqError, expected: int, now_ms: int, pause_ms: int
    ) -> list[Action]:
        """A batch was refused: send again from it, or from `expected`; or it is over."""
        batch = self._answered(correlation)
        if batch is None:
            return []
        if not spec_of(error).appended:
            batch.open_attempts -= 1
        if isinstance(error, SenderFenced):
            return self.fenced_by_master(str(error), now_ms)
        state = self.queues[batch.queue]
        if self.frozen or batch.sequence < state.unacked or correlation <= state.rewound_at:
            return []
        match spec_of(error).retry:
            case RetryAction.SWITCH_BROKER:
                return [Connect(self.group)]
            case RetryAction.FAIL | RetryAction.FAIL_UNKNOWN:
                return self._fail(error, batch)
            case RetryAction.SPLIT:
                return self._split(state, batch, error)
            case RetryAction.AFTER_EARLIER if expected:
                return self._rewind_to(state, batch, expected, now_ms, pause_ms)
            case _:
                slow = SLOW_RETRY if isinstance(error, SegmentClosed) else 1
                self.reason = str(error)
                self._rewind(state, batch.sequence, now_ms + slow * pause_ms)
                return []

    def fenced_by_master(self, reason: str, now_ms: int) -> list[Action]:
        """A master knows a later sender epoch: its own, if it has joined the line again."""
        if self.error is not None:
            return []
        if not self.has_rejoined:
            return self.fence(reason)
        self.frozen = True
        self.reason = reason
        self._fenced_ms = self._fenced_ms or now_ms
        return []

    def tick(self, now_ms: int) -> list[Action]:
        """Fail for what lasts: a later sender, which is another one, or a chain that is behind."""
        if self._is_left_out and self.error is None:
            self._left_out_ms = now_ms if self._left_out_ms is None else self._left_out_ms
            if now_ms - self._left_out_ms >= LEFT_OUT_MS:
                return self._fail(
                    OutOfSequence(
                        f"the chain has lost segment {self.segment}, into which this sender sends: "
                        "ZooKeeper was restored from an older backup; open the ordered producer "
                        "again, and go on after its `last` records"
                    )
                )
        if self._fenced_ms is None or now_ms - self._fenced_ms < OWN_ROLE_MS or self.error:
            return []
        return self.fence(self.reason)

    def _answered(self, correlation: int) -> Batch | None:
        batch = self._sent.pop(correlation, None)
        if batch is not None:
            self.in_flight_bytes -= batch.content.size
        return batch

    def _rewind(self, state: QueueState, sequence: int, retry_ms: int) -> None:
        """Send again from a batch on. Refusals of what was sent before prove nothing any more."""
        index = state.index_of(sequence)
        assert index is not None, "a rewind goes to a batch as it was cut (L11)"
        state.sent = index
        state.retry_ms = retry_ms
        state.rewound_at = self._correlation

    def _rewind_to(
        self, state: QueueState, batch: Batch, expected: int, now_ms: int, pause_ms: int
    ) -> list[Action]:
        if expected < state.unacked:
            self.reason = (
                f"{self.group} expects sequence {expected} of queue {batch.queue}, and has "
                f"acknowledged all below {state.unacked}: it has lost records; `fmq ordered "
                "status` shows what to do"
            )
            self._rewind(state, state.unacked, now_ms + SLOW_RETRY * pause_ms)
            return []
        if expected > batch.sequence or state.index_of(expected) is None:
            text = f"{self.group} expects sequence {expected} of queue {batch.queue}"
            return self._fail(Malformed(f"{text}, where no batch of this sender starts"), batch)
        self._rewind(state, expected, now_ms if expected < batch.sequence else now_ms + pause_ms)
        return []

    def _split(self, state: QueueState, batch: Batch, error: FmqError) -> list[Action]:
        """Cut a batch that is too large for this segment in two: it is stored nowhere in it."""
        if batch.content.count < 2:
            return self._fail(error, batch)
        index = state.index_of(batch.sequence)
        assert index is not None, "a batch without an ack is kept (L11)"
        first, second = batch.content.halves()
        middle = batch.sequence + first.count
        attempts = batch.open_attempts  # in other segments
        state.batches[index] = Batch(batch.queue, batch.sequence, first, attempts)
        state.batches.insert(index + 1, Batch(batch.queue, middle, second, attempts))
        self._rewind(state, batch.sequence, 0)
        return []


def per_queue(values: Mapping[int, int]) -> PerQueue:
    """Return the values of queues 0 to n; raise `Malformed` if one lacks."""
    if sorted(values) != list(range(len(values))):
        raise Malformed(f"queues {sorted(values)} are not numbered from 0 without a gap")
    return tuple(values[queue] for queue in range(len(values)))
