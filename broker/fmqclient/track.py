"""What a consumer knows of its own progress in one queue of one group. No I/O.

Every ack is kept until the broker has said that it is stored (a commit token came back: L7). When a
session is lost before that, the acks are not: on the new session they are said again, and what is
delivered again although it is done is acked and not shown to the program a second time. So a
consumer that lives through a failover sees few messages twice: those it had not acked.

A seek makes old acks void: an assignment of a queue that is held already, or one that begins below
what is known to be stored, starts a new `term`; acks and copies of older terms are ignored.
"""

from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.words import Offset

_NONE = -1


class Track:
    """One (group, queue). `held` under `generation`, or known from before and not held now."""

    __slots__ = (
        "_end",
        "_first",
        "_fresh",
        "done",
        "floor",
        "generation",
        "gone_acks",
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
        self.renewed = False  # a session was lost: what comes may be a copy of what is done
        self.generation = 0
        self.term = 0
        self.floor = Offset(0)  # everything below is stored as done, as far as we know
        self.done = RangeSet()  # acked, and not known to be stored
        self.under_token: RangeSet | None = None  # the part of `done` that a token was sent for
        self.lost_acks = False  # a session was lost with acks that were not stored
        self.gone_acks = False  # and they will not be said again: the queue had moved away
        self._fresh: list[Range] = []  # acked, not said to the broker
        self._first = self._end = _NONE  # the newest of them

    def assigned(self, generation: int, begins_at: Offset) -> None:
        """It is ours from now on, from that offset."""
        if self.revoked and (self._fresh or self._first != _NONE):
            self.gone_acks = True  # not even said before the queue moved away
        if self.held or self.revoked or begins_at < self.floor:
            self._forget()
        if not self.held:
            self.paused = False
        self._gather()
        for first, end in self._fresh:  # acked while no session was open
            self.done.add(first, end)
        self.held, self.revoked, self.lost_acks = True, False, False
        self.ours = True
        self.generation = generation
        self.floor = begins_at
        self.done.remove_below(begins_at)
        self.under_token = None  # a token that is under way was sent before they are
        self._fresh = list(self.done)  # said again
        self._first = self._end = _NONE

    def taken(self) -> None:
        """Revoked: acks of it count while it drains."""
        self.held, self.revoked = False, True
        self.ours = False

    def came_too_late(self, generation: int) -> None:
        """The broker had given the queue away before it heard of acks under that generation."""
        self.gone_acks = True
        if self.revoked and self.generation == generation:
            self._forget()

    def session_lost(self) -> None:
        """Nobody listens; what is done stays known."""
        self._gather()
        for first, end in self._fresh:
            self.done.add(first, end)
        self._fresh = []
        self.under_token = None
        self.lost_acks = len(self.done) > 0
        if self.revoked:
            self.gone_acks |= self.lost_acks
            self._forget()
        self.held = self.revoked = False
        self.renewed = True

    def ack(self, offset: int, term: int) -> bool:
        """One message is done; True if the broker should hear of it."""
        if term != self.term:
            return False
        if offset == self._end:
            self._end += 1
        else:
            self._gather()
            self._first, self._end = offset, offset + 1
        return True

    def take_fresh(self) -> list[Range]:
        """Acks to say now; kept as done until they are stored."""
        if not (self.held or self.revoked):
            return []
        self._gather()
        fresh, self._fresh = self._fresh, []
        for first, end in fresh:
            self.done.add(first, end)
        return fresh

    @property
    def unstored(self) -> bool:
        """Whether some ack is not known to be stored."""
        return bool(self._fresh) or self._first != _NONE or len(self.done) > 0

    @property
    def stale(self) -> bool:
        """Whether acks were lost: their messages go to whoever holds the queue."""
        return self.gone_acks or (self.lost_acks and not self.held)

    def told_stale(self) -> None:
        """The program knows."""
        self.lost_acks = self.gone_acks = False

    def token_sent(self) -> None:
        """All that was said so far is asked for."""
        self.under_token = RangeSet(self.done)

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
        for first, end in stored:
            if first <= self.floor < end:
                self.floor = end

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

    def _gather(self) -> None:
        if self._first != _NONE:
            self._fresh.append((Offset(self._first), Offset(self._end)))
            self._first = self._end = _NONE

    def _forget(self) -> None:
        self.term += 1
        self.done = RangeSet()
        self.under_token = None
        self._fresh = []
        self._first = self._end = _NONE


def lost_acks(tracks: list[Track]) -> str:
    """What to tell a program whose acks could not be stored."""
    names = ", ".join(f"{t.group}/{t.queue}" for t in tracks)
    return f"the session was lost and {names} went to others: some acks are not stored"
