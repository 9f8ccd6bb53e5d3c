"""A group that is lost for good: its segments are emptied, and the loss is noted where it is."""

import random
from dataclasses import replace

import pytest

from fmqcore.ids import GroupName
from fmqcore.ordered import requests
from fmqcore.ordered.evidence import CloseReason
from fmqcore.ordered.invariants import broken_invariants
from fmqcore.ordered.lowering import loses
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender

GROUPS = tuple(GroupName(f"g{n}") for n in (1, 2, 3))
LOST = GROUPS[0]


def chain_of(segments: tuple[Segment, ...]) -> Chain:
    reason = "a test" if segments[-1].has_ended else None
    return Chain(
        "changes",
        1,
        tuple(ChainGroup(g) for g in GROUPS[1:]),
        segments,
        closing=reason,
        closing_class=CloseReason.REQUEST.value if reason else "",
        heads=(("app", (1,)),),
        sender=Sender("copier-0000000000", segments[-1].sender_epoch),
    )


def random_chain(chance: random.Random) -> Chain:
    """Return a chain of a few senders, with records sent again, empty segments, unknown ends."""
    segments, ends = list[Segment](), dict.fromkeys(GROUPS, 0)
    epoch, reached, highest = 1, 0, 0
    for number in range(1, chance.randrange(2, 12)):
        if chance.random() < 0.3:
            epoch, reached = epoch + 1, highest - chance.randrange(3)
        group, first = chance.choice(GROUPS), max(1, reached + 1 - chance.randrange(4))
        start, count = ends[group], chance.choice((0, 1, 3, 5))
        unknown = chance.random() < 0.2
        ends[group] = start + count
        last = first + count - 1
        reached, highest = max(reached, last), max(highest, last)
        end = None if unknown else (start + count,)
        segments.append(Segment(number, group, epoch, (first,), (start,), end, unknown))
    return chain_of(tuple(segments))


def one_by_one(chain: Chain) -> list[bool]:
    """Return by segment whether emptying it, after those before it, loses records."""
    for segment in chain.segments:
        if segment.group == LOST and segment.end != segment.start:
            number, start = segment.number, segment.start
            chain = requests.release(chain, number, start, {}, accept_loss=True)
    return [segment.loss for segment in chain.segments]


def test_loss_is_noted_as_if_segments_were_emptied_one_by_one() -> None:
    chance, losses, seen = random.Random(7), 0, 0
    while seen < 500:
        chain = random_chain(chance)
        if broken_invariants(chain):
            continue
        seen += 1
        given_up = requests.give_up_group(chain, LOST)
        expected = one_by_one(chain)
        assert [s.loss for s in given_up.segments] == expected, chain
        losses += sum(expected) > 1
    assert losses > 20, "two losses or more in a chain"


def test_long_chain_is_not_read_once_for_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    def counted(before: Chain, after: Chain) -> bool:
        nonlocal reads
        reads += 1
        return loses(before, after)

    monkeypatch.setattr(requests, "loses", counted)
    one = Segment(1, LOST, 1, (1,), (0,), (10,))
    long = tuple(
        replace(one, number=n + 1, group=GROUPS[n % 2], first_sequence=(1 + 10 * n,),
                start=(n // 2 * 10,), end=(n // 2 * 10 + 10,))
        for n in range(400)
    )  # fmt: skip
    given_up = requests.give_up_group(chain_of(long), LOST)
    assert sum(s.loss for s in given_up.segments) == 1
    assert reads < 20
