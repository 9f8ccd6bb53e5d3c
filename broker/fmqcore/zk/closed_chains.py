"""The last closing of a group's segments: `groups/<g>/chains`.

Only the node's version counts. Every closing raises it in the transaction that closes the segment,
so a master's lease needs to look at one node, whatever the number of ordered topics.
"""

import json
from dataclasses import dataclass

from fmqcore.zk.codec import Decoding, Extra, dump_json, read_extra, read_text, with_extra


@dataclass(frozen=True, slots=True)
class LastClosing:
    """What was closed last in the group, for people."""

    topic: str = ""
    segment: int = 0
    reason: str = ""
    extra: Extra = ()


_KEYS = frozenset(("topic", "segment", "reason"))


def closing_to_json(closing: LastClosing) -> bytes:
    """Encode a group's last closing."""
    known = {"topic": closing.topic, "segment": closing.segment, "reason": closing.reason}
    return dump_json(with_extra(known, closing.extra))


def closing_from_json(raw: bytes) -> LastClosing:
    """Decode a group's last closing; raise `Malformed` naming the field."""
    if not raw:
        return LastClosing()
    with Decoding("last closing of a group's segments"):
        data = json.loads(raw)
        return LastClosing(
            read_text(data.get("topic", "")),
            int(data.get("segment", 0)),
            read_text(data.get("reason", "")),
            read_extra(data, _KEYS),
        )
