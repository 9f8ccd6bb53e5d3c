"""The work of each function over a chain grows with its length, and not with the square of that.

`_Counted` counts how often segments are read.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, SupportsIndex

import pytest

from fmqcore.ordered.invariants import broken_invariants
from fmqcore.ordered.lowering import has_gap, loses, only_consumed
from fmqcore.ordered.waits import read_waits
from fmqcore.tests.ordered.chains import EMPTY, G1, G2
from fmqcore.zk.chain import Chain, Segment, Sender

_LENGTH = 10_000
_READS = 40
"""Most reads of a segment by one call."""


class _Counted(tuple[Segment, ...]):
    """Segments that allow a number of reads in proportion to their count."""

    reads: list[int]

    def note(self, count: int) -> None:
        self.reads[0] += count
        assert self.reads[0] <= _READS * _LENGTH, "the chain is read too often"

    def __iter__(self) -> Iterator[Segment]:
        for segment in super().__iter__():
            self.note(1)
            yield segment

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        self.note(len(found) if isinstance(found, tuple) else 1)
        return found


def _long(senders: int = 1) -> Chain:
    """A chain over two groups: each segment has one record, a hundred subscriptions read it."""
    segments = _Counted(
        Segment(
            number=number,
            group=(G1, G2)[number % 2],
            sender_epoch=1 + (number - 1) * senders // _LENGTH,
            first_sequence=(number,),
            start=(number // 2,),
            end=(number // 2 + 1,),
        )
        for number in range(1, _LENGTH + 1)
    )
    segments.reads = [0]
    return replace(
        EMPTY,
        segments=segments,
        closing="its group is drained",
        sender=Sender("copier-1", senders),
        heads=tuple((f"app-{n:02}", (1 + 100 * n,)) for n in range(100)),
    )


@pytest.mark.parametrize("senders", [1, _LENGTH], ids=["one sender", "a sender each"])
@pytest.mark.parametrize(
    "work",
    [
        lambda chain: broken_invariants(chain) == [],
        lambda chain: not has_gap(chain),
        lambda chain: not loses(chain, chain),
        lambda chain: not only_consumed(chain),
        lambda chain: read_waits(chain) == [],
    ],
    ids=["invariants", "has gap", "loses", "only consumed", "read waits"],
)
def test_long_chain_is_read_a_few_times(work: Callable[[Chain], bool], senders: int) -> None:
    assert work(_long(senders=senders))
