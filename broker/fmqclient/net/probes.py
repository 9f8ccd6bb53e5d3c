"""Ask a silent broker whether it lives.

All parts of a client share the questions to one broker, and their answers: a thousand silent
streams cost as many calls as one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from fmqclient.net.loop_turns import LoopWatch
from fmqport.clock import Clock
from fmqport.transport import Connection, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import ROUTES

NO_TOPIC: Final = ""
"""Asked for by name, it leaves routes without topics; routes of no name have all of them."""
_TRIES: Final = 3
_VALID_MS: Final = 500
"""An answer of this age still shows that the broker lives."""


class _Question:
    __slots__ = ("answered", "started_ms")

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Probe:
    """The questions to one broker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: dict[float, _Question] = {}  # by timeout
        self._answered_ms: int | None = None

    async def require_alive(
        self, clock: Clock, watch: LoopWatch, heard_ms: Callable[[], int], timeout_s: float
    ) -> int:
        """Return when the broker last answered. Raises `TransportError` if it does not answer.

        It has `timeout_s` seconds. A try during which the program blocked the loop proves nothing,
        nor does one during which the caller heard the broker (`heard_ms`) after all.
        """
        tries_left = _TRIES
        while True:
            started_ms = clock.monotonic_ms()
            if self._answered_ms is not None and started_ms - self._answered_ms < _VALID_MS:
                return self._answered_ms
            question = self._open.get(timeout_s)
            try:
                if question is None:
                    await self._ask(clock, timeout_s)
                else:
                    started_ms = question.started_ms
                    if not await self._was_answered(question):
                        continue
            except TransportError:
                if (heard := heard_ms()) > started_ms:
                    return heard
                tries_left -= 1
                if not tries_left or not watch.blocked_since(started_ms):
                    raise
            else:
                return clock.monotonic_ms()

    async def _ask(self, clock: Clock, timeout_s: float) -> None:
        question = self._open[timeout_s] = _Question(clock.monotonic_ms())
        try:
            request = client_pb2.RouteRequest(topics=(NO_TOPIC,))
            await self._connection.call(ROUTES, request, timeout_s)
        except TransportError as error:
            question.answered.set_exception(error)
            question.answered.exception()  # it may have no other reader
            raise
        except BaseException:
            question.answered.cancel()
            raise
        finally:
            del self._open[timeout_s]
        self._answered_ms = clock.monotonic_ms()
        question.answered.set_result(None)

    @staticmethod
    async def _was_answered(question: _Question) -> bool:
        """Wait for the answer to another part's question; False if that part has ended."""
        await asyncio.wait([question.answered])
        if question.answered.cancelled():
            return False
        if (error := question.answered.exception()) is not None:
            raise TransportError(str(error)) from error
        return True
