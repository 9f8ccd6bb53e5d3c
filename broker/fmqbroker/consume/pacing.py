"""Pacing of small deliveries: sent at once while few are sent, gathered while many are.

A message costs the same whatever its size, and sixteen busy sessions would cause sixteen small
messages for each move of the commit end. So a session rests after a small message before it gets
more deliveries: the more sessions rest, the longer. A session that is not resting gets deliveries
at once; no rest follows a large message. Only deliveries wait, never other news. No I/O.
"""

import asyncio
from typing import Final

from fmqbroker.consume.session import Session

REST_S: Final = 0.001
"""Rest for each resting session, which caps the broker's small messages per second."""
LONGEST_S: Final = 0.02
SMALL_BYTES: Final = 64 * 1024
"""Delivery bytes from which on a message is worth its cost and no rest follows."""


class Pace:
    """The pacing of all sessions of a broker."""

    def __init__(self) -> None:
        self._resting = 0

    def sent(self, session: Session, size: int) -> None:
        """Note that a message with `size` bytes of deliveries is sent."""
        if size >= SMALL_BYTES:
            return
        self._resting += 1
        session.resting = True
        rest_s = min(self._resting * REST_S, LONGEST_S)
        asyncio.get_running_loop().call_later(rest_s, self._rested, session)

    def _rested(self, session: Session) -> None:
        self._resting -= 1
        session.resting = False
        if session.ready:
            session.stir()
