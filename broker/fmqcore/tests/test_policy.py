"""Every policy × small clusters, against an oracle that knows only the definition."""

from itertools import combinations, product
from operator import attrgetter

import pytest

from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import (
    MIXED,
    AckPolicy,
    Flush,
    HowMany,
    MasterEnds,
    SlaveCounts,
    SlaveEnds,
    can_meet,
    commit_ends,
    counted_end,
    flush_mode,
    majority_slaves,
    mark_of,
    slaves_to_hear,
)

NOW, BEFORE = Epoch(5), Epoch(4)
NAMES = tuple(BrokerId(f"s{n}") for n in range(4))
ZONES = ("here", "there", "here", "yonder")
ZONE_OF = dict(zip(NAMES, ZONES, strict=True))
POLICIES = [
    AckPolicy(flush, 1000, counts, how_many, strict)
    for flush, counts, how_many, strict in product(Flush, SlaveCounts, HowMany, (False, True))
]
EVERYWHERE = AckPolicy(Flush.FSYNC, 0, SlaveCounts.DURABLE, HowMany.ALL)
Isr = frozenset[BrokerId]


def subsets(items: tuple[BrokerId, ...]) -> list[Isr]:
    return [frozenset(c) for n in range(len(items) + 1) for c in combinations(items, n)]


def enough(policy: AckPolicy, holders: Isr, isr: Isr, names: tuple[BrokerId, ...]) -> bool:
    """By definition: do these holders, of that in-sync set, make an acknowledgement?"""
    counted = holders & isr
    members = len(names) + 1
    match policy.how_many:
        case HowMany.NONE:
            return True
        case HowMany.ONE:
            return len(counted) >= 1
        case HowMany.MAJORITY:
            return 1 + len(counted) > members / 2
        case HowMany.ALL if policy.strict:
            return holders & isr == frozenset(names)
        case HowMany.ALL:
            return counted == isr & frozenset(names) and (bool(counted) or not names)
        case HowMany.ZONES:
            return len({ZONE_OF[b] == "here" for b in counted}) == 2
    raise AssertionError


def oracle(
    policy: AckPolicy,
    master: MasterEnds,
    slaves: dict[BrokerId, SlaveEnds],
    isrs: tuple[Isr, ...],
) -> int:
    """Return the highest end that satisfies the definition, tried one by one."""
    own = {Flush.FSYNC: master.durable_end}.get(policy.flush, master.written_end)
    what = {"sent": "sent_end", "received": "received_end", "durable": "durable_end"}
    held_of = attrgetter(what[policy.counts.value])
    held = {b: held_of(e) for b, e in slaves.items() if e.epoch == master.epoch}
    best = 0
    for end in range(own + 1):
        holders = frozenset(b for b, to in held.items() if to >= end)
        if all(enough(policy, holders, isr, tuple(slaves)) for isr in isrs):
            best = end
    return best if best > master.epoch_start else 0


def ends_of(durable: int, zone: str) -> SlaveEnds:
    """Received one further, sent two further, so that mix-ups show; -1: an old ack."""
    if durable < 0:
        return SlaveEnds(Position(9), Position(9), Position(9), BEFORE, zone)
    p = Position
    return SlaveEnds(p(durable + 2), p(durable + 1), p(durable), NOW, zone)


def isr_pairs(names: tuple[BrokerId, ...]) -> list[tuple[Isr, ...]]:
    """Return one set, or two that differ by one member: a change in doubt."""
    sets = subsets(names)
    if len(names) > 2:
        return [(s,) for s in sets]
    return [(s,) for s in sets] + [(a, b) for a in sets for b in sets if len(a ^ b) == 1]


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_commit_end_matches_the_definition(size: int) -> None:
    names = NAMES[:size]
    masters = [
        MasterEnds(Position(w), Position(d), NOW, Position(s), "here")
        for w, d, s in ((1, 0, 0), (3, 1, 0), (4, 4, 0), (4, 2, 2))
    ]
    masters = masters[1:3] if size == 3 else masters
    seen: set[int] = set()
    for durables in product((-1, 0, 1, 2), repeat=size):
        slaves = {n: ends_of(d, z) for n, d, z in zip(names, durables, ZONES[:size], strict=True)}
        for master, isrs in product(masters, isr_pairs(names)):
            on_all = oracle(EVERYWHERE, master, slaves, isrs)
            for policy in POLICIES:
                found = commit_ends(policy, master, slaves, isrs)
                wanted = oracle(policy, master, slaves, isrs)
                assert found.commit_end == wanted, (policy, master, slaves, isrs)
                assert found.all_end == on_all
                seen.add(found.commit_end)
    assert len(seen) >= 3, "the cases tried too little"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4])
def test_can_meet_means_some_ends_would_satisfy(size: int) -> None:
    names = NAMES[:size]
    zones = dict(zip(names, ZONES, strict=False))
    for policy, isr in product(POLICIES, subsets(names)):
        reason = can_meet(policy, zones, "here", isr)
        assert (reason == "") == enough(policy, frozenset(names), isr, names), (policy, isr)
        assert not reason or "in sync now" in reason


def test_can_meet_ignores_in_sync_brokers_that_are_no_members() -> None:
    stranger = frozenset({BrokerId("gone")})
    assert can_meet(AckPolicy(), {NAMES[0]: "here"}, "here", stranger)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4])
def test_heard_brokers_cover_every_possible_acknowledgement(size: int) -> None:
    names = NAMES[:size]
    for policy, isr in product(POLICIES, subsets(names)):
        if policy.strict:
            continue
        hear = slaves_to_hear(policy, len(isr), size)
        assert 0 <= hear <= len(isr)
        assert slaves_to_hear(policy, len(isr)) >= hear
        if policy.flush is Flush.FSYNC or policy.how_many is HowMany.NONE:
            assert hear == 0
            continue
        acks = [s for s in subsets(names) if s <= isr and enough(policy, s, isr, names)]
        for heard in subsets(tuple(sorted(isr))):
            if len(heard) == hear:
                assert all(heard & ack for ack in acks if ack), (policy, isr, heard)


def test_no_more_brokers_are_heard_than_needed() -> None:
    cached = AckPolicy(Flush.OS_CACHE, how_many=HowMany.ALL)
    assert slaves_to_hear(cached, 3) == 1
    majority = AckPolicy(Flush.OS_CACHE, how_many=HowMany.MAJORITY)
    assert slaves_to_hear(majority, 4, 4) == 3
    assert slaves_to_hear(AckPolicy(Flush.OS_CACHE), 3) == 3


@pytest.mark.parametrize("flush", [Flush.OS_CACHE, Flush.INTERVAL])
@pytest.mark.parametrize(
    ("how_many", "in_sync", "configured"),
    [(HowMany.ZONES, 1, 2), (HowMany.ZONES, 1, 4), (HowMany.MAJORITY, 1, 4), (HowMany.ALL, 1, 4)],
)
def test_all_are_heard_if_too_few_are_in_sync_to_acknowledge(
    flush: Flush, how_many: HowMany, in_sync: int, configured: int
) -> None:
    """Existing records were acknowledged when there were more; each in-sync slave has them."""
    assert slaves_to_hear(AckPolicy(flush, how_many=how_many), in_sync, configured) == in_sync


def test_mark_distinguishes_all_inputs_of_the_acknowledgement() -> None:
    """F18: under another policy, or with other slaves to count, an earlier heard set is void."""
    zones = [(), ("here",), ("here", "here"), ("here", "there"), ("there", "there")]
    marks = {mark_of(policy, of) for policy, of in product(POLICIES, zones)}
    assert len(marks) == len(POLICIES) * len(zones)
    assert all(0 < mark < MIXED for mark in marks)
    assert mark_of(POLICIES[0], ("there", "here")) == mark_of(POLICIES[0], ("here", "there"))
    slower = AckPolicy(flush_interval_ms=70)
    assert mark_of(slower, ()) == mark_of(AckPolicy(), ()), "how often says nothing of who"


@pytest.mark.parametrize(("configured", "need"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_majority_counts_the_master(configured: int, need: int) -> None:
    assert majority_slaves(configured) == need


def test_brokers_that_fsync_under_each_policy() -> None:
    modes = {
        (f, c): (
            flush_mode(AckPolicy(f, 70, c), master=True),
            flush_mode(AckPolicy(f, 70, c), master=False),
        )
        for f, c in product(Flush, SlaveCounts)
    }
    fsync, interval, cached = Flush.FSYNC, Flush.INTERVAL, Flush.OS_CACHE
    for counts in SlaveCounts:
        durable = counts is SlaveCounts.DURABLE
        assert modes[fsync, counts] == ((True, 70), (durable, 70))
        assert modes[interval, counts] == ((False, 70), (durable, 70))
        assert modes[cached, counts] == ((False, 0), (durable, 70))


@pytest.mark.parametrize("left", [(), ("s2",)])
def test_all_waits_until_a_removed_member_leaves_the_set(left: tuple[str, ...]) -> None:
    """R6: the set shrinks first; then acknowledgements do without that member."""
    gone, rest = BrokerId("s1"), tuple(map(BrokerId, left))
    master = MasterEnds(Position(90), Position(90), Epoch(3), Position(10), "")
    slaves = {b: SlaveEnds(Position(90), Position(90), Position(90), Epoch(3)) for b in rest}
    before, after = frozenset({gone, *rest}), frozenset(rest)
    assert commit_ends(EVERYWHERE, master, slaves, [before]).commit_end == 0
    assert commit_ends(EVERYWHERE, master, slaves, [before, after]).commit_end == 0
    assert commit_ends(EVERYWHERE, master, slaves, [after]).commit_end == 90


def test_bytes_a_slave_already_has_count_as_sent() -> None:
    """It returned with everything: no bytes can be sent to it before it counts."""
    has = SlaveEnds(Position(0), Position(700), Position(700), NOW)
    assert counted_end(AckPolicy(counts=SlaveCounts.SENT), has) == 700
    more = SlaveEnds(Position(900), Position(700), Position(700), NOW)
    assert counted_end(AckPolicy(counts=SlaveCounts.SENT), more) == 900
