"""FIFO queue of callers waiting for buffer space: none overtakes an earlier one (L9).

The space is not known here: a queued call raises `Overloaded` without it. Nothing on disk.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from fmqcore.errors import Overloaded

T = TypeVar("T")


class BufferWaiters(Generic[T]):
    """Queued calls, in the order in which they came. Call `admit_soon` when there may be space."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[T], Callable[[], T]]] = deque()
        self._admitting = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def flush(self, hurry: Callable[[], None]) -> None:
        """Wait until all callers who wait now had their turn; `hurry` what takes up the space."""
        for turn in [turn for turn, _ in self._waiting]:
            if not turn.done():
                hurry()
                await asyncio.wait([turn])
        hurry()

    async def take(self, call: Callable[[], T]) -> T:
        """Run `call` once there is space and all earlier callers had their turn; return its result.

        Raises what `call` raises except `Overloaded`. A caller cancelled while waiting is skipped.
        """
        if not self._waiting:
            try:
                return call()
            except Overloaded:
                pass
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, call))
        try:
            return await turn
        except asyncio.CancelledError:
            self.admit_soon()  # those behind it may fit
            raise

    def admit_soon(self) -> None:
        """Schedule the calls for which there is space, outside of the code that freed it."""
        if self._waiting and not self._admitting:
            self._admitting = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._admitting = False
        while self._waiting:
            turn, call = self._waiting[0]
            if not turn.done():
                try:
                    turn.set_result(call())
                except Overloaded:
                    return
                except Exception as error:  # noqa: BLE001 - any error goes to the caller whose record it is
                    turn.set_exception(error)
            self._waiting.popleft()
