"""One consumer group in one queue: what was delivered, is done, and is promised to stay done. Pure.

A seek makes all of it void, and nobody outside knows the moment: what a member had in its buffer
comes still, and its acks count for nothing. So from a `Seeking` on nothing is known until a message
comes from where it went (`waiting`); if that cannot be told (a seek without an answer, or another
one meanwhile) nothing is known any more (`blurred`).
"""

from collections import defaultdict

from e2e.checks.facts import Confirmed, Progress
from e2e.events import Acked, Delivered, Nacked, Seeking, Sought


class Reading:
    """Feed it the events in their order."""

    def __init__(self, begin: int) -> None:
        self.delivered: dict[int, Delivered] = {}  # offset → the newest, since the last seek
        self.ever: set[int] = set()  # offsets delivered at all
        self.acked_ever: set[int] = set()
        self.skipped_to = 0  # a seek went forward up to there
        self.acked: dict[str, dict[int, float]] = defaultdict(
            dict
        )  # who → offset → when it said so
        self.nacked: set[int] = set()  # to come again
        self.confirmed: dict[int, Confirmed] = {}
        self.first = -1  # the lowest offset delivered since the last seek
        self.floor = -1  # everything from `first` to here is confirmed
        self.blurred = False
        self._begin = begin  # what lies below was deleted in the end
        self._waiting: int | None = None
        self._counted: set[tuple[str, int]] = set()  # acks that are not void

    @property
    def known(self) -> bool:
        """Whether anything can be said now."""
        return not self.blurred and self._waiting is None

    def take(self, event: Progress) -> None:
        """It happened."""
        match event:
            case Delivered():
                self._deliver(event)
            case Acked():
                self.acked_ever.add(event.offset)
                if self.known:
                    self.acked[event.who].setdefault(event.offset, event.at_ms)
                    self._counted.add((event.who, event.offset))
            case Nacked():
                self.nacked.add(event.offset)
                self.acked[event.who].pop(event.offset, None)
            case Confirmed():
                if self.known and (event.who, event.offset) in self._counted:
                    self._confirm(event)
            case Seeking():
                self._seek(event)
            case Sought():
                self.blurred |= bool(event.why)

    def _deliver(self, event: Delivered) -> None:
        offset = event.offset
        if self._waiting is not None and offset <= max(self._waiting, self._begin):
            self._waiting = None
        if self.known:
            self.delivered[offset] = event
            self.nacked.discard(offset)
            if self.first < 0 or offset < self.first:
                self.first = self.floor = offset
        self.ever.add(offset)

    def _confirm(self, event: Confirmed) -> None:
        self.confirmed.setdefault(event.offset, event)
        while self.floor in self.confirmed:
            self.floor += 1

    def _seek(self, event: Seeking) -> None:
        self.blurred |= self._waiting is not None or event.offset not in self.ever
        self.skipped_to = max(self.skipped_to, event.offset)
        self._waiting = event.offset
        self.delivered.clear()
        self.acked.clear()
        self.nacked.clear()
        self.confirmed.clear()
        self._counted.clear()
        self.first = self.floor = -1
