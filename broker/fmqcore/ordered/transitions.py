"""The new chain of each step. Pure; the code that writes it compares the node's version.

Every step may be made twice: a repeated one finds another phase, or changes nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from fmqcore.ids import GroupName
from fmqcore.ordered.chain_ends import chain_end, highest, known_end
from fmqcore.ordered.context import Case, given_end, last_segment, target_of
from fmqcore.ordered.delivery import due_heads
from fmqcore.ordered.eligibility import eligible
from fmqcore.ordered.evidence import CloseReason
from fmqcore.ordered.lowering import with_segment
from fmqcore.zk.chain import (
    Chain,
    Floor,
    PerQueue,
    PerSubscription,
    RecordPlace,
    Segment,
    Sender,
    sorted_pairs,
)


def close(chain: Chain, sentence: str, reason: CloseReason = CloseReason.REQUEST) -> Chain:
    """The last segment takes no more, and no lease is renewed for it from here on."""
    return replace(chain, closing=sentence, closing_class=reason.value)


def give_end(case: Case) -> Chain:
    """End the segment where this broker may end it."""
    target, end = target_of(case), given_end(case)
    assert target is not None
    assert end is not None
    return with_segment(case.chain, replace(target, end=end, end_unknown=False))


def lower_end(case: Case) -> Chain:
    """The segment ends where the whole group does: no member holds more."""
    assert case.lowered is not None
    return case.lowered


def declare_unknown(case: Case) -> Chain:
    """Sends may go on without the end; consumers stop before it until it is given."""
    return with_segment(case.chain, replace(last_segment(case), end_unknown=True))


def open_first(case: Case) -> Chain:
    """Segment 1: the first in line sends, from sequence 1."""
    return _opened(case, (1,) * case.chain.queues, another_sender=True)


def open_same_sender(case: Case) -> Chain:
    """Segment k+1 for the same sender, which sends again all that was not acknowledged."""
    report = case.evidence.report
    assert report is not None
    return _opened(case, report.unacked, another_sender=False)


def open_new_sender(case: Case) -> Chain:
    """Segment k+1 for another sender, which goes on after the chain's last record."""
    end = chain_end(case.chain)
    assert end is not None
    return _opened(case, tuple(n + 1 for n in end), another_sender=True)


def open_without_end(case: Case) -> Chain:
    """Segment k+1 for another sender that accepts not to know where the one before it stopped."""
    return _opened(case, tuple(n + 1 for n in known_end(case.chain)), another_sender=True)


def _opened(case: Case, first: PerQueue, *, another_sender: bool) -> Chain:
    chain = case.chain
    group: GroupName = eligible(case)[0]
    start = case.evidence.groups[group].ends
    assert start is not None
    sender = chain.sender
    if another_sender:
        sender = Sender(case.evidence.line[0], sender.epoch + 1)
    segment = Segment(chain.next_number, group, sender.epoch, first, start)
    segments = (*chain.segments, segment)
    return replace(chain, segments=segments, closing=None, closing_class="", sender=sender)


def move_heads(case: Case) -> Chain:
    """Subscriptions go on whose part of the segment is acked up to its known end."""
    moved = due_heads(case.chain, case.evidence.group, case.evidence.progress)
    few = dict(list(moved.items())[: case.params.max_moves])
    return with_heads(case.chain, few)


def droppable(case: Case) -> int:
    """Return how many of the first segments may go: known ends, and left by all subscriptions.

    The last segment stays. Without a named subscription a segment stays until retention has emptied
    it: a temporary one keeps what it reads, but was there for itself alone.
    """
    chain, count = case.chain, 0
    named = chain.has_named_readers
    lowest = min((min(numbers) for _, numbers in chain.heads), default=chain.next_number)
    for segment in chain.segments[:-1]:
        left = lowest > segment.number
        empty = segment.end == segment.start or segment.number in case.evidence.expired
        wanted = not named and not empty
        if segment.end is None or not left or wanted:
            break
        count += 1
    return count


def drop(case: Case) -> Chain:
    """Drop the first segments; the floor keeps what of a sender's records they held."""
    chain, count = case.chain, droppable(case)
    floor = chain.floor
    for segment, following in zip(chain.segments[:count], chain.segments[1:], strict=False):
        floor = _lowered(floor, segment)
        if segment.loss and following.sender_epoch == segment.sender_epoch:
            # The gap that a person accepted counts as passed, or K5 would find it here again.
            lost = tuple(first - 1 for first in following.first_sequence)
            floor = replace(floor, last_sequence=highest(floor.last_sequence, lost))
    return replace(chain, segments=chain.segments[count:], floor=floor)


def _lowered(floor: Floor, segment: Segment) -> Floor:
    """The floor with one more dropped segment."""
    last, passed = segment.last_sequence, segment.passed
    assert last is not None
    if floor.sender_epoch == segment.sender_epoch and floor.last_sequence:
        last = highest(last, floor.last_sequence)
        passed = _merged(floor.passed, passed)
    records = _later_records(floor, segment, len(last))
    return Floor(segment.number, segment.sender_epoch, last, passed, records)


def _later_records(floor: Floor, segment: Segment, queues: int) -> tuple[RecordPlace | None, ...]:
    """Return by queue the greatest place of the floor's and the segment's last record."""
    before = floor.last_records or (None,) * queues
    pairs = ((one, segment.last_record(queue)) for queue, one in enumerate(before))
    records = tuple(max((r for r in pair if r is not None), default=None) for pair in pairs)
    return records if any(records) else ()


def _merged(one: PerSubscription, other: PerSubscription) -> PerSubscription:
    values = dict(one)
    for name, numbers in other:
        values[name] = highest(numbers, values.get(name, numbers))
    return sorted_pairs(values)


def with_heads(chain: Chain, moved: Mapping[str, PerQueue]) -> Chain:
    """Return the chain in which these subscriptions go on: where they start counts no more."""
    heads, offsets = dict(chain.heads), dict(chain.start_offsets)
    for name, numbers in moved.items():
        if name in offsets:
            pairs = zip(offsets[name], heads[name], numbers, strict=True)
            offsets[name] = tuple(offset if new == old else 0 for offset, old, new in pairs)
    kept = {name: values for name, values in offsets.items() if any(values)}
    return replace(chain, heads=sorted_pairs(heads | dict(moved)), start_offsets=sorted_pairs(kept))
