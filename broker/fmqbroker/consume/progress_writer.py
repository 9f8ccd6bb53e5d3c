"""Stores what consumer groups have acked, and calls those who wait until it is stored.

Order of effects: a change is marked dirty, stored by `OffsetStore`, and only then are its waiters
called.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.offsets.write_round import Round
from fmqbroker.consume.unstored import Entries, Unstored
from fmqbroker.runtime.notifier import Signal
from fmqcore.errors import FmqError, NoPermission
from fmqport.clock import Clock

_RETRY_S: Final = 1.0

_log = structlog.get_logger()
Waiter = Callable[[FmqError | None], None]


class ProgressWriter:
    """Writes the unstored progress of all groups of one broker."""

    def __init__(
        self,
        clock: Clock,
        offsets: OffsetStore,
        unstored: Unstored,
        drop: Callable[[FmqError], None],
    ) -> None:
        """`drop` ends all groups: another broker reads now."""
        self._clock = clock
        self._offsets = offsets
        self._unstored = unstored
        self._drop = drop
        self._waiters: list[Waiter] = []
        self._storing = False
        self.wanted = Signal()  # something is unstored, or a caller waits until it is stored

    def when_stored(self, waiter: Waiter) -> None:
        """Call `waiter` once everything acked so far is stored, or with the error if it fails."""
        self._waiters.append(waiter)
        self.wanted.notify()

    async def stored(self) -> None:
        """Wait until everything that is dirty now is stored; raise the error if it fails."""
        if not (self._unstored or self._storing or self._waiters):
            return
        done: asyncio.Future[FmqError | None] = asyncio.Future()

        def finish(error: FmqError | None) -> None:
            if not done.done():
                done.set_result(error)

        self.when_stored(finish)
        try:
            error = await done
        finally:  # cancelled: whoever gives up and asks again leaves nothing here
            if finish in self._waiters:
                self._waiters.remove(finish)
        if error is not None:
            raise error

    async def run(self) -> None:
        """Store progress when there is some, until cancelled."""
        while True:
            while not (self._waiters or self._unstored):
                await self.wanted.wait()
            entries: Entries = {}
            waiters: list[Waiter] = []
            error: FmqError | None = None
            self._storing = True
            try:
                await self._put(entries, waiters)
            except NoPermission as refused:
                error = refused  # whoever reads now has what was stored
                waiters += self._waiters  # what they wait for goes as well, if it came since
                self._waiters = []
                self._drop(refused)
                self._unstored.clear_gone()
            except FmqError as failed:
                _log.error("offsets_not_stored", error=str(failed), entries=len(entries))
                self._unstored.give_back(entries)
                self._waiters = waiters + self._waiters
                await self._clock.sleep(_RETRY_S)
                continue
            self._storing = False
            for waiter in waiters:
                waiter(error)

    async def _put(self, entries: Entries, waiters: list[Waiter]) -> None:
        """Store everything unstored; add it to `entries`, and those who wait to `waiters`.

        A piece is taken and accepted by the store in one turn, so that each entry is known to one
        of the two at any time. The waiters are taken in the turn of the last piece: what they wait
        for is in the pieces, or was stored before.
        """
        rounds: list[Round] = []
        try:
            while True:
                piece = self._unstored.take()
                entries |= piece
                rounds.append(self._offsets.accept(piece))
                if not self._unstored:
                    break
                await asyncio.sleep(0)
        finally:
            waiters += self._waiters
            self._waiters = []
        for written in rounds:
            await written.wait()
