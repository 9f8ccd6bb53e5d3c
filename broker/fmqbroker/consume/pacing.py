"""How often small deliveries leave: at once while few are sent, gathered while many are.

A message costs the same whatever is in it, and sixteen busy sessions would send sixteen small ones
for each move of the commit end. So a session that was just sent a little rests before more of it
leaves: the longer, the more sessions rest. What comes to a session that is not resting leaves at
once; a large message is followed by no rest. Only deliveries wait, never other news. No I/O.
"""

import asyncio
from typing import Final

from fmqbroker.consume.group import Session

REST_S: Final = 0.001
"""For each session that rests: that many small messages a second leave the broker at most."""
LONGEST_S: Final = 0.02
SMALL_BYTES: Final = 64 * 1024
"""Of deliveries: a larger message is worth its cost."""


class Pace:
    """Of all sessions of a broker."""

    def __init__(self) -> None:
        self._resting = 0

    def sent(self, session: Session, size: int) -> None:
        """A message with deliveries of so many bytes leaves."""
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
