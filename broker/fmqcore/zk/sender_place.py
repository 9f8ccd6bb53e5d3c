"""A sender's place in the line of an ordered topic: `ordered/<t>/senders/<place>`.

The node is empty until sends wait although the sender has reported. Its broker then notes the
report here: each broker gives people the same reason, and one that reaches more of the groups may
take the step. The report counts for that sender and that segment alone.
"""

import json
from typing import NamedTuple

from fmqcore.ids import Offset
from fmqcore.zk.chain import PerQueue
from fmqcore.zk.codec import Decoding, dump_json


class PlaceReport(NamedTuple):
    """What the sender reported at the closing of a segment."""

    segment: int
    unacked: PerQueue  # the lowest sequence without an ack


def place_report_to_json(report: PlaceReport) -> bytes:
    """Encode a place with a report."""
    return dump_json({"segment": report.segment, "unacked": list(report.unacked)})


def place_report_from_json(raw: bytes, queues: int) -> PlaceReport | None:
    """Decode a place of a topic with so many queues; None: it has no report. Raises `Malformed`."""
    if not raw:
        return None
    with Decoding("place of a sender"):
        data = json.loads(raw)
        unacked = tuple(Offset(int(sequence)) for sequence in data["unacked"])
        if len(unacked) != queues:
            raise ValueError(f"unacked: {len(unacked)} of {queues} queues")
        return PlaceReport(int(data["segment"]), unacked)
