"""One session's reports of hand-overs to the program, and the credit by count that follows.

The broker counts what the program got (`delivery_count`), and delivers at most `prefetch` messages
that the program did not get yet. No I/O.
"""

from fmqclient.consumer.message import DeliveredBatch
from fmqproto.v1 import client_pb2


class HandOvers:
    """Hand-overs and credit, gathered until the session's next message."""

    __slots__ = ("_credit", "_handed", "credit", "started")

    def __init__(self, prefetch: int) -> None:
        self.credit = max(1, prefetch * 4 // 5)
        """Messages of initial credit. The broker may exceed it by 1/4 rather than split a batch."""
        self._credit = 0
        self._handed: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by (queue, generation)
        self.started = False  # a batch was handed out: reported soon, not only at the next ack

    def note(self, batch: DeliveredBatch, first: int, end: int) -> None:
        """Note that the program got a range of a delivery."""
        self._handed.setdefault((batch.tracker.queue, batch.generation), []).append((first, end))

    def give_credit(self, records: int) -> None:
        """Return the credit of messages that wait no longer."""
        self._credit += records

    @property
    def due(self) -> bool:
        """Whether the credit to return is worth a separate message."""
        return self._credit * 4 >= self.credit

    @property
    def urgent(self) -> bool:
        """Whether the broker may soon have to wait for credit."""
        return self._credit * 2 >= self.credit

    def worth(self, *, quiet: bool) -> bool:
        """Whether the report is worth a separate message. `quiet`: none was just sent."""
        return self.due or (quiet and self.started and bool(self._handed))

    def fill(self, request: client_pb2.ConsumeRequest) -> None:
        """Add to a request what there is to report."""
        self.started = False
        if self.due:  # a little at a time would have the broker split batches
            request.credit_records, self._credit = self._credit, 0
        for (queue, generation), ranges in self._handed.items():
            for first, end in _joined(ranges):
                request.delivered.add(
                    queue_id=queue, generation=generation, first_offset=first, end_offset=end
                )
        self._handed = {}

    def reset(self) -> None:
        """Start again for a new stream, which has its own credit."""
        self._credit, self._handed, self.started = 0, {}, False


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join adjacent ranges: they were handed out in this order."""
    joined: list[tuple[int, int]] = []
    for first, end in ranges:
        if joined and joined[-1][1] == first:
            first = joined.pop()[0]
        joined.append((first, end))
    return joined
