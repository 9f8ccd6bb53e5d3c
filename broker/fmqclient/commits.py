"""Commit tokens of one session: when to ask whether acks are stored, and who waits for the answer.

One token is under way at a time. It covers what was acked before it was sent; who asks later, or
whose acks had to be said again, waits for the next one. No I/O.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from fmqclient.track import Track, lost_acks
from fmqcore.errors import StaleAssignment
from fmqport.clock import Clock

TOKEN_EVERY_MS: Final = 500
"""So often a broker is asked by itself whether the acks so far are stored."""

_Waiters = list["asyncio.Future[None]"]


class Commits:
    """What one session has asked for, over all the streams that it has had."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._token = 0  # the newest sent
        self._answered = 0  # the newest answered
        self._sent_ms = 0  # when it was sent
        self._waiting: _Waiters = []  # for a token not sent yet
        self._under_way: dict[int, _Waiters] = {}

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for a token that was not sent yet."""
        return bool(self._waiting)

    def wait(self) -> "asyncio.Future[None]":
        """Ends when all acks so far are stored."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def wanted(self, tracks: Collection[Track], *, now: bool) -> bool:
        """Whether to send one: somebody waits (or `now`), or it is time and there is something."""
        if self._token != self._answered:
            return False
        if self._waiting or now:
            return True
        due_ms = self._sent_ms + TOKEN_EVERY_MS
        return self._clock.monotonic_ms() >= due_ms and any(t.said for t in tracks)

    def next(self, tracks: Collection[Track]) -> int:
        """The token to send now, after the acks said so far."""
        self._token += 1
        self._sent_ms = self._clock.monotonic_ms()
        for track in tracks:
            track.token_sent()
        if self._waiting:
            self._under_way[self._token] = self._waiting
            self._waiting = []
        return self._token

    def answered(self, token: int, tracks: Collection[Track]) -> None:
        """The broker has stored what was said before it."""
        self._answered = max(self._answered, token)
        for track in tracks:
            track.token_answered()
        waiters = [each for each in self._under_way.pop(token, []) if not each.done()]
        lost = [t for t in tracks if t.stale]
        if not (waiters and lost):
            for waiter in waiters:
                waiter.set_result(None)
            return
        waiters += [each for each in self._waiting if not each.done()]
        self._waiting = []
        for waiter in waiters:  # all who asked before any was told: those acks may be theirs
            waiter.set_exception(StaleAssignment(lost_acks(lost)))
        for track in lost:
            track.told_stale()

    def again(self) -> None:
        """Acks are said again: a token that is under way was sent before that."""
        for waiters in self._under_way.values():
            self._waiting += waiters
        self._under_way = {}

    def stream_lost(self) -> None:
        """No answer comes any more; who waits goes on waiting."""
        self.again()
        self._answered = self._token
