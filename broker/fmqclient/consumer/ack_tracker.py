"""What a consumer knows of its own progress in one queue of one group. No I/O.

Every ack is kept until the broker has said that it is stored (a commit token came back: L7),
wherever the queue goes meanwhile. What a lost session or a move to another member left unsaid, or
unheard, is said again when the queue is ours again, and what is delivered again although it is done
is acked and not shown to the program a second time. So a consumer that lives through a failover
sees few messages twice: those it had not acked. While the queue is not ours nobody hears of such
acks: the next commit says so (`stale`).

Only a seek makes old acks void: each assignment says since which seek the queue's progress counts.
Another one than before starts a new `term`; acks and copies of older terms are ignored. A seek that
we knew may come back with a broker, after a reader that had not heard of it: all that is kept was
acked after it, and stays. One that we did not know, older than our last reader's term, makes void
what may have been acked after it: the next commit says so, too.

What was acked may have been lost, where the group's policy lets that be, and its offset given to
another message, of a later epoch. So a message is known by its epoch and its offset, here (`_mark`)
and in what the broker is told: an ack counts for no other message that has its offset.
"""

from typing import Final

from fmqcore.batch.offset_entry import version_epoch
from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.ids import Offset

_NONE: Final = -1
_OFFSETS: Final = 1 << 64


def _mark(epoch: int, offset: int) -> Offset:
    """A message's name as one number; in one epoch they rise with the offsets."""
    return Offset(epoch * _OFFSETS + offset)


class Track:
    """One (group, queue). `held` under `generation`, or known from before and not held now."""

    __slots__ = (
        "_again",
        "_end",
        "_epoch",
        "_first",
        "_fresh",
        "_known",
        "_read_epoch",
        "_sought",
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
        self.ours = False  # held when we last heard of it: asked for again after a loss
        self.renewed = False  # it was lost once: what comes may be a copy of what is done
        self.generation = 0
        self.term = 0
        self.done = RangeSet()  # marks: acked, and not known to be stored
        self.under_token: RangeSet | None = None  # the part of `done` that a token was sent for
        self.lost_acks = False  # not ours, and some of `done` is not stored: to be told
        self._sought = 0  # the seek since which our reader's progress counts
        self._known = 0  # the newest seek that we were ever told of
        self._read_epoch = 0  # in which our reader said so
        self._voided = False  # a seek made acks void that may be younger: to be told
        self._again: list[Range] = []  # marks, to be said again
        self._fresh: list[Range] = []  # marks: acked, not said to the broker
        self._first = self._end = _NONE  # the newest of them: offsets of one epoch
        self._epoch = 0

    def assigned(self, generation: int, sought: int = 0, read_epoch: int = 0) -> None:
        """It is ours from now on; what counts was acked since that seek.

        Where it begins does not matter: a broker counts what it was told, stored or not.
        `read_epoch`: the term of who says so.
        """
        if sought > self._sought:
            back = version_epoch(sought) < self._read_epoch  # made before our reader's term
            if not back or sought > self._known:
                self._voided |= back and self.unstored
                self._forget()
        self._sought = sought  # an older one: who reads now has not heard of the newer
        self._known = max(self._known, sought)
        self._read_epoch = read_epoch
        if not self.held:
            self.paused = False
        self._keep()
        self.held, self.revoked, self.lost_acks = True, False, False
        self.ours = True
        self.generation = generation
        self._again = list(self.done)

    def taken(self) -> None:
        """Revoked: acks of it count while it drains."""
        self.held, self.revoked = False, True
        self.ours = False
        self.renewed = True

    def came_too_late(self, generation: int) -> None:
        """The broker had given the queue away before it heard of acks under that generation."""
        if self.revoked and self.generation == generation:
            self._away()

    def session_lost(self) -> None:
        """Nobody listens; what is done stays known."""
        self._away()
        self.renewed = True

    def ack(self, offset: int, term: int, epoch: int) -> bool:
        """One message is done; True if the broker should hear of it. `epoch`: its batch's."""
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
        """Acks to say now, each range with its epoch; kept as done until they are stored."""
        if not (self.held or self.revoked):
            return []
        self._gather()
        again, self._again = self._again, []
        fresh, self._fresh = self._fresh, []
        for first, end in fresh:
            self.done.add(first, end)
        return [_named(*each) for each in (*again, *fresh)]

    @property
    def said(self) -> bool:
        """Whether the broker was told of acks that are not known to be stored."""
        return (self.held or self.revoked) and len(self.done) > 0

    @property
    def unstored(self) -> bool:
        """Whether some ack is not known to be stored, and the program was not told so."""
        if not (self.held or self.revoked):
            return self.lost_acks
        return self._voided or bool(self._fresh) or self._first != _NONE or len(self.done) > 0

    @property
    def stale(self) -> bool:
        """Whether nobody hears of some acks: their messages go to whoever holds the queue."""
        return self.lost_acks or self._voided

    def told_stale(self) -> None:
        """The program knows."""
        self.lost_acks = self._voided = False

    def token_sent(self) -> None:
        """All that was said so far is asked for."""
        self.under_token = RangeSet(self.done) if self.held or self.revoked else None

    def token_answered(self) -> None:
        """What was said before the token is stored."""
        stored, self.under_token = self.under_token, None
        if stored is None:
            return
        kept = RangeSet()
        for first, end in self.done:
            for gap_first, gap_end in stored.gaps(first, end):
                kept.add(gap_first, gap_end)
        self.done = kept

    def not_done(self, first: int, end: int, term: int, epoch: int) -> list[Range]:
        """The parts of a delivered range of one batch that the program has not done yet."""
        if term != self.term:
            return []
        begin, until = _mark(epoch, first), _mark(epoch, end)
        left = self.done.gaps(begin, until) if len(self.done) else [(begin, until)]
        newest = (_mark(self._epoch, self._first), _mark(self._epoch, self._end))
        for acked in (*self._fresh, newest):  # not said yet
            if acked[0] < until and begin < acked[1]:
                said = RangeSet([acked])
                left = [gap for part in left for gap in said.gaps(*part)]
        return [_named(*part)[:2] for part in left]

    def came_again(self, first: int, end: int, epoch: int) -> bool:
        """A delivered range of one batch is a copy: what was said of it is to be said again.

        True if there is any.
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
        """Whether the program has done it, as far as that is not stored yet."""
        return not self.not_done(offset, offset + 1, term, epoch)

    def _away(self) -> None:
        """It is not ours: what is not known to be stored waits until it comes back."""
        self._keep()
        self.held = self.revoked = False
        self.lost_acks |= len(self.done) > 0

    def _keep(self) -> None:
        """Nothing is under way: whatever was acked and is not stored is to be said again."""
        self._gather()
        for first, end in self._fresh:
            self.done.add(first, end)
        self._fresh, self._again = [], []
        self.under_token = None  # a token that is under way was sent before they are said again

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
    """The offsets of a range of marks, and their epoch."""
    epoch, first = divmod(begin, _OFFSETS)
    return Offset(first), Offset(until - epoch * _OFFSETS), epoch


def lost_acks(tracks: list[Track]) -> str:
    """What to tell a program whose acks could not be stored."""
    names = ", ".join(f"{t.group}/{t.queue}" for t in tracks)
    return (
        f"{names} went to others, the session was lost, or an older seek counts again: "
        "some acks are not stored"
    )
