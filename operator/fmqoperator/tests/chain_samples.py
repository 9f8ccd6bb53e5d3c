"""Chains of an ordered topic over g1 and g2, as tests of the operator need them."""

from dataclasses import replace

from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.ordered.requests import create_chain
from fmqcore.ordered.subscriptions import add_subscription
from fmqcore.ordered.transitions import close
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqoperator.core.topics.chain_status import ChainSeen

G1, G2 = GroupName("g1"), GroupName("g2")
WHOLE = GroupView(reachable=True, takes_writes=True, members=2, serves_reads=True)
SENDER = "copier-0000000001"


def chain(*groups: GroupName, topic: str = "orders", queues: int = 1) -> Chain:
    """Return a chain with an ended segment in each group, and the last one open."""
    made = create_chain(
        topic,
        queues,
        (ChainGroup(G1), ChainGroup(G2)),
        {G1: 2, G2: 2},
        topic_id=TopicId(7),
    )
    made = add_subscription(made, "app", latest=False)
    for group in groups:
        made = opened(ended(made), group)
    return made


def opened(before: Chain, group: GroupName) -> Chain:
    """Return the chain with another open segment."""
    ends = [s.end for s in before.segments if s.group == group and s.end is not None]
    start = ends[-1] if ends else (0,) * before.queues
    last = before.last
    first = (1,) * before.queues
    if last is not None and last.last_sequence is not None:
        first = tuple(n + 1 for n in last.last_sequence)
    elif last is not None:
        first = last.first_sequence
    segment = Segment(before.next_number, group, 1, first, start, opened_ms=1_000)
    segments = (*before.segments, segment)
    return replace(before, segments=segments, sender=Sender(SENDER, 1), closing=None)


def ended(before: Chain) -> Chain:
    """Return the chain with ten messages in each queue of the last segment, which has ended."""
    last = before.last
    if last is None:
        return before
    end = tuple(start + 10 for start in last.start)
    closed = before if before.closing is not None else close(before, "planned")
    return replace(closed, segments=(*before.segments[:-1], replace(last, end=end)))


def unknown(before: Chain) -> Chain:
    """Return the chain with its last segment closed, whose end no broker can give."""
    last = before.last
    assert last is not None
    closed = close(before, "g1 does not answer")
    lost = replace(last, end_unknown=True, ended_ms=2_000)
    return replace(closed, segments=(*before.segments[:-1], lost))


def switched(before: Chain, segment: int, cause: str, *, goes_on: bool) -> Chain:
    """Return the chain after an OrderedSwitch, and after what follows if another group goes on."""
    last = before.last
    if last is None or last.number != segment or before.closing is not None:
        return before
    if not goes_on:
        return close(before, cause)
    return opened(ended(before), G2 if last.group == G1 else G1)


def seen(made: Chain, *line: str, **views: GroupView) -> ChainSeen:
    """Return a look at the chain; groups are whole unless given."""
    given = {G1: WHOLE, G2: WHOLE} | {GroupName(name): view for name, view in views.items()}
    return ChainSeen(made, given, line)
