"""Subscriptions of a chain: where a new one starts, seeks, and a lost group's segments."""

from dataclasses import replace

import pytest

from fmqcore.batch.offset_entry import OffsetEntry, tombstone
from fmqcore.errors import InvalidArgument
from fmqcore.ids import Offset
from fmqcore.ordered import requests, subscriptions
from fmqcore.ordered.delivery import due_heads, floor_since_start, window
from fmqcore.ordered.invariants import broken_invariants, broken_step
from fmqcore.ordered.lag import started_at, to_come
from fmqcore.ordered.transitions import with_heads
from fmqcore.tests.ordered.chains import CLOSING, DONE, EMPTY, ENDED, G1, G2, G3, NEXT, OPEN
from fmqcore.zk.chain import Chain, ChainGroup, Floor, Segment

AT_TWO = replace(DONE, heads=(("app", (2,)),))
THREE = replace(
    AT_TWO,
    segments=(
        replace(DONE.segments[0], opened_ms=1_000_000),
        replace(DONE.segments[1], end=(4,), opened_ms=2_000_000),  # sequences 3 to 6
        Segment(3, G1, 1, (7,), (20,), opened_ms=3_000_000),
    ),
)


@pytest.mark.parametrize(
    ("chain", "latest"), [(EMPTY, 1), (OPEN, 1), (NEXT, 1), (DONE, 2), (THREE, 3)]
)
def test_the_newest_head_passes_known_ends_only(chain: Chain, latest: int) -> None:
    assert subscriptions.newest_number(chain) == latest
    assert subscriptions.add_subscription(chain, "new", latest=True).heads_of("new") == (latest,)
    assert subscriptions.add_at(chain, "new", 99).heads_of("new") == (latest,)
    assert subscriptions.add_at(chain, "new", 0).heads_of("new") == (1,)


@pytest.mark.parametrize(
    ("wall_ms", "number"),
    [(0, 1), (1_500_000, 1), (2_030_000, 1), (2_060_000, 2), (9_000_000, 3)],
)
def test_a_moment_is_looked_for_rather_too_early(wall_ms: int, number: int) -> None:
    assert subscriptions.number_at(THREE, wall_ms) == number
    assert subscriptions.number_at(EMPTY, wall_ms) == 1


def test_a_chain_takes_a_bounded_number_of_heads() -> None:
    full = replace(DONE, heads=tuple((f"app-{n:05}", (1,)) for n in range(subscriptions.MAX_HEADS)))
    assert subscriptions.add_subscription(full, "app-00001", latest=False) is full
    with pytest.raises(InvalidArgument, match=r"16384 consumer groups on 1 queues.*fmq group list"):
        subscriptions.add_subscription(full, "new", latest=False)


def test_seek_moves_heads_within_the_chain_and_only_by_request() -> None:
    back = subscriptions.seek(AT_TWO, "app", {0: 1})
    assert back.heads == (("app", (1,)),)
    assert broken_step(AT_TWO, back) == [], "it goes back with a new start"
    without = replace(back, start_numbers=())
    assert broken_step(AT_TWO, without)[0].startswith("K12"), "no step of the machine does"
    assert subscriptions.seek(back, "app", {0: 9}).heads == (("app", (2,)),)
    assert subscriptions.seek(back, "app", {0: 0}).heads == back.heads
    assert subscriptions.seek(NEXT, "app", {0: 2}).heads == (("app", (1,)),), "K8: 1 has no end"
    assert subscriptions.seek(AT_TWO, "other", {0: 1}) is AT_TWO


def test_seek_of_some_queues_leaves_the_others() -> None:
    first = replace(DONE.segments[0], first_sequence=(1, 1), start=(10, 10), end=(14, 14))
    second = replace(DONE.segments[1], first_sequence=(3, 3), start=(0, 0))
    chain = replace(DONE, queues=2, segments=(first, second), heads=(("app", (2, 2)),))
    moved = subscriptions.seek(chain, "app", {1: 1}, {1: 12})
    assert moved.heads == (("app", (2, 1)),)
    assert (moved.start_numbers_of("app"), moved.last_start) == ((0, 1), 1)
    assert moved.start_offsets_of("app") == (0, 12)


def test_each_start_gets_a_number_that_none_had_before() -> None:
    """Else progress that a lost broker group has kept would count for the group of that name."""
    added = subscriptions.add_at(DONE, "new", 1)
    removed = subscriptions.remove_subscription(added, "new")
    assert (removed.heads, removed.start_numbers) == (DONE.heads, DONE.start_numbers)
    again = subscriptions.add_at(removed, "new", 1)
    moved = subscriptions.seek(again, "new", {0: 1})
    assert [c.start_numbers_of("new") for c in (added, again, moved)] == [(1,), (2,), (3,)]
    reused = replace(again, start_numbers=(("new", (1,)),))
    assert broken_step(removed, reused)[0].startswith("K18")


def test_progress_counts_for_its_own_start_only() -> None:
    entry = OffsetEntry(1, Offset(5), ((Offset(7), Offset(8)),), 0, 2)
    assert floor_since_start(entry, 2) == 5
    assert [floor_since_start(e, 3) for e in (entry, None, tombstone(1))] == [0, 0, 0]
    chain = subscriptions.seek(replace(DONE, last_start=1), "app", {0: 1})
    counted = [to_come(chain, "app", G1, 0, e, Offset(0), Offset(14)) for e in (entry, None)]
    assert counted == [4, 4], "segment 1 of g1 has the offsets 10 to 13"
    later = entry._replace(floor=Offset(11), ranges=((Offset(12), Offset(13)),))
    assert to_come(chain, "app", G1, 0, later, Offset(0), Offset(14)) == 2
    before = later._replace(start_number=1)
    assert to_come(chain, "app", G1, 0, before, Offset(0), Offset(14)) == 4


def test_start_offset_counts_in_the_first_segment_only() -> None:
    chain = subscriptions.add_at(THREE, "new", 1, {0: 12})
    shown = window(chain, "new", 0, G1, 0, 99)
    assert (shown.first, shown.end) == (12, 14)
    assert due_heads(chain, G1, {"new": (12,)}) == {}
    moved = with_heads(chain, due_heads(chain, G1, {"new": (14,)}))
    assert (moved.heads_of("new"), moved.start_offsets) == ((2,), ())
    assert window(moved, "new", 0, G2, 0, 9).first == 2, "1 and 2 are records 3 and 4 again"
    beyond = subscriptions.add_at(THREE, "new", 1, {0: 99})
    assert due_heads(beyond, G1, {"new": (0,)}) == {"new": (2,)}, "nothing of 1 is left to read"


def test_start_offset_is_shown_in_its_group_only() -> None:
    chain = subscriptions.seek(AT_TWO, "app", {0: 2}, {0: 2}, 100)
    assert [started_at(chain, "app", group, 0) for group in (G1, G2)] == [0, 2]
    assert started_at(chain, "other", G2, 0) == 0


def test_start_in_a_dropped_segment_is_the_first_kept_one() -> None:
    floor = Floor(1, 1, (4,))
    dropped = replace(THREE, segments=THREE.segments[1:], floor=floor)
    added = subscriptions.add_at(dropped, "new", 1, {0: 12})
    moved = subscriptions.seek(dropped, "app", {0: 1}, {0: 12})
    for chain, name in ((added, "new"), (moved, "app")):
        assert (chain.heads_of(name), chain.start_offsets_of(name)) == ((2,), (0,))


def test_temporary_group_opened_by_name_is_kept() -> None:
    unnamed = subscriptions.add_at(DONE, "fmq-1", 1, temporary=True)
    assert unnamed.temporary == {"fmq-1"}
    assert subscriptions.add_at(unnamed, "fmq-1", 1, temporary=True) is unnamed
    assert subscriptions.add_at(unnamed, "fmq-1", 1).temporary == frozenset()
    assert subscriptions.add_at(DONE, "app", 1, temporary=True).temporary == frozenset()
    assert not broken_invariants(subscriptions.remove_subscription(unnamed, "fmq-1"))


def test_removed_group_leaves_nothing_to_one_of_its_name() -> None:
    """What it had finished above a released end is not delivered elsewhere: a new one needs it."""
    released = requests.release(AT_TWO, 1, (12,), {})
    assert released.segments[0].passed == (("app", (4,)),)
    left = subscriptions.remove_subscription(released, "app")
    again = subscriptions.add_at(left, "app", 2)
    assert window(again, "app", 0, G2, 0, 9).first == 0


def test_release_counts_what_a_start_left_out_as_finished() -> None:
    chain = subscriptions.seek(ENDED, "app", {0: 1}, {0: 13})
    released = requests.release(chain, 1, (12,), {"app": (10,)}, accept_loss=True)
    assert released.segments[0].passed == (("app", (3,)),)


def test_retention_keeps_what_comes_after_a_start() -> None:
    chain = subscriptions.add_at(replace(OPEN, heads=()), "new", 1, {0: 12})
    kept = subscriptions.oldest_kept(chain, G1, lambda _name, _queue, start: 13 if start < 1 else 0)
    assert kept == (12,)


def test_seek_back_delivers_again_what_a_release_had_passed() -> None:
    """`app` had read 3 and 4 in segment 1, which was then released at 2: they are in segment 2."""
    released = requests.release(AT_TWO, 1, (12,), {})
    assert window(released, "app", 0, G2, 0, 9).first == 2, "not delivered twice"
    back = subscriptions.seek(released, "app", {0: 1})
    again = replace(back, heads=(("app", (2,)),))
    assert window(again, "app", 0, G2, 0, 9).first == 0, "after the seek all is read again"
    floor = Floor(1, 1, (2,), (("app", (4,)), ("other", (4,))))
    dropped = replace(released, segments=released.segments[1:], floor=floor)
    in_place = subscriptions.seek(dropped, "app", {0: 2})
    assert in_place.floor.passed == (("other", (4,)),), "all that is kept is read again"
    after = Segment(3, G1, 1, (7,), (20,))
    ended = replace(dropped.segments[0], end=(4,))
    forward = subscriptions.seek(replace(dropped, segments=(ended, after)), "app", {0: 3})
    assert forward.floor == floor, "a head that does not go back keeps what it had finished"


def test_a_lost_group_is_given_up_and_heads_pass_it() -> None:
    left = replace(THREE, groups=(ChainGroup(G2), ChainGroup(G3)), heads=(("app", (1,)),))
    given_up = requests.give_up_group(left, G1)
    assert given_up.heads == (("app", (2,)),)
    assert [s.end == s.start for s in given_up.segments] == [True, False, True]
    assert given_up.closing == "group g1 is lost for good"
    assert requests.group_in_use(given_up, G1) is None
    assert requests.give_up_group(given_up, G1) == given_up
    assert broken_step(left, given_up, lowers=True) == []
    with pytest.raises(InvalidArgument, match="take it out first"):
        requests.give_up_group(THREE, G1)


def test_a_lost_group_makes_no_duplicate_of_what_was_read() -> None:
    """`app` has read 1 to 4 in segment 1 of g1: segment 2 delivers it from 5 on, as before."""
    left = replace(THREE, groups=(ChainGroup(G2), ChainGroup(G3)))
    before = window(left, "app", 0, G2, 0, 9)
    assert before.first == 2
    assert window(requests.give_up_group(left, G1), "app", 0, G2, 0, 9) == before


def test_an_empty_segment_may_be_left_by_any_broker() -> None:
    left = replace(THREE, groups=(ChainGroup(G2), ChainGroup(G3)))
    given_up = requests.give_up_group(left, G1)
    after = Segment(4, G2, 1, (7,), (4,))
    opened = replace(given_up, segments=(*given_up.segments, after), closing=None)
    at_three = replace(opened, heads=(("app", (3,)),))
    assert due_heads(at_three, G2, {"app": (4,)}) == {"app": (4,)}
    assert due_heads(CLOSING, G2, {"app": (99,)}) == {}
