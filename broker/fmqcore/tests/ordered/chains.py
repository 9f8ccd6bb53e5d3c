"""Chains for the tests of single rules."""

from dataclasses import replace
from typing import Any

from fmqcore.ids import BrokerId, GroupName
from fmqcore.ordered.evidence import Decision, Duty, Evidence, GroupView, Params
from fmqcore.ordered.machine import decide
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender

G1, G2, G3 = GroupName("g1"), GroupName("g2"), GroupName("g3")
EMPTY = Chain("changes", 1, (ChainGroup(G1), ChainGroup(G2), ChainGroup(G3, 2)))
OPEN = replace(
    EMPTY,
    segments=(Segment(1, G1, 1, (1,), (10,)),),
    sender=Sender("copier-1", 1),
    heads=(("app", (1,)),),
)
CLOSING = replace(OPEN, closing="g1 lacks g1-1", closing_class="trouble")
ENDED = replace(CLOSING, segments=(replace(OPEN.segments[0], end=(14,)),))
UNKNOWN = replace(CLOSING, segments=(replace(OPEN.segments[0], end_unknown=True),))
NEXT = replace(
    UNKNOWN,
    segments=(*UNKNOWN.segments, Segment(2, G2, 1, (3,), (0,))),
    closing=None,
    closing_class="",
)
"""Segment 1 has no end; 3 was the sender's lowest record without an ack."""
DONE = replace(NEXT, segments=(ENDED.segments[0], NEXT.segments[1]))
WHOLE = GroupView(reachable=True, takes_writes=True, members=2, ends=(10,))
ALL_WHOLE = {G1: WHOLE, G2: WHOLE, G3: WHOLE}
LACKING = replace(WHOLE, missing=(BrokerId("g1-1"),), ends=None)
PARAMS = Params(trouble_ms=400, margin_ms=500)
NOW = 100_000


def made(duty: Duty, chain: Chain, **evidence: Any) -> Decision:
    """Return the decision on this evidence."""
    return decide(duty, chain, Evidence(**evidence), NOW, PARAMS)
