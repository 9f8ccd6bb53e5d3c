"""What holds of every chain (K1 to K10, K18) and of every step from one to the next (K11, K12)."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from fmqcore.ordered.chain_ends import reached_before
from fmqcore.zk.chain import Chain, PerQueue, Segment


def require_sound(chain: Chain) -> Chain:
    """Return the chain; raise `AssertionError` naming each invariant that it breaks."""
    broken = broken_invariants(chain)
    assert not broken, "; ".join(broken)
    return chain


def broken_invariants(chain: Chain) -> list[str]:
    """Return the invariants that the chain breaks, each with what breaks it; empty = sound."""
    broken = [f"K3: {what}" for what in _sizes(chain)]
    if broken:
        return broken  # the others compare values per queue
    return [f"{number}: {what}" for number, check in _CHECKS for what in check(chain)]


def broken_step(before: Chain, after: Chain, *, lowers: bool = False) -> list[str]:
    """Return the invariants of a step that this change breaks; empty = allowed.

    `lowers`: it is a release, or a LOWER END of the machine.
    """
    return [
        *(f"K11: {what}" for what in _changed_segments(before, after, lowers)),
        *(f"K12: {what}" for what in _fallen_heads(before, after)),
        *(f"K12: {what}" for what in _fallen(before, after)),
        *(f"K18: {what}" for what in _old_starts(before, after)),
    ]


def _sizes(chain: Chain) -> Iterator[str]:
    for segment in chain.segments:
        for values in (segment.first_sequence, segment.start, segment.end):
            if values is not None and len(values) != chain.queues:
                yield f"segment {segment.number} has {len(values)} of {chain.queues} queues"
    for name, numbers in (*chain.heads, *chain.start_numbers, *chain.start_offsets):
        if len(numbers) != chain.queues:
            yield f"{name} has a place in {len(numbers)} of {chain.queues} queues"
    if chain.floor.last_sequence and len(chain.floor.last_sequence) != chain.queues:
        yield f"the floor has {len(chain.floor.last_sequence)} of {chain.queues} queues"


def _numbers(chain: Chain) -> Iterator[str]:
    for index, segment in enumerate(chain.segments):
        if segment.number != chain.floor.number + 1 + index:
            yield f"segment {segment.number} stands at place {chain.floor.number + 1 + index}"


def _open_segments(chain: Chain) -> Iterator[str]:
    for segment in chain.segments:
        if segment.end is not None and segment.end_unknown:
            yield f"the end of segment {segment.number} is given and unknown"
        if segment is not chain.last and not segment.has_ended:
            yield f"segment {segment.number} is open and not the last"
    last = chain.last
    if last is not None and last.has_ended and chain.closing is None:
        yield "the last segment has ended and no reason is there"
    if last is None and chain.closing is not None:
        yield "a reason to close, and no segment"


def _ends(chain: Chain) -> Iterator[str]:
    for segment in chain.segments:
        if segment.end is not None and not _reaches(segment.end, segment.start):
            yield f"segment {segment.number} ends at {segment.end} before {segment.start}"
        if min((*segment.first_sequence, *segment.start)) < 0:
            yield f"segment {segment.number} has a negative start"


def _sender_epochs(chain: Chain) -> Iterator[str]:
    epochs = [chain.floor.sender_epoch, *(s.sender_epoch for s in chain.segments)]
    for before, after in pairwise(epochs):
        if after < before:
            yield f"sender epoch {after} follows {before}"
    if chain.segments and epochs[-1] != chain.sender.epoch:
        yield f"the sender has epoch {chain.sender.epoch}, the last segment {epochs[-1]}"


def _gaps(chain: Chain) -> Iterator[str]:
    for segment, reached in reached_before(chain):
        if reached is not None and not _reaches(
            tuple(n + 1 for n in reached), segment.first_sequence
        ):
            yield (
                f"segment {segment.number} starts with sequences {segment.first_sequence}, the "
                f"segments before it end with {reached}"
            )


def _own_ends(chain: Chain) -> Iterator[str]:
    ends: dict[str, Segment] = {}
    for segment in chain.segments:
        before = ends.get(segment.group)
        if before is not None and not _reaches(segment.start, before.end or before.start):
            yield f"segment {segment.number} starts below the end of segment {before.number}"
        ends[segment.group] = segment


def _head_range(chain: Chain) -> Iterator[str]:
    first = chain.floor.number + 1
    newest = max(first, chain.next_number - 1)
    for name, numbers in chain.heads:
        if min(numbers) < first or max(numbers) > newest:
            yield f"{name} reads {numbers}, the chain has {first} to {newest}"


def _passed_ends(chain: Chain) -> Iterator[str]:
    unended = [segment.number for segment in chain.segments if segment.end is None]
    for name, numbers in chain.heads:
        for number in unended:
            if max(numbers) > number:
                yield f"{name} passed segment {number}, whose end is not known"


def _starts(chain: Chain) -> Iterator[str]:
    names = {name for name, _ in chain.heads}
    for name, _ in (*chain.start_numbers, *chain.start_offsets):
        if name not in names:
            yield f"{name} has a start and no head"
    for name in sorted(chain.temporary - names):
        yield f"{name} is temporary and has no head"
    highest = max((max(numbers) for _, numbers in chain.start_numbers), default=0)
    if highest > chain.last_start:
        yield f"start {highest} was never given: the last one is {chain.last_start}"


def _floor(chain: Chain) -> Iterator[str]:
    if (chain.floor.number > 0) != bool(chain.floor.last_sequence):
        yield f"the floor {chain.floor.number} has sequences {chain.floor.last_sequence}"


def _groups(chain: Chain) -> Iterator[str]:
    names = [g.group for g in chain.groups]
    if len(set(names)) < len(names):
        yield f"a group occurs twice in {names}"
    if len(names) < 2:
        yield f"{len(names)} group: a chain needs two"


def _changed_segments(before: Chain, after: Chain, lowers: bool) -> Iterator[str]:
    for old in before.segments:
        new = after.segment(old.number)
        if new is None:
            continue
        if (old.group, old.start, old.first_sequence) != (new.group, new.start, new.first_sequence):
            yield f"segment {old.number} has another start"
        fell = lowers and old.end and new.end and _reaches(old.end, new.end)
        if old.end is not None and new.end != old.end and not fell:
            yield f"the end of segment {old.number} changed from {old.end} to {new.end}"
        if old.end_unknown and new.end is None and not new.end_unknown:
            yield f"segment {old.number} is open again"


def _fallen_heads(before: Chain, after: Chain) -> Iterator[str]:
    """A head goes back only with a new start: progress of the one before is void then."""
    for name, place in after.places.items():
        old = before.places.get(name, place)
        same = (o == n for o, n in zip(old.start_numbers, place.start_numbers, strict=True))
        if any(n < o and s for n, o, s in zip(place.heads, old.heads, same, strict=True)):
            yield f"{name} goes back from {old.heads} to {place.heads}"


def _old_starts(before: Chain, after: Chain) -> Iterator[str]:
    if after.last_start < before.last_start:
        yield f"the last start fell from {before.last_start} to {after.last_start}"
    for name, numbers in after.start_numbers:
        old = before.start_numbers_of(name)
        given = {n for n, o in zip(numbers, old, strict=True) if n != o}
        if given and min(given) <= before.last_start:
            yield f"start {min(given)} of {name} was given before"


def _fallen(before: Chain, after: Chain) -> Iterator[str]:
    if after.next_number < before.next_number or after.sender.epoch < before.sender.epoch:
        yield "the number of segments or the sender epoch fell"


def _reaches(values: PerQueue, floor: PerQueue) -> bool:
    return all(v >= f for v, f in zip(values, floor, strict=True))


_CHECKS: Final[tuple[tuple[str, Callable[[Chain], Iterator[str]]], ...]] = (
    ("K1", _numbers),
    ("K2", _open_segments),
    ("K3", _ends),
    ("K4", _sender_epochs),
    ("K5", _gaps),
    ("K6", _own_ends),
    ("K7", _head_range),
    ("K8", _passed_ends),
    ("K9", _floor),
    ("K10", _groups),
    ("K18", _starts),
)
