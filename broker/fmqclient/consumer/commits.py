"""Commits: commit tokens of one session, and a consumer's wait for all sessions.

A token asks a broker whether acks are stored. One token is in flight at a time. It covers the acks
made before it was sent; a caller that asks later, or whose acks had to be sent again, waits for the
next one. No I/O.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from fmqclient.consumer.ack_tracker import AckTracker, lost_acks
from fmqcore.errors import FmqError, StaleAssignment, Unavailable
from fmqport.clock import Clock

TOKEN_EVERY_MS: Final = 500
"""How often a broker is asked, without a commit, whether the acks so far are stored."""

_NOT_SAFE: Final = "its broker has not confirmed them (is a slave away?)"

_Waiters = list["asyncio.Future[None]"]


class Commits:
    """The commit tokens of one session, over all the streams that it has had."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._token = 0  # the newest sent
        self._answered = 0  # the newest answered
        self._sent_ms = 0  # when it was sent
        self._waiting: _Waiters = []  # for a token not sent yet
        self._under_way: dict[int, _Waiters] = {}
        self._over: BaseException | None = None

    @property
    def waiting(self) -> bool:
        """Whether a caller waits for a token that was not sent yet."""
        return bool(self._waiting)

    def wait(self) -> "asyncio.Future[None]":
        """Return a future that ends when all acks so far are stored."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._over is not None:
            waiter.set_exception(self._over)
        self._waiting.append(waiter)
        return waiter

    def give_up(self, error: BaseException) -> None:
        """Fail every waiting caller: no answer will come any more."""
        self._over = error
        self.again()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiting = []

    def wanted(self, trackers: Collection[AckTracker], *, now: bool) -> bool:
        """Whether to send a token: a caller waits (or `now`), or it is time and acks were sent."""
        if self._token != self._answered:
            return False
        if self._waiting or now:
            return True
        due_ms = self._sent_ms + TOKEN_EVERY_MS
        return self._clock.monotonic_ms() >= due_ms and any(t.has_unconfirmed for t in trackers)

    def next(self, trackers: Collection[AckTracker]) -> int:
        """Return the token to send now, after the acks sent so far."""
        self._token += 1
        self._sent_ms = self._clock.monotonic_ms()
        for tracker in trackers:
            tracker.token_sent()
        if self._waiting:
            self._under_way[self._token] = self._waiting
            self._waiting = []
        return self._token

    def answered(self, token: int, trackers: Collection[AckTracker]) -> None:
        """Note that the broker has stored what was sent before the token."""
        self._answered = max(self._answered, token)
        for tracker in trackers:
            tracker.token_answered()
        waiters = [w for w in self._under_way.pop(token, []) if not w.done()]
        lost = [t for t in trackers if t.stale]
        if not (waiters and lost):
            for waiter in waiters:
                waiter.set_result(None)
            return
        waiters += [w for w in self._waiting if not w.done()]
        self._waiting = []
        for waiter in waiters:  # every earlier caller: the lost acks may be theirs
            waiter.set_exception(StaleAssignment(lost_acks(lost)))
        for tracker in lost:
            tracker.stale_reported()

    def again(self) -> None:
        """Wait for a later token, because acks are sent again after the one in flight."""
        for waiters in self._under_way.values():
            self._waiting += waiters
        self._under_way = {}

    def stream_lost(self) -> None:
        """Forget the token in flight on a lost stream; callers go on waiting."""
        self.again()
        self._answered = self._token


class Stores(Protocol):
    """What `Committing` needs of a session."""

    reason: str  # it is not open, for people; empty if it is

    @property
    def group(self) -> str:
        """The broker group of the session."""
        ...

    @property
    def unstored(self) -> bool:
        """Whether some ack is not known to be stored."""
        ...

    def commit(self) -> "asyncio.Future[None]":
        """Return a future that ends when all acks so far are stored."""
        ...


class Leaves(Stores, Protocol):
    """A session that can end."""

    open: bool
    left: asyncio.Event

    def leave(self) -> None:
        """Send the last acks and give the queues back; then `left` is set."""
        ...


L = TypeVar("L", bound=Leaves)


class Committing:
    """`commit()` of one consumer. A loss of acks is reported once, to the next waiting caller."""

    def __init__(self) -> None:
        self._untold: BaseException | None = None  # whoever was to hear it was cancelled

    async def all_of(self, sessions: Collection[Stores], timeout_s: float | None) -> None:
        """See `Consumer.commit`."""
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold
        waiters = [s.commit() for s in sessions if s.unstored]
        try:
            async with asyncio.timeout(timeout_s):
                for waiter in waiters:
                    await waiter
        except TimeoutError:
            if (lost := _failed(waiters)) is not None:
                raise lost from None
            late = [s for s in sessions if s.unstored]
            reason = "; ".join(f"{s.group}: {s.reason or _NOT_SAFE}" for s in late)
            raise Unavailable(f"acks not stored within {timeout_s} s; {reason}") from None
        except asyncio.CancelledError:
            self._untold = _failed(waiters)
            raise
        finally:
            for waiter in waiters:
                waiter.cancel()  # the others' errors count as looked at, too


async def all_leave(sessions: Collection[L], drop: Callable[[L], None]) -> None:
    """Return when all sessions have left. `drop` gives back what the program did not take.

    A session with acks and no broker to send them to waits for its next reader, and does not delay
    the other sessions.
    """
    away = [s for s in sessions if not s.open and s.unstored]
    for session in sessions:
        if session not in away:
            drop(session)
            session.leave()
    waiters = [s.commit() for s in away]
    try:
        for waiter in waiters:
            with suppress(FmqError):  # no caller is left to report it to
                await waiter
    finally:
        for waiter in waiters:
            waiter.cancel()
    for session in away:
        drop(session)
        session.leave()
    for session in sessions:
        if session.open:
            await session.left.wait()


def _failed(waiters: _Waiters) -> BaseException | None:
    done = (waiter.exception() for waiter in waiters if waiter.done() and not waiter.cancelled())
    return next(filter(None, done), None)
