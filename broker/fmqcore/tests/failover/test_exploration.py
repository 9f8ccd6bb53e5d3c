"""Explore the failover protocol: `decide` in a small world (`failover/world.py`).

The exploration is tested, too: planted mistakes in the protocol must be found.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fmqcore.failover import guards as g
from fmqcore.failover.evidence import Link
from fmqcore.failover.term_rules import FOREVER
from fmqcore.ids import BrokerId, Permission
from fmqcore.tests.failover.events import successors
from fmqcore.tests.failover.ways import explore, heal, walk
from fmqcore.tests.failover.world import (
    Protocol,
    World,
    handing_over,
    learner,
    new,
    planted,
    serves,
    taken_over,
    whole,
)
from fmqcore.zk.group_state import Mode

GOOD = Protocol()
WITHOUT_READS = Protocol(master_reads=False)  # a person took READ from the master
LARGE = Protocol(records_fit=False)  # takeover records too large for the group's state
Root = Callable[..., World]


@pytest.mark.parametrize(
    ("root", "cuts", "crashes", "at_least"),
    [
        (whole, 1, 1, 50_000),
        (whole, 0, 2, 30_000),
        (taken_over, 1, 0, 20_000),
        (taken_over, 0, 1, 20_000),
        (handing_over, 0, 1, 5_000),
        (new, 1, 0, 5_000),
        (new, 0, 1, 3_000),
    ],
)
def test_one_slave_all_worlds_keep_the_invariants(
    root: Root, cuts: int, crashes: int, at_least: int
) -> None:
    worlds, way = explore(root(1, cuts=cuts, crashes=crashes), GOOD, 1_000, 1_000_000)
    assert not way
    assert at_least < worlds < 1_000_000  # to the end: nothing was left out


def test_an_orderly_stop_gives_the_reads_away() -> None:
    start = whole(1, cuts=1, crashes=0)._replace(stops=1)
    worlds, way = explore(start, GOOD, 1_000, 1_000_000)
    assert not way
    assert 5_000 < worlds < 1_000_000


@pytest.mark.parametrize(("slaves", "limit"), [(1, 1_000_000), (2, 60_000)])
def test_a_stopping_reader_leaves_its_record(slaves: int, limit: int) -> None:
    start = taken_over(slaves, cuts=0, crashes=1)._replace(stops=2)
    worlds, way = explore(start, GOOD, 1_000, limit)
    assert not way
    assert worlds > 20_000


@pytest.mark.parametrize("root", [taken_over, handing_over])
def test_reader_of_a_master_without_reads_keeps_the_invariants(root: Root) -> None:
    start = root(1, cuts=0, crashes=1)._replace(stops=1)
    worlds, way = explore(start, WITHOUT_READS, 1_000, 1_000_000)
    assert not way
    assert 5_000 < worlds < 1_000_000


@pytest.mark.parametrize("stops", [0, 1])
def test_reader_restarted_beside_a_dead_master_serves_again(stops: int) -> None:
    """A person takes READ from a dead master; then the reader stops in order, or crashes."""
    start = taken_over(1, cuts=0, crashes=1 - stops)._replace(stops=stops)
    left = Mode.HANDOVER if stops else Mode.SLAVE_CONSUME
    gone = [w for w in without_master(start) if w.zk.mode is left and 1 not in w.nodes]
    assert gone
    for world in gone:
        again = without_master(world)
        assert any(serves(w, 1, WITHOUT_READS) is Permission.READ for w in again)


def without_master(start: World) -> set[World]:
    """Return all worlds that come after one while broker 0 stays down."""
    seen, frontier = {start}, [start]
    while frontier:
        ways = successors(frontier.pop(), WITHOUT_READS)
        after = {world for label, world in ways if label != "restart 0"} - seen
        seen |= after
        frontier += after
    return seen


@pytest.mark.parametrize("root", [whole, taken_over, handing_over, learner, new])
def test_two_slaves_bounded_worlds_keep_the_invariants(root: Root) -> None:
    worlds, way = explore(root(2, cuts=3, crashes=1), GOOD, 100, 25_000)
    assert not way
    assert worlds > 25_000


def test_random_walks_heal_once_faults_end() -> None:
    roots = (whole, taken_over, learner, new)
    modes = dict.fromkeys(Mode, 0)
    for seed in range(240):
        start = roots[seed % 4](1 + seed // 4 % 2, cuts=60, crashes=30)
        protocol = LARGE if seed % 3 else GOOD
        world, way = walk(start, protocol, seed, 200)
        assert not way, f"seed {seed}"
        modes[world.zk.mode] += 1
        healed = heal(world, protocol)
        assert healed.zk.mode is Mode.MASTER, f"seed {seed} stays {healed}"
        assert serves(healed, 0, protocol) is Permission.FULL, f"seed {seed}"
    assert all(modes.values()), f"walks that never saw a mode prove little: {modes}"


def _any_grant(isr: frozenset[BrokerId], links: dict[BrokerId, Link]) -> int:
    return max((links.get(b, Link()).lease_until_ms for b in isr), default=FOREVER)


BEFORE_OFFSETS = planted(LARGE, g.RECORD_IN.name, Mode.HANDOVER)
MISTAKES = [
    # the four of the failover protocol
    ("any slave's grant", replace(GOOD, granted_until=_any_grant, memo={}), whole, 2),
    ("a claim ignores the live node", planted(GOOD, g.MASTER_GONE.name), whole, 1),
    ("a claim ignores promises", planted(GOOD, g.PROMISE_OVER.name), whole, 1),
    ("READ on watch, before the offsets", BEFORE_OFFSETS, handing_over, 1),
    ("the master opens beside a reader", planted(GOOD, g.RECORD_IN.name), taken_over, 1),
    # and cases the design left open
    ("a claim of one who is not in sync", planted(GOOD, g.IN_ISR.name), whole, 1),
    ("the master takes back from a live reader", planted(GOOD, g.READER_GONE.name), taken_over, 1),
    ("the live nodes are read before the state", replace(GOOD, state_first=False), whole, 1),
    ("a term survives a gap of the live node", replace(GOOD, new_term_after_gap=False), whole, 1),
    ("so it does for a reader", replace(GOOD, new_term_after_gap=False), taken_over, 1),
    ("grants while a claim is under way", replace(GOOD, grants_while_claiming=True), whole, 1),
    ("an unanswered isr change is not counted", replace(GOOD, count_unsettled=False), learner, 2),
]


@pytest.mark.parametrize(
    ("protocol", "root", "slaves"),
    [m[1:] for m in MISTAKES],
    ids=[str(m[0]).replace(" ", "-") for m in MISTAKES],
)
def test_planted_mistakes_are_found(protocol: Protocol, root: Root, slaves: int) -> None:
    fresh = replace(protocol, memo={})
    worlds, way = explore(root(slaves, cuts=3, crashes=0), fresh, 20, 130_000)
    assert way, f"not found in {worlds} worlds"
    early = protocol is BEFORE_OFFSETS
    assert way[-1] == ("READ is given back before the offsets" if early else "two readers serve")
