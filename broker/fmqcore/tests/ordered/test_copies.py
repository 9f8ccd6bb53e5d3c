"""Copies of chains in the journals: what they keep, and how they restore a lost chain."""

import base64
import random
import zlib
from dataclasses import replace

import pytest

from fmqcore.errors import Malformed
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered import copies
from fmqcore.ordered.evidence import Action, Duty, Evidence, Serving
from fmqcore.ordered.invariants import broken_invariants
from fmqcore.ordered.machine import decide
from fmqcore.ordered.subscriptions import add_at, seek
from fmqcore.properties import MAX_BYTES, NONE, Properties
from fmqcore.tests.ordered.chains import (
    ALL_WHOLE,
    EMPTY,
    ENDED,
    G1,
    G2,
    NEXT,
    NOW,
    OPEN,
    PARAMS,
)
from fmqcore.zk.chain import Chain, ChainGroup, Floor, Segment, Sender

OWN = Properties.of({"ordered": True, "colour": "red"})
LATER = replace(
    NEXT,
    segments=(*NEXT.segments[:-1], replace(NEXT.segments[-1], end=(9,))),
    closing="g2-1 is lost",
    closing_class="trouble",
)


def opened_next(chain: Chain) -> Chain:
    number = chain.next_number
    segment = Segment(number, G1, chain.sender.epoch, (20,), (40,))
    return replace(chain, segments=(*chain.segments, segment), closing=None, closing_class="")


def test_a_copy_holds_the_chain_beside_the_own_properties() -> None:
    noted = copies.with_copy(OWN, NEXT)
    copy = copies.copy_in(Properties.decode(noted.encode()))
    assert (copy.number, copy.unpack()) == (2, NEXT)
    assert copies.without_copy(noted) == OWN


def test_a_copy_replaces_an_older_one_and_stays_with_new_ones() -> None:
    noted = copies.with_copy(copies.with_copy(OWN, OPEN), NEXT)
    assert copies.copy_in(noted).unpack() == NEXT
    kept = copies.keep_copy(Properties.of({"ordered": True}), noted)
    assert copies.copy_in(kept).unpack() == NEXT
    assert "colour" not in kept
    assert copies.keep_copy(OWN, NONE) == OWN


def test_a_chain_too_large_for_a_copy_leaves_its_number() -> None:
    dice = random.Random(1)
    names = [f"g{dice.getrandbits(120):x}" for _ in range(400)]
    large = replace(OPEN, groups=tuple(ChainGroup(GroupName(name)) for name in names))
    noted = copies.with_copy(OWN, large)
    assert noted.size() <= MAX_BYTES
    assert copies.copy_in(noted) == copies.ChainCopy(1, "")
    assert "too large" in (copies.why_not_restorable(EMPTY, copies.copy_in(noted)) or "")


def test_properties_that_leave_no_room_for_a_copy_are_kept_alone() -> None:
    full = Properties.of({"colour": "r" * (MAX_BYTES - 40)})
    assert full.size() <= MAX_BYTES
    assert copies.keep_copy(full, copies.with_copy(OWN, NEXT)) == full


def test_a_copy_that_is_cut_off_is_malformed() -> None:
    packed = base64.b64encode(zlib.compress(b"{}")[:-4]).decode()
    with pytest.raises(Malformed, match="truncated"):
        copies.ChainCopy(1, packed).unpack()


@pytest.mark.parametrize(
    "packed", ["%%%", "AAAA", copies.copy_in(copies.with_copy(OWN, OPEN))[1][:40]]
)
def test_a_damaged_copy_is_malformed(packed: str) -> None:
    with pytest.raises(Malformed):
        copies.ChainCopy(1, packed).unpack()


def test_journals_are_behind_level_or_ahead() -> None:
    assert [copies.is_behind(chain, 1) for chain in (EMPTY, OPEN, NEXT)] == [True, False, False]
    assert copies.is_behind(NEXT, 3)
    assert "ends with segment 2" in copies.why_behind(NEXT, 3)


def test_a_chain_created_again_continues_from_the_copy() -> None:
    created = replace(EMPTY, groups=(ChainGroup(G2), ChainGroup(G1, 5)))
    after = copies.restored(created, NEXT)
    assert after.segments == NEXT.segments
    assert after.groups == created.groups, "a person has just wished them"
    assert after.sender == NEXT.sender


def test_restored_chain_keeps_what_its_creation_asked_for() -> None:
    """The lease, the leave for single brokers and the topic's number are of the present topic."""
    created = replace(EMPTY, lease_ms=EMPTY.lease_ms + 1, allow_single=True, topic_id=TopicId(7))
    after = copies.restored(created, NEXT)
    assert after.lease_ms == created.lease_ms
    assert after.allow_single
    assert after.topic_id == created.topic_id


def test_chain_without_segments_left_is_not_a_new_one() -> None:
    emptied = replace(EMPTY, groups=(ChainGroup(G2), ChainGroup(G1, 5)), floor=Floor(1))
    assert copies.restored(emptied, NEXT).groups == NEXT.groups


def test_an_open_segment_is_closed_before_the_copy_counts() -> None:
    known = opened_next(LATER)
    closing = copies.restored(OPEN, known)
    assert closing.segments == OPEN.segments
    assert closing.closing is not None
    assert closing.closing_class == "restore"
    assert copies.restored(closing, known).segments == known.segments


def test_restored_segment_is_closed_for_it_may_be_sealed() -> None:
    """The newest copy is of the last segment with a record: the sender may have left it."""
    after = copies.restored(EMPTY, OPEN)
    assert (after.segments, after.closing_class) == (OPEN.segments, "restore")
    sealed = Evidence(group=G1, serving=Serving.MASTER, sealed={1: (14,)}, held=(14,))
    ended = decide(Duty.END, after, sealed, NOW, PARAMS).edit
    assert ended is not None
    sends = Evidence(groups=ALL_WHOLE, line=("copier-2",))
    assert decide(Duty.SEND, ended, sends, NOW, PARAMS).action is Action.OPEN


def test_groups_that_the_copy_lacks_keep_a_place() -> None:
    known = opened_next(LATER)
    early = add_at(replace(ENDED, heads=()), "late", 1)
    after = copies.restored(early, replace(known, floor=Floor(0)))
    assert after.heads_of("late") == (1,)
    assert not broken_invariants(after)


def test_restored_chain_knows_which_groups_were_not_named() -> None:
    known = add_at(opened_next(LATER), "fmq-1", 1, temporary=True)
    known = add_at(known, "fmq-2", 1, temporary=True)
    behind = add_at(add_at(ENDED, "fmq-2", 1), "fmq-3", 1, temporary=True)
    assert copies.restored(behind, known).temporary == {"fmq-1", "fmq-3"}


def test_restored_chain_keeps_starts_and_gives_no_number_again() -> None:
    """Else progress that counted from a start which only the newer chain knew would count again."""
    known = add_at(replace(opened_next(LATER), heads=()), "app", 1, {0: 12}, 100)
    assert copies.copy_in(copies.with_copy(OWN, known)).unpack() == known
    other = add_at(replace(ENDED, heads=()), "app", 1, {0: 13}, 300)
    behind = add_at(other, "late", 1, {0: 13}, 400)
    after = copies.restored(behind, known)
    assert (after.start_numbers_of("app"), after.start_offsets_of("app")) == ((100,), (12,))
    assert (after.start_numbers_of("late"), after.start_offsets_of("late")) == ((400,), (0,))
    assert after.last_start == 400
    assert not broken_invariants(after)
    assert seek(after, "app", {0: 1}, wall_ms=500).start_numbers_of("app") == (500,)
    assert seek(after, "app", {0: 1}, wall_ms=200).start_numbers_of("app") == (401,), "slow clock"


def test_other_queues_than_in_the_copy_are_refused() -> None:
    two = Chain("t", 2, EMPTY.groups, sender=Sender())
    copy = copies.copy_in(copies.with_copy(OWN, NEXT))
    assert "--queues 1" in (copies.why_not_restorable(two, copy) or "")
    assert copies.why_not_restorable(EMPTY, copy) is None
