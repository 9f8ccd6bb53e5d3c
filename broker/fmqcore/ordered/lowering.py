"""Ends a segment earlier: where its group ends, if that does not reach the segment's end. Pure.

What lay above was sent again into a later segment, unless `loses` finds otherwise. What a
subscription is known to have finished above the new end is not delivered again there:
`Segment.passed` keeps its number. That is known of a subscription that has left the segment. Of one
that still reads it, only progress that is left counts: a master that opens without records of a
lost reader cuts progress to its journal (`merge.within`), so what was finished above comes twice.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

from fmqcore.ids import GroupName, Offset
from fmqcore.ordered.chain_ends import known_end, known_ends, reached_before
from fmqcore.zk.chain import Chain, PerQueue, PerSubscription, Segment, sorted_pairs


def lower_end(segment: Segment, ends: PerQueue) -> PerQueue:
    """Return where a segment can end whose group holds its queues up to `ends`."""
    reached = tuple(Offset(max(pair)) for pair in zip(ends, segment.start, strict=True))
    if segment.end is None:
        return reached
    return tuple(Offset(min(pair)) for pair in zip(reached, segment.end, strict=True))


def short_segment(chain: Chain, group: GroupName, ends: PerQueue) -> Segment | None:
    """Return the first segment of `group` that can end earlier, as `ends` do not reach its end."""
    own = [s for s in chain.segments if s.group == group and s.end is not None]
    newest = own[-1].end if own else None
    if newest is None or all(e >= n for e, n in zip(ends, newest, strict=True)):
        return None  # an end is no lower than those before it (K6)
    return next((s for s in own if lower_end(s, ends) != s.end), None)


def lowered(
    chain: Chain, segment: Segment, ends: PerQueue, progress: Mapping[str, PerQueue]
) -> Chain:
    """Return the chain in which `segment` ends where its group does.

    `progress`: per subscription the next offset that it has not finished in the segment's group.
    """
    return with_segment(chain, _ended(chain, segment, ends, progress))


def emptied(chain: Chain, numbers: Collection[int]) -> Chain:
    """Return the chain in which these segments end where they start. Reads the chain once."""
    segments = (_ended(chain, s, s.start, {}) if s.number in numbers else s for s in chain.segments)
    return replace(chain, segments=tuple(segments))


def _ended(
    chain: Chain, segment: Segment, ends: PerQueue, progress: Mapping[str, PerQueue]
) -> Segment:
    ended = replace(segment, end=lower_end(segment, ends), end_unknown=False)
    return replace(ended, passed=_passed(chain, segment, ended, progress))


def loses(before: Chain, after: Chain) -> bool:
    """Whether a record that counts as stored is in no segment of `after`, where an end is lower.

    A record counts that was acknowledged: the sender's next segment begins above it. So does one
    that a later sender was shown as the chain's last record: it goes on after that.
    """
    return has_gap(after) or _breaks_off(before, after)


def only_consumed(chain: Chain) -> bool:
    """Whether a subscription has finished a record above all that segments are known to hold.

    If its sender goes before it has sent that again, the next sender begins below it, and consumers
    get it twice. Nothing is known of progress that was cut (see the top of this module).
    """
    held = known_end(chain)
    finished = (numbers for s in chain.segments for _, numbers in s.passed)
    return any(n > end for numbers in finished for n, end in zip(numbers, held, strict=True))


def with_segment(chain: Chain, segment: Segment) -> Chain:
    """Return the chain with the segment in the place of the one with its number."""
    segments = (segment if s.number == segment.number else s for s in chain.segments)
    return replace(chain, segments=tuple(segments))


def _passed(
    chain: Chain, before: Segment, after: Segment, progress: Mapping[str, PerQueue]
) -> PerSubscription:
    """The highest sequence that each subscription has finished here, if above the end."""
    passed, last = dict(before.passed), after.last_sequence
    assert last is not None
    for name, (numbers, _, starts) in chain.places.items():
        done = progress.get(name, before.start)
        finished = []
        for queue in range(chain.queues):
            offset = done[queue]
            if numbers[queue] == before.number:
                offset = max(offset, starts[queue])
            if before.end is not None:
                left = numbers[queue] > before.number
                offset = before.end[queue] if left else min(offset, before.end[queue])
            finished.append(before.first_sequence[queue] + offset - before.start[queue] - 1)
        earlier = passed.get(name, last)
        highest = tuple(max(v) for v in zip(finished, earlier, last, strict=True))
        if highest != last:
            passed[name] = highest
    return sorted_pairs(passed)


def has_gap(chain: Chain) -> bool:
    """Whether a segment begins above all earlier segments with its sender epoch."""
    for segment, reached in reached_before(chain):
        if reached is not None and any(
            f > r + 1 for f, r in zip(segment.first_sequence, reached, strict=True)
        ):
            return True
    return False


def leaves_gap(chain: Chain, first: PerQueue) -> bool:
    """Whether a next segment of this sender with these first sequences begins above the others."""
    last = chain.last
    if last is None:
        return False
    starts = tuple(Offset(0) for _ in first)
    following = Segment(last.number + 1, last.group, last.sender_epoch, first, starts)
    return has_gap(replace(chain, segments=(*chain.segments, following)))


def _breaks_off(before: Chain, after: Chain) -> bool:
    """Whether an end falls below the first sequence of the next segment, of another sender."""
    ends = zip(known_ends(before), known_ends(after), strict=True)
    for (earlier, segment), (old, new) in zip(pairwise(after.segments), ends, strict=False):
        if earlier.sender_epoch != segment.sender_epoch and any(
            n < min(o, first - 1)
            for o, n, first in zip(old, new, segment.first_sequence, strict=True)
        ):
            return True
    return False
