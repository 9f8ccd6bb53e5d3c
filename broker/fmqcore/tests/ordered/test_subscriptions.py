"""Subscriptions of a chain: where a new one starts, seeks, and a lost group's segments."""

from dataclasses import replace

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.ordered import requests, subscriptions
from fmqcore.ordered.delivery import due_heads, window
from fmqcore.ordered.invariants import broken_step
from fmqcore.tests.ordered.chains import CLOSING, DONE, EMPTY, G1, G2, G3, NEXT, OPEN
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
    assert broken_step(AT_TWO, back)[0].startswith("K12"), "no step of the machine goes back"
    assert broken_step(AT_TWO, back, by_seek=True) == []
    assert subscriptions.seek(back, "app", {0: 1}) == back, "asked twice it is done once"
    assert subscriptions.seek(back, "app", {0: 9}).heads == (("app", (2,)),)
    assert subscriptions.seek(back, "app", {0: 0}) == back
    assert subscriptions.seek(NEXT, "app", {0: 2}).heads == (("app", (1,)),), "K8: 1 has no end"
    assert subscriptions.seek(AT_TWO, "other", {0: 1}) is AT_TWO


def test_seek_of_some_queues_leaves_the_others() -> None:
    first = replace(DONE.segments[0], first_sequence=(1, 1), start=(10, 10), end=(14, 14))
    second = replace(DONE.segments[1], first_sequence=(3, 3), start=(0, 0))
    chain = replace(DONE, queues=2, segments=(first, second), heads=(("app", (2, 2)),))
    assert subscriptions.seek(chain, "app", {1: 1}).heads == (("app", (2, 1)),)


def test_seek_back_delivers_again_what_a_release_had_passed() -> None:
    """`app` had read 3 and 4 in segment 1, which was then released at 2: they are in segment 2."""
    released = requests.release(AT_TWO, 1, (12,), {})
    assert window(released, "app", 0, G2, 0, 9).first == 2, "not delivered twice"
    back = subscriptions.seek(released, "app", {0: 1})
    again = replace(back, heads=(("app", (2,)),))
    assert window(again, "app", 0, G2, 0, 9).first == 0, "after the seek all is read again"
    floor = Floor(1, 1, (2,), (("app", (4,)), ("other", (4,))))
    dropped = replace(released, segments=released.segments[1:], floor=floor)
    forward = subscriptions.seek(dropped, "app", {0: 2})
    assert forward.floor == floor, "a head that does not go back keeps what it had finished"


def test_a_lost_group_is_given_up_and_heads_pass_it() -> None:
    left = replace(THREE, groups=(ChainGroup(G2), ChainGroup(G3)), heads=(("app", (1,)),))
    given_up = requests.give_up_group(left, G1)
    assert given_up.heads == (("app", (2,)),)
    assert [s.end == s.start for s in given_up.segments] == [True, False, True]
    assert given_up.closing == "group g1 is lost for good"
    assert requests.group_in_use(given_up, G1) is None
    assert requests.give_up_group(given_up, G1) == given_up
    assert broken_step(left, given_up, by_release=True) == []
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
