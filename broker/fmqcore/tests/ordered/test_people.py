"""What people see of a chain: times of steps, groups by their nodes, waits."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId, Epoch, GroupName, Permission
from fmqcore.ordered.evidence import GroupView, Params, Phase
from fmqcore.ordered.group_views import view_of_nodes
from fmqcore.ordered.moments import stamped
from fmqcore.ordered.waits import ReadWait, SendState, read_waits, send_state, stuck_segments
from fmqcore.tests.ordered.chains import (
    CLOSING,
    DONE,
    EMPTY,
    ENDED,
    G1,
    G2,
    G3,
    LACKING,
    NEXT,
    OPEN,
)
from fmqcore.zk.chain import Chain
from fmqcore.zk.group_config import GroupConfig, KeptOut, Member, Removal
from fmqcore.zk.group_state import GroupState, Mode

A, B = BrokerId("g1-0"), BrokerId("g1-1")
CONFIG = GroupConfig(G1, A, (Member(A, "a:1"), Member(B, "b:1")))
SERVING = GroupState(Mode.MASTER, Epoch(1), A, A, frozenset([B]))
BY_NODES = GroupView(reachable=True, takes_writes=True, members=2, serves_reads=True)
"""A whole group, whose master was not asked for its ends."""


# ---- times
def test_each_step_gets_its_time_and_keeps_it() -> None:
    opened = stamped(EMPTY, OPEN, 1_000)
    assert opened.segments[0].opened_ms == 1_000
    closing = stamped(opened, replace(opened, closing="planned"), 2_000)
    assert closing.closing_since_ms == 2_000
    ended = replace(closing.segments[0], end=(14,))
    given = stamped(closing, replace(closing, segments=(ended,)), 3_000)
    assert (given.closing_since_ms, given.segments[0].ended_ms) == (2_000, 3_000)
    assert stamped(given, given, 9_000) == given
    following = replace(given, segments=(*given.segments, NEXT.segments[1]), closing=None)
    after = stamped(given, following, 4_000)
    assert after.closing_since_ms == 0
    assert [(s.opened_ms, s.ended_ms) for s in after.segments] == [(1_000, 3_000), (4_000, 0)]
    again = stamped(after, replace(after, closing="another"), 5_000)
    assert again.closing_since_ms == 5_000


def test_unknown_end_has_a_time_and_a_later_end_another() -> None:
    unknown = replace(CLOSING.segments[0], end_unknown=True)
    declared = stamped(CLOSING, replace(CLOSING, segments=(unknown,)), 7)
    assert declared.segments[0].ended_ms == 7
    given = replace(declared.segments[0], end=(14,), end_unknown=False)
    assert stamped(declared, replace(declared, segments=(given,)), 8).segments[0].ended_ms == 8


# ---- groups by their nodes
def test_whole_group_is_seen_from_its_nodes() -> None:
    assert view_of_nodes(CONFIG, SERVING, {A, B}) == BY_NODES


def test_member_not_live_or_not_in_sync_is_missing() -> None:
    assert view_of_nodes(CONFIG, SERVING, {A}).missing == (B,)
    learner = replace(SERVING, isr=frozenset())
    assert view_of_nodes(CONFIG, learner, {A, B}).missing == (B,)
    assert view_of_nodes(CONFIG, replace(SERVING, isr=frozenset()), {B}).missing == (A, B)


def test_master_that_may_only_read_takes_no_writes() -> None:
    master, slave = CONFIG.members
    reads = replace(CONFIG, members=(replace(master, permission=Permission.READ), slave))
    assert view_of_nodes(reads, SERVING, {A, B}) == replace(BY_NODES, takes_writes=False)


def test_group_without_master_takes_no_writes() -> None:
    dead = view_of_nodes(CONFIG, SERVING, {B})
    assert (dead.reachable, dead.takes_writes, dead.read_only) == (False, False, False)
    taken = GroupState(Mode.SLAVE_CONSUME, Epoch(2), A, B)
    reading = view_of_nodes(CONFIG, taken, {A, B})
    assert (reading.takes_writes, reading.read_only) == (False, True)
    new = view_of_nodes(CONFIG, GroupState(), {A, B})
    assert not new.takes_writes


def test_group_being_removed_is_kept_out() -> None:
    leaving = view_of_nodes(replace(CONFIG, removal=Removal.DRAINING), SERVING, {A, B})
    assert leaving.avoid == "it is being removed from the cluster"
    rolling = replace(CONFIG, kept_out=KeptOut("g1-1 is restarted", 7))
    assert view_of_nodes(rolling, SERVING, {A, B}).avoid == "g1-1 is restarted"


def test_group_kept_out_is_chosen_last() -> None:
    kept = replace(BY_NODES, avoid="a broker is restarted")
    assert sends(EMPTY, "a", g1=kept, g2=kept).reason.endswith("in g3")
    last = sends(EMPTY, "a", g1=kept, g2=GroupView(), g3=GroupView())
    assert "sends into segment 1 in g1" in last.reason
    assert last.obstacles[G1] == "a broker is restarted"


# ---- waits
def sends(chain: Chain, *line: str, wall_ms: int = 100_000, **groups: GroupView) -> SendState:
    given = {GroupName(name): view for name, view in groups.items()}
    views = dict.fromkeys((G1, G2, G3), BY_NODES) | given
    return send_state(chain, views, line, wall_ms, Params())


def test_open_segment_takes_the_sends() -> None:
    chain = replace(OPEN, segments=(replace(OPEN.segments[0], opened_ms=5),))
    state = sends(chain, "copier-1")
    assert (state.phase, state.reason) == (Phase.OPEN, "copier-1 sends into segment 1 in g1")
    assert state.since_ms == 5
    assert state.obstacles == {"g1": "", "g2": "", "g3": ""}, "ends are not asked for"


def test_open_segment_without_a_sender_waits_for_one() -> None:
    assert sends(OPEN).reason == "no sender is in line; segment 1 in g1 waits for one"


def test_empty_chain_waits_for_a_sender() -> None:
    state = sends(EMPTY)
    assert (state.phase, state.reason) == (Phase.EMPTY, "no sender has asked for the role")
    assert state.since_ms == 0


def test_step_that_is_due_is_named_without_the_groups_ends() -> None:
    assert sends(EMPTY, "a").reason == "next step: a sends into segment 1 in g3"
    assert sends(ENDED, "b").reason == "next step: b sends into segment 2 in g3"


def test_closing_waits_for_the_end_and_then_for_the_report() -> None:
    state = sends(replace(CLOSING, closing_since_ms=99_000), "copier-1")
    assert (state.phase, state.since_ms) == (Phase.CLOSING, 99_000)
    assert state.reason == "waits for g1 to give the end of segment 1"
    late = sends(replace(CLOSING, closing_since_ms=90_000), "copier-1")
    assert late.reason.startswith("next step: the end of segment 1 in g1 is unknown")
    assert "has not reported yet" in sends(ENDED, "copier-1").reason


def test_obstacles_are_named_for_each_group() -> None:
    state = sends(ENDED, "copier-2", g1=LACKING, g2=GroupView(), g3=LACKING)
    assert state.obstacles == {
        "g1": "g1-1 not in sync",
        "g2": "its master does not answer",
        "g3": "g1-1 not in sync",
    }
    assert state.reason.startswith("no group may take sends: g1: g1-1 not in sync; g2: its master")


def test_subscription_waits_for_an_unknown_end_only() -> None:
    assert read_waits(OPEN) == []
    unknown = replace(NEXT.segments[0], ended_ms=3)
    chain = replace(NEXT, segments=(unknown, NEXT.segments[1]))
    assert read_waits(chain) == [ReadWait("app", (0,), 1, G1, 3)]
    assert read_waits(replace(chain, heads=(("app", (2,)),))) == []


TAKEN = GroupState(Mode.SLAVE_CONSUME, Epoch(2), A, B)


@pytest.mark.parametrize(
    ("state", "live", "remedy"),
    [
        (SERVING, {A, B}, "all brokers of g1 are there; if they serve (`fmq status`) and do not "
         "give it, run {}"),
        (SERVING, {A}, "g1 may lack what g1-1 holds: start g1-1; if lost for good, run {}"),
        (TAKEN, {B}, "g1 may lack what g1-0 holds: start g1-0; if lost for good, run {}"),
        (replace(SERVING, isr=frozenset()), {A, B}, "wait until g1-1 is in sync in g1, or run {}"),
        (SERVING, set(), "no broker serves the reads of g1: start g1-0, g1-1; if their data is "
         "lost for good, start them without it, run `fmq cluster begin-again g1`, and then {} with "
         "--accept-loss"),
        (TAKEN, {A}, "no broker serves the reads of g1 yet: start g1-1, and see `fmq status`"),
        (GroupState(), {A, B}, "no broker serves the reads of g1 yet, though all are there: see "
         "`fmq status`"),
    ],
)  # fmt: skip
def test_advice_on_an_unknown_end_depends_on_who_is_there(
    state: GroupState, live: set[BrokerId], remedy: str
) -> None:
    views = {G1: view_of_nodes(CONFIG, state, live)}
    assert stuck_segments(NEXT, views) == {1: remedy.format("`fmq ordered release changes 1`")}
    unread = replace(OPEN, heads=())
    assert stuck_segments(unread, views) == {}


def test_advice_on_an_end_of_a_group_not_seen_is_general() -> None:
    assert "bring back a member of g1, or run" in stuck_segments(NEXT, {})[1]


def test_reader_of_a_group_that_is_gone_waits() -> None:
    views = {G1: view_of_nodes(CONFIG, SERVING, set())}
    stuck = stuck_segments(DONE, views)
    assert stuck[1].startswith("no broker serves the reads of g1: start g1-0, g1-1;")
    assert read_waits(DONE, stuck) == [ReadWait("app", (0,), 1, G1, 0)]
    assert stuck_segments(DONE, {G1: view_of_nodes(CONFIG, SERVING, {A})}) == {}


@pytest.mark.parametrize(
    ("end", "remedy"), [(14, None), (12, "lowers it once"), (11, "release changes 1` with --acc")]
)
def test_reader_below_an_end_that_is_lost_waits(end: int, remedy: str | None) -> None:
    views = {G1: replace(BY_NODES, ends=(end,))}
    found = stuck_segments(DONE, views)
    assert list(found) == ([] if remedy is None else [1])
    assert remedy is None or remedy in found[1]


def test_reader_of_a_later_lost_end_waits_too() -> None:
    """Both segments of g1 end above what it holds; consumers read the later one only."""
    first = DONE.segments[0]
    later = replace(first, number=2, start=(14,), end=(20,), first_sequence=(15,))
    chain = replace(DONE, segments=(first, later), heads=(("app", (2,)), ("audit", (1,))))
    views = {G1: replace(BY_NODES, ends=(12,))}
    assert list(stuck_segments(chain, views)) == [1, 2]
    assert list(stuck_segments(replace(chain, heads=chain.heads[:1]), views)) == [2]
