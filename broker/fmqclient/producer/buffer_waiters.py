"""Who hands in a record and finds no room waits, and so do all who come later: none is passed (L9).

Not the room itself: what is to be done raises `Overloaded` while there is none. Nothing on disk.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from fmqcore.errors import Overloaded

T = TypeVar("T")


class Turns(Generic[T]):
    """Calls in the order in which they came. `look` whenever there may be room."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[T], Callable[[], T]]] = deque()
        self._looking = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> "list[asyncio.Future[T]]":
        """Of those who wait now: each ends with its turn, or with who leaves."""
        return [turn for turn, _ in self._waiting]

    async def take(self, call: Callable[[], T]) -> T:
        """Call it once there is room and all who came before have had theirs.

        Raises what it raises but `Overloaded`. Who is cancelled while it waits is passed over.
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
            self.look()  # those behind it may fit
            raise

    def look(self) -> None:
        """Soon, outside of whatever made room, as many are called as there is room for."""
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._looking = False
        while self._waiting:
            turn, call = self._waiting[0]
            if not turn.done():
                try:
                    turn.set_result(call())
                except Overloaded:
                    return
                except Exception as error:  # noqa: BLE001 - whose it is is told, whatever it is
                    turn.set_exception(error)
            self._waiting.popleft()
