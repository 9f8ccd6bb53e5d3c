"""Tracks a consumer's own progress in one queue of one group. No I/O.

Every ack is kept until the broker has reported that it is stored (a commit token came back: L7),
wherever the queue goes meanwhile. Acks that were not sent or not received because of a lost session
or a move to another member are sent again when this consumer holds the queue again. A redelivered
message that is already done is acked and not shown to the program a second time. So a consumer that
lives through a failover sees few messages twice: those that it had not acked. While the consumer
does not hold the queue, no broker receives such acks: the next commit reports it (`stale`).

Only a seek voids old acks: each assignment names the seek since which the queue's progress counts.
Another seek than before starts a new `term`; acks and copies of older terms are ignored. A seek
that the consumer knew may come back with a broker, after a reader that did not know the seek:
everything kept was acked after it, and stays. A seek that the consumer did not know, older than its
last reader's term, voids acks that may be younger than the seek: the next commit reports that, too.

A message that was acked may have been lost, where the group's policy allows it, and its offset
given to another message of a later epoch. So a message is identified by epoch and offset, here
(`_mark`) and towards the broker: an ack counts for no other message with the same offset.
"""

from typing import Final

from fmqcore.batch.offset_entry import version_epoch
from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.ids import Offset

_NONE: Final = -1
_OFFSETS: Final = 1 << 64


def _mark(epoch: int, offset: int) -> Offset:
    """Return a message's identity as one number; within an epoch it rises with the offset."""
    return Offset(epoch * _OFFSETS + offset)


class AckTracker:
    """One (group, queue). `held` under `generation`, or known from before and not held now."""

    __slots__ = (
        "_again",
        "_end",
        "_epoch",
        "_first",
        "_fresh",
        "_known",
        "_read_epoch",
        "_seek_number",
        "_voided",
        "done",
        "generation",
        "group",
        "held",
        "lost_acks",
        "ours",
        "paused",
        "queue",
        "renewed",
        "revoked",
        "term",
        "under_token",
    )

    def __init__(self, group: str, queue: int) -> None:
        self.group = group
        self.queue = queue
        self.held = False
        self.revoked = False  # it moves away: acks count for a moment, nothing more comes
        self.paused = False
        self.ours = False  # held by the last assignment: requested again after a loss
        self.renewed = False  # it was lost once: what comes may be a copy of what is done
        self.generation = 0
        self.term = 0
        self.done = RangeSet()  # marks: acked, and not known to be stored
        self.under_token: RangeSet | None = None  # the part of `done` that a token was sent for
        self.lost_acks = False  # not held, and some of `done` is not stored: to be reported
        self._seek_number = 0  # the seek from which on progress of this reader counts
        self._known = 0  # the newest seek that any assignment named
        self._read_epoch = 0  # the term in which the reader assigned
        self._voided = False  # a seek voided acks that may be younger: to be reported
        self._again: list[Range] = []  # marks, to be sent again
        self._fresh: list[Range] = []  # marks: acked, not sent to the broker
        self._first = self._end = _NONE  # the newest of them: offsets of one epoch
        self._epoch = 0

    def assigned(self, generation: int, seek_number: int = 0, read_epoch: int = 0) -> None:
        """Take the queue: from now on, acks since the seek `seek_number` count.

        Where the assignment begins does not matter: a broker counts the acks it received, stored or
        not. `read_epoch`: the term of the broker that assigns.
        """
        if seek_number > self._seek_number:
            back = version_epoch(seek_number) < self._read_epoch  # made before this reader's term
            if not back or seek_number > self._known:
                self._voided |= back and self.unstored
                self._forget()
        self._seek_number = seek_number  # an older one: who reads now has not heard of the newer
        self._known = max(self._known, seek_number)
        self._read_epoch = read_epoch
        if not self.held:
            self.paused = False
        self._keep()
        self.held, self.revoked, self.lost_acks = True, False, False
        self.ours = True
        self.generation = generation
        self._again = list(self.done)

    def taken(self) -> None:
        """Mark the queue as revoked: its acks count while it drains."""
        self.held, self.revoked = False, True
        self.ours = False
        self.renewed = True

    def came_too_late(self, generation: int) -> None:
        """Let go of the queue: the broker gave it away before it received the acks.

        Also of one that is not revoked: the broker takes no acks of a session that leaves.
        """
        if self.generation == generation and (self.held or self.revoked):
            self._away()
            self.renewed = True

    def session_lost(self) -> None:
        """Note that the session is lost; what the program has done stays known."""
        self._away()
        self.renewed = True

    def ack(self, offset: int, term: int, epoch: int) -> bool:
        """Ack one message; return whether to send it to the broker. `epoch`: its batch's epoch."""
        if term != self.term:
            return False
        if not self.held and not self.revoked:
            self.lost_acks = True
        if offset == self._end and epoch == self._epoch:
            self._end += 1
        else:
            self._gather()
            self._first, self._end, self._epoch = offset, offset + 1, epoch
        return True

    def take_fresh(self) -> list[tuple[Offset, Offset, int]]:
        """Take the acks to send now, each range with its epoch; they stay done until stored."""
        if not (self.held or self.revoked):
            return []
        self._gather()
        again, self._again = self._again, []
        fresh, self._fresh = self._fresh, []
        for first, end in fresh:
            self.done.add(first, end)
        return [_named(*marks) for marks in (*again, *fresh)]

    @property
    def has_unconfirmed(self) -> bool:
        """Whether acks were sent to the broker that are not known to be stored."""
        return (self.held or self.revoked) and len(self.done) > 0

    @property
    def unstored(self) -> bool:
        """Whether some ack is not known to be stored, and this was not reported to the program."""
        if not (self.held or self.revoked):
            return self.lost_acks
        return self._voided or bool(self._fresh) or self._first != _NONE or len(self.done) > 0

    @property
    def stale(self) -> bool:
        """Whether no broker receives some acks: their messages go to the queue's next holder."""
        return self.lost_acks or self._voided

    def stale_reported(self) -> None:
        """Note that the loss of acks was reported to the program."""
        self.lost_acks = self._voided = False

    def token_sent(self) -> None:
        """Remember which acks were sent before the token."""
        self.under_token = RangeSet(self.done) if self.held or self.revoked else None

    def token_answered(self) -> None:
        """Forget the acks that were sent before the token: they are stored."""
        stored, self.under_token = self.under_token, None
        if stored is None:
            return
        kept = RangeSet()
        for first, end in self.done:
            for gap_first, gap_end in stored.gaps(first, end):
                kept.add(gap_first, gap_end)
        self.done = kept

    def not_done(self, first: int, end: int, term: int, epoch: int) -> list[Range]:
        """Return the parts of a delivered range of one batch that the program has not done yet."""
        if term != self.term:
            return []
        begin, until = _mark(epoch, first), _mark(epoch, end)
        undone = self.done.gaps(begin, until) if len(self.done) else [(begin, until)]
        newest = (_mark(self._epoch, self._first), _mark(self._epoch, self._end))
        for acked in (*self._fresh, newest):  # not sent yet
            if acked[0] < until and begin < acked[1]:
                unsent = RangeSet([acked])
                undone = [gap for part in undone for gap in unsent.gaps(*part)]
        return [_named(*part)[:2] for part in undone]

    def came_again(self, first: int, end: int, epoch: int) -> bool:
        """Note a redelivered range of one batch: its acks must be sent again.

        Returns whether there are any.
        """
        at, until = _mark(epoch, first), _mark(epoch, end)
        found: list[Range] = []
        for gap in (*self.done.gaps(at, until), (until, until)):
            if at < gap[0]:
                found.append((at, gap[0]))
            at = gap[1]
        self._again += found
        return bool(found)

    def is_done(self, offset: int, term: int, epoch: int) -> bool:
        """Whether the program has done the message and its ack is not known to be stored."""
        return not self.not_done(offset, offset + 1, term, epoch)

    def _away(self) -> None:
        """Let go of the queue: acks not known to be stored wait until it comes back."""
        self._keep()
        self.held = self.revoked = False
        self.lost_acks |= len(self.done) > 0

    def _keep(self) -> None:
        """Keep every ack that is not stored, to be sent again: none is in flight any more."""
        self._gather()
        for first, end in self._fresh:
            self.done.add(first, end)
        self._fresh, self._again = [], []
        self.under_token = None  # a token that is under way was sent before they are sent again

    def _gather(self) -> None:
        if self._first != _NONE:
            self._fresh.append((_mark(self._epoch, self._first), _mark(self._epoch, self._end)))
            self._first = self._end = _NONE

    def _forget(self) -> None:
        self.term += 1
        self.done = RangeSet()
        self.under_token = None
        self.lost_acks = False
        self._fresh, self._again = [], []
        self._first = self._end = _NONE


def _named(begin: Offset, until: Offset) -> tuple[Offset, Offset, int]:
    """Return the offsets of a range of marks, and their epoch."""
    epoch, first = divmod(begin, _OFFSETS)
    return Offset(first), Offset(until - epoch * _OFFSETS), epoch


def lost_acks(trackers: list[AckTracker]) -> str:
    """Return the error message for a program whose acks could not be stored."""
    names = ", ".join(f"{t.group}/{t.queue}" for t in trackers)
    return (
        f"some acks for {names} are not stored, as the queues moved to other members, the "
        "session was lost, or an older seek counts again: their messages may come again"
    )
