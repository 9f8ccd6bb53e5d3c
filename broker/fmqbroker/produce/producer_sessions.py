"""The open sessions of each producer on this broker (P7, ADR 0040).

A producer numbers its sessions (`producer_epoch`), and the streams over which it opens each of them
(`attempt`). Once one is open, no batch of an older one is taken, even if its stream is still open:
the producer gave it up, and its batches were sent before. The journal's table of producers also
ensures this for sessions while it knows the producer, but only after the first batch of the new
session in that queue, and not for `ONE_WAY`.

Write permission and sequence checks are made elsewhere. Nothing is written to disk.
"""

from typing import Protocol


class Numbered(Protocol):
    """The attributes of a session that are needed here."""

    producer_id: int  # 0: of no producer
    producer_epoch: int
    attempt: int  # rising with each opening in one `producer_epoch`; 0: not numbered
    superseded: bool  # its producer has opened a later one; for good


class Sessions:
    """The open sessions of all producers."""

    def __init__(self) -> None:
        self._of: dict[int, set[Numbered]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def opened(self, session: Numbered) -> None:
        """Add a session; mark all but its producer's newest ones as superseded."""
        if not session.producer_id:
            return
        sessions = self._of.setdefault(session.producer_id, set())
        sessions.add(session)
        newest = max(map(_number, sessions))
        for other in sessions:
            other.superseded = other.superseded or _number(other) < newest

    def closed(self, session: Numbered) -> None:
        """Remove a session whose stream has ended."""
        sessions = self._of.get(session.producer_id, set())
        sessions.discard(session)
        if not sessions:
            self._of.pop(session.producer_id, None)


def _number(session: Numbered) -> tuple[int, int]:
    return session.producer_epoch, session.attempt
