"""The sessions of each producer that are open here (P7, ADR 0040).

A producer numbers its sessions (`producer_epoch`). Once one is open, nothing of an older one whose
stream still stands is taken: it was given up, and what it brings was sent before. The journal's
table of producers sees to that, too, for as long as it knows the producer, but not before the first
batch of the new session in that queue, and not for `ONE_WAY`, which it does not know.

What it is not: who may write, and whether a sequence fits. Leaves nothing on disk.
"""

from typing import Protocol


class Numbered(Protocol):
    """What is needed of a session."""

    producer_id: int  # 0: of nobody
    producer_epoch: int
    superseded: bool  # its producer has opened a later one; for good


class Sessions:
    """Of all producers, those that are open."""

    def __init__(self) -> None:
        self._of: dict[int, set[Numbered]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def opened(self, session: Numbered) -> None:
        """One more: it, or those of its producer that are older, are over."""
        if not session.producer_id:
            return
        others = self._of.setdefault(session.producer_id, set())
        others.add(session)
        newest = max(each.producer_epoch for each in others)
        for each in others:
            each.superseded = each.superseded or each.producer_epoch < newest

    def closed(self, session: Numbered) -> None:
        """Its stream has ended."""
        others = self._of.get(session.producer_id, set())
        others.discard(session)
        if not others:
            self._of.pop(session.producer_id, None)
