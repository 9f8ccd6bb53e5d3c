"""What a consumer knows of its own progress in one queue of one group. No I/O.

Every ack is kept until the broker has said that it is stored (a commit token came back: L7),
wherever the queue goes meanwhile. What a lost session or a move to another member left unsaid, or
unheard, is said again when the queue is ours again, and what is delivered again although it is done
is acked and not shown to the program a second time. So a consumer that lives through a failover
sees few messages twice: those it had not acked. While the queue is not ours nobody hears of such
acks: the next commit says so (`stale`).

Only a seek makes old acks void: each assignment says since which seek the queue's progress counts.
Another one than before starts a new `term`; acks and copies of older terms are ignored. And what
was acked may have been lost, where the group's policy lets that be, and its offset given to another
message: one of a later epoch than any that was seen by then. So acks are said with that epoch, and
they count for no message of a later one (`arrived`).
"""

from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.words import Offset

_NONE = -1


class Track:
    """One (group, queue). `held` under `generation`, or known from before and not held now."""

    __slots__ = (
        "_again",
        "_end",
        "_first",
        "_fresh",
        "_kept",
        "_kept_epoch",
        "_newest",
        "_sought",
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
        self.done = RangeSet()  # acked, and not known to be stored
        self.under_token: RangeSet | None = None  # the part of `done` that a token was sent for
        self.lost_acks = False  # not ours, and some of `done` is not stored: to be told
        self._sought = 0  # the seek that the term began with
        self._newest = 0  # epoch of the newest batch that came
        self._kept = RangeSet()  # acked before it was assigned last
        self._kept_epoch = 0  # of the newest batch that they can be of
        self._again: list[Range] = []  # of them, to be said again
        self._fresh: list[Range] = []  # acked, not said to the broker
        self._first = self._end = _NONE  # the newest of them

    def assigned(self, generation: int, sought: int = 0) -> None:
        """It is ours from now on; what counts was acked since that seek.

        Where it begins does not matter: a broker counts what it was told, stored or not.
        """
        if sought != self._sought:
            self._sought = sought
            self._forget()
        if not self.held:
            self.paused = False
        self._keep()
        self.held, self.revoked, self.lost_acks = True, False, False
        self.ours = True
        self.generation = generation
        self._kept, self._kept_epoch = RangeSet(self.done), self._newest
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

    def ack(self, offset: int, term: int) -> bool:
        """One message is done; True if the broker should hear of it."""
        if term != self.term:
            return False
        if not self.held and not self.revoked:
            self.lost_acks = True
        if offset == self._end:
            self._end += 1
        else:
            self._gather()
            self._first, self._end = offset, offset + 1
        return True

    def arrived(self, first: int, end: int, epoch: int) -> None:
        """A range came, of a batch of that epoch: is it what was acked at these offsets?"""
        self._newest = max(self._newest, epoch)
        if not len(self._kept) or epoch <= self._kept_epoch:
            return
        lost = [cut for each in self._kept if (cut := _common(each, first, end))]
        for begin, until in lost:
            self.done = _without(self.done, begin, until)
            self._kept = _without(self._kept, begin, until)
            self._again = list(_without(RangeSet(self._again), begin, until))
            if self.under_token is not None:
                self.under_token = _without(self.under_token, begin, until)

    def take_fresh(self) -> list[tuple[Offset, Offset, int]]:
        """Acks to say now, and of which epoch they can be; kept as done until they are stored."""
        if not (self.held or self.revoked):
            return []
        self._gather()
        again, self._again = self._again, []
        fresh, self._fresh = self._fresh, []
        for first, end in fresh:
            self.done.add(first, end)
        said = [(first, end, self._kept_epoch) for first, end in again]
        return said + [(first, end, self._newest) for first, end in fresh]

    @property
    def said(self) -> bool:
        """Whether the broker was told of acks that are not known to be stored."""
        return (self.held or self.revoked) and len(self.done) > 0

    @property
    def unstored(self) -> bool:
        """Whether some ack is not known to be stored, and the program was not told so."""
        if not (self.held or self.revoked):
            return self.lost_acks
        return bool(self._fresh) or self._first != _NONE or len(self.done) > 0

    @property
    def stale(self) -> bool:
        """Whether nobody hears of some acks: their messages go to whoever holds the queue."""
        return self.lost_acks

    def told_stale(self) -> None:
        """The program knows."""
        self.lost_acks = False

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

    def not_done(self, first: int, end: int, term: int) -> list[Range]:
        """The parts of a delivered range that the program has not done yet."""
        if term != self.term:
            return []
        left = [(Offset(first), Offset(end))]
        if len(self.done):
            left = self.done.gaps(*left[0])
        for acked, acked_end in (*self._fresh, (self._first, self._end)):  # not said yet
            if acked < end and first < acked_end:
                said = RangeSet([(Offset(acked), Offset(acked_end))])
                left = [gap for part in left for gap in said.gaps(*part)]
        return left

    def is_done(self, offset: int, term: int) -> bool:
        """Whether the program has done it, as far as that is not stored yet."""
        return not self.not_done(offset, offset + 1, term)

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
            self._fresh.append((Offset(self._first), Offset(self._end)))
            self._first = self._end = _NONE

    def _forget(self) -> None:
        self.term += 1
        self.done = RangeSet()
        self.under_token = None
        self.lost_acks = False
        self._kept = RangeSet()
        self._fresh, self._again = [], []
        self._first = self._end = _NONE


def _common(one: Range, first: int, end: int) -> Range | None:
    begin, until = max(one[0], first), min(one[1], end)
    return (Offset(begin), Offset(until)) if begin < until else None


def _without(ranges: RangeSet, first: Offset, end: Offset) -> RangeSet:
    left = RangeSet()
    for begin, until in ranges:
        left.add(begin, min(until, first))
        left.add(max(begin, end), until)
    return left


def lost_acks(tracks: list[Track]) -> str:
    """What to tell a program whose acks could not be stored."""
    names = ", ".join(f"{t.group}/{t.queue}" for t in tracks)
    return f"{names} went to others, or the session was lost: some acks are not stored"
