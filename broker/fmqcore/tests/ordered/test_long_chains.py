"""The work of each function over a chain grows with its length, and not with the square of that.

`_Counted` counts how often segments and heads are read.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, SupportsIndex

import pytest

from fmqcore.ids import Offset
from fmqcore.ordered.context import Case
from fmqcore.ordered.delivery import due_heads
from fmqcore.ordered.eligibility import CONDITIONS
from fmqcore.ordered.evidence import Evidence, Params
from fmqcore.ordered.headers import header_sender
from fmqcore.ordered.invariants import broken_invariants
from fmqcore.ordered.judge import ChainCode, judge_stored
from fmqcore.ordered.lag import to_come
from fmqcore.ordered.lowering import has_gap, loses, only_consumed
from fmqcore.ordered.reading import read_order
from fmqcore.ordered.stored import StoredBatch, StoredMember, StoredQueue
from fmqcore.ordered.transitions import droppable
from fmqcore.ordered.waits import read_waits
from fmqcore.tests.ordered.chains import EMPTY, G1, G2
from fmqcore.zk.chain import Chain, Segment, Sender

_LENGTH = 10_000
_READS = 40
"""Most reads by one call, for each segment."""


class _CountedQueue(StoredQueue):
    """Batches of a member that count how often they are read."""

    reads = 0

    def add_up(self, batches: Iterator[StoredBatch]) -> Iterator[StoredBatch]:
        for batch in batches:
            self.reads += 1
            assert self.reads <= _READS * _LENGTH, "the batches are read too often"
            yield batch

    def __iter__(self) -> Iterator[StoredBatch]:
        return self.add_up(super().__iter__())

    def within(self, first: int, end: int) -> Iterator[StoredBatch]:
        return self.add_up(super().within(first, end))

    def overlapping(self, first: int, end: int) -> Iterator[StoredBatch]:
        return self.add_up(super().overlapping(first, end))


class _Counted(tuple[Any, ...]):
    """Parts of a chain that allow a number of reads in proportion to its length."""

    reads: list[int]

    def note(self, count: int) -> None:
        self.reads[0] += count
        assert self.reads[0] <= _READS * _LENGTH, "the chain is read too often"

    def __iter__(self) -> Iterator[Any]:
        for part in super().__iter__():
            self.note(1)
            yield part

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        self.note(len(found) if isinstance(at, slice) else 1)
        return found


def _counted(chain: Chain) -> Chain:
    parts = _Counted(chain.segments), _Counted(chain.heads)
    parts[0].reads = parts[1].reads = [0]
    return replace(chain, segments=parts[0], heads=parts[1])


def _long(senders: int, records: int = 1) -> Chain:
    """A chain over two groups; a hundred subscriptions read it."""
    segments = (
        Segment(
            number=number,
            group=(G1, G2)[number % 2],
            sender_epoch=1 + (number - 1) * senders // _LENGTH,
            first_sequence=(1 + (number - 1) * records,),
            start=(number // 2,),
            end=(number // 2 + records,),
        )
        for number in range(1, _LENGTH + 1)
    )
    return replace(
        EMPTY,
        segments=tuple(segments),
        closing="its group is drained",
        sender=Sender("copier-1", senders),
        heads=tuple((f"app-{n:02}", (1 + 100 * n,)) for n in range(100)),
    )


def _lag(chain: Chain) -> int:
    return to_come(chain, "app-00", G1, 0, None, Offset(0), Offset(_LENGTH))


def _droppable(chain: Chain) -> int:
    left = replace(chain, heads=tuple((name, (9_901,)) for name, _ in chain.heads))
    return droppable(Case(_counted(left), Evidence(), 0, Params(), CONDITIONS))


@pytest.mark.parametrize("senders", [1, _LENGTH], ids=["one sender", "a sender each"])
@pytest.mark.parametrize(
    "work",
    [
        lambda chain: broken_invariants(chain) == [],
        lambda chain: not has_gap(chain),
        lambda chain: not loses(chain, chain),
        lambda chain: not only_consumed(chain),
        lambda chain: read_waits(chain) == [],
        lambda chain: _lag(chain) == _LENGTH // 2,
        lambda chain: len(read_order(chain, {}).stretches) == _LENGTH,
        lambda chain: not due_heads(chain, G2, {name: (0,) for name, _ in chain.heads}),
        lambda chain: _droppable(chain) == 9_900,
    ],
    ids=[
        *("invariants", "has gap", "loses", "only consumed", "read waits", "lag", "read order"),
        *("due heads", "droppable"),
    ],
)
def test_long_chain_is_read_a_few_times(work: Callable[[Chain], bool], senders: int) -> None:
    assert work(_counted(_long(senders)))


def test_head_passes_a_long_row_of_empty_segments() -> None:
    chain = _counted(_long(1, records=0))
    assert due_heads(chain, G2, {"app-00": (0,)}) == {"app-00": (_LENGTH,)}


def test_places_of_many_subscriptions_are_found_without_a_search() -> None:
    heads = tuple((f"app-{n:05}", (1,)) for n in range(_LENGTH))
    chain = _counted(replace(_long(1), heads=heads))
    assert all(chain.heads_of(name) == numbers for name, numbers in heads)


@pytest.mark.parametrize("epoch", [1, 2], ids=["its own sender", "another sender"])
def test_judging_a_long_chain_reads_everything_a_few_times(epoch: int) -> None:
    queue, count = _CountedQueue(), _LENGTH // 2
    for offset in range(1, count + 1):  # g1 has segments 2, 4, ... with one record each
        producer_id, producer_epoch, sequence = header_sender(epoch, 2 * offset)
        queue.add(StoredBatch(offset, 1, producer_id, producer_epoch, sequence, 0))
    member = StoredMember("g1-0", G1, {0: queue}, {0: 1}, {0: count + 1}, {0: count + 1})
    found = judge_stored(_counted(_long(1)), [member]).findings
    assert {finding.code for finding in found} == ({ChainCode.O107} if epoch == 2 else set())


@pytest.mark.parametrize(
    ("first", "end", "found"), [(4, 6, [3, 5]), (3, 5, [3]), (0, 9, [0, 3, 5])]
)
def test_batches_with_records_in_a_range_are_found(first: int, end: int, found: list[int]) -> None:
    queue = StoredQueue()
    for offset, records in ((0, 3), (3, 2), (5, 4)):
        queue.add(StoredBatch(offset, records, 0, 1, offset, 0))
    assert [batch.offset for batch in queue.overlapping(first, end)] == found
