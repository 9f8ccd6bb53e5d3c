"""Appending, acknowledging, delivering: the rules of one segment."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId, Offset
from fmqcore.ordered.delivery import due_heads, shown_end, visible_end, window
from fmqcore.ordered.evidence import Duty, Serving
from fmqcore.ordered.sending import (
    AckEvidence,
    OrderedBatch,
    Verdict,
    judge_batch,
    may_acknowledge,
)
from fmqcore.tests.ordered.chains import (
    CLOSING,
    DONE,
    ENDED,
    G1,
    G2,
    G3,
    NEXT,
    NOW,
    OPEN,
    UNKNOWN,
    made,
)
from fmqcore.zk.chain import Chain, Segment, Sender

BATCH = OrderedBatch("copier-1", segment=1, sender_epoch=1, queue=0, sequence=4, count=2)
"""Offsets 13 and 14 of segment 1, which starts with sequence 1 at offset 10."""
M, S = BrokerId("g1-0"), BrokerId("g1-1")

VERDICTS: list[tuple[str, Chain, dict[str, Any], int, set[int], Verdict]] = [
    ("next", OPEN, {}, 13, set(), Verdict.APPEND),
    ("stored", OPEN, {}, 15, set(), Verdict.DUPLICATE),
    ("stored long ago", OPEN, {}, 40, set(), Verdict.DUPLICATE),
    ("half stored", OPEN, {}, 14, set(), Verdict.MISALIGNED),
    ("gap, or a lost tail", OPEN, {}, 12, set(), Verdict.GAP),
    ("before the segment", OPEN, {"sequence": 0}, 13, set(), Verdict.GAP),
    ("below the start", OPEN, {}, 9, set(), Verdict.LOST),
    ("closing", CLOSING, {}, 13, set(), Verdict.NOT_OPEN),
    ("sealed, and open again", OPEN, {}, 13, {1}, Verdict.SEALED),
    ("sealed for its closing", CLOSING, {}, 13, {1}, Verdict.NOT_OPEN),
    ("ended", ENDED, {}, 13, set(), Verdict.NOT_OPEN),
    ("an earlier segment", NEXT, {}, 13, set(), Verdict.NOT_OPEN),
    ("another group's segment", NEXT, {"segment": 2}, 13, set(), Verdict.NOT_OPEN),
    ("not read yet", OPEN, {"segment": 2}, 13, set(), Verdict.STALE_CHAIN),
    ("sender not read yet", OPEN, {"sender_epoch": 2}, 13, set(), Verdict.STALE_CHAIN),
    ("another with its epoch", OPEN, {"sender": "b"}, 13, set(), Verdict.FENCED),
    ("fenced", replace(OPEN, sender=Sender("b", 2)), {}, 13, set(), Verdict.FENCED),
]


@pytest.mark.parametrize(
    ("chain", "fields", "end", "sealed", "verdict"),
    [v[1:] for v in VERDICTS],
    ids=[v[0] for v in VERDICTS],
)
def test_only_the_next_batch_is_appended(
    chain: Chain, fields: dict[str, Any], end: int, sealed: set[int], verdict: Verdict
) -> None:
    found = judge_batch(chain, G1, sealed, Offset(end), replace(BATCH, **fields))
    assert found.verdict is verdict
    assert bool(found.reason) is (verdict not in (Verdict.APPEND, Verdict.DUPLICATE))
    if not found.reason:
        assert found.offset == 13
    if verdict in (Verdict.GAP, Verdict.MISALIGNED):
        assert found.expected == 1 + end - 10


HELD = AckEvidence(frozenset((M, S)), frozenset((M, S)), 7, 7, NOW + 1, 3, 3)
REFUSALS: list[tuple[Chain, dict[str, Any], set[int], str]] = [
    (OPEN, {"durable_on": frozenset((M,))}, set(), "not durable on g1-1"),
    (OPEN, {"durable_on": frozenset((M,)), "members": frozenset((M,))}, set(), "one member"),
    (OPEN, {"held_term": 8}, set(), "term 7"),
    (OPEN, {"held_term": 0}, set(), "term 7"),
    (OPEN, {"lease_until_ms": NOW}, set(), "lease"),
    (OPEN, {"chains_version": 4}, set(), "read again"),
    (OPEN, {}, {1}, "sealed"),
    (CLOSING, {}, set(), "takes no more"),
    (NEXT, {}, set(), "takes no more"),
]


@pytest.mark.parametrize(("chain", "fields", "sealed", "reason"), REFUSALS)
def test_an_ack_needs_all_members_seal_term_and_lease(
    chain: Chain, fields: dict[str, Any], sealed: set[int], reason: str
) -> None:
    assert may_acknowledge(OPEN, (), 1, HELD, NOW) is None
    found = may_acknowledge(chain, sealed, 1, replace(HELD, **fields), NOW)
    assert found is not None
    assert reason in found


def test_single_member_may_acknowledge_in_a_topic_for_tries() -> None:
    alone = replace(HELD, durable_on=frozenset((M,)), members=frozenset((M,)))
    assert may_acknowledge(replace(OPEN, allow_single=True), (), 1, alone, NOW) is None


def test_consumers_read_a_segment_up_to_its_known_end() -> None:
    shown = window(DONE, "app", 0, G1, 0, 99)
    assert (shown.segment, shown.first, shown.end, shown.reason) == (1, 10, 14, "")
    assert window(DONE, "app", 0, G1, 12, 99).first == 12


def test_next_segment_skips_what_earlier_ones_deliver() -> None:
    at_two = replace(DONE, heads=(("app", (2,)),))
    shown = window(at_two, "app", 0, G2, 0, 9)  # 3 and 4 are in segment 1
    assert (shown.first, shown.end) == (2, 9)
    found = made(Duty.TIDY, at_two)
    assert found.edit is not None
    assert window(found.edit, "app", 0, G2, 0, 9) == shown


def test_empty_segment_in_between_hides_no_delivered_record() -> None:
    empty = replace(DONE.segments[1], end=(0,), start=(0,), first_sequence=(3,))
    third = Segment(3, G1, 1, (3,), (14,))
    chain = replace(DONE, segments=(DONE.segments[0], empty, third), heads=(("app", (3,)),))
    assert window(chain, "app", 0, G1, 14, 20).first == 16  # 3 and 4 are in segment 1


def test_progress_never_passes_offsets_where_nothing_is_held() -> None:
    """The segment may end below: a later one in the group then starts with these offsets."""
    at_two = replace(DONE, heads=(("app", (2,)),))  # 3 and 4 are in segment 1
    for held, expected in ((0, (0, 0)), (1, (1, 1)), (2, (2, 2)), (3, (2, 3))):
        shown = window(at_two, "app", 0, G2, 0, held)
        assert (shown.first, shown.end) == expected


@pytest.mark.parametrize(("stored", "expected"), [(0, 0), (2, 2), (3, 3), (99, 3)])
def test_progress_never_passes_a_known_end_above_what_is_stored(stored: int, expected: int) -> None:
    """The end may be lowered to where the group ends; a later segment starts there."""
    ended = replace(DONE.segments[1], end=(3,))
    third = Segment(3, G1, 1, (6,), (14,))
    chain = replace(DONE, segments=(DONE.segments[0], ended, third), heads=(("app", (2,)),))
    visible = shown_end(chain, ended, 0, Serving.MASTER, None, stored)
    shown = window(chain, "app", 0, G2, 0, visible)
    assert (shown.first, shown.end) == (min(2, expected), expected)
    assert ("cannot be read here" in shown.reason) is (expected < 3)


def test_nothing_is_shown_elsewhere_or_after_an_unknown_end() -> None:
    assert "reads segment 1 in g1" in window(DONE, "app", 0, G2, 0, 9).reason
    assert "no place" in window(DONE, "other", 0, G1, 0, 9).reason
    assert (
        "not open yet" in window(replace(DONE, heads=(("app", (3,)),)), "app", 0, G1, 0, 9).reason
    )
    assert "unknown" in window(NEXT, "app", 0, G1, 0, 10).reason
    beyond = window(replace(NEXT, heads=(("app", (2,)),)), "app", 0, G2, 0, 9)
    assert (beyond.first, beyond.end) == (0, 0)


SHOWN: list[tuple[Chain, Serving, int | None, int]] = [
    (OPEN, Serving.MASTER, 13, 13),
    (OPEN, Serving.MASTER, 9, 10),
    (OPEN, Serving.MASTER, None, 10),
    (OPEN, Serving.READER, 13, 10),
    (CLOSING, Serving.MASTER, 13, 10),
    (UNKNOWN, Serving.MASTER, 13, 10),
    (NEXT, Serving.MASTER, 13, 10),
]


@pytest.mark.parametrize(("chain", "serving", "held", "end"), SHOWN)
def test_only_an_open_segment_shows_records_above_no_end(
    chain: Chain, serving: Serving, held: int | None, end: int
) -> None:
    assert visible_end(chain, chain.segments[0], 0, serving, held) == end


def test_heads_pass_empty_and_repeated_segments_in_one_write() -> None:
    second = replace(NEXT.segments[1], end=(2,))  # 3 and 4 once more
    third = replace(second, number=3, group=G3, first_sequence=(5,), start=(0,), end=(0,))
    last = replace(third, number=4, group=G1, start=(20,), end=None)
    chain = replace(DONE, segments=(DONE.segments[0], second, third, last))
    assert due_heads(chain, G1, {"app": (14,)}) == {"app": (4,)}
    assert due_heads(chain, G1, {"app": (13,)}) == {}
    assert due_heads(chain, G2, {"app": (14,)}) == {}
    assert due_heads(chain, G1, {}) == {}
