"""What failover is decided upon: each fact comes from its part, and none is left out."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.failover.evidence import Gatherer
from fmqbroker.failover.transitions import Frozen, Received
from fmqbroker.replication.view import LinkView
from fmqcore.failover.evidence import Evidence, Link, Record
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode

ME, OTHER, THIRD = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")
NOW_MS = 5000
RECORD = Record(OTHER, Epoch(3))
STATE = GroupState(Mode.NEW, Epoch(4), ME, OTHER, max_delivered_position=Position(99))


def doubts(holds: bool, acked_under: int = 0) -> SimpleNamespace:
    return SimpleNamespace(lacks=holds, tail_lost=holds, unproven=holds, acked_under=acked_under)


def gatherer(state: GroupState = STATE, **changes: Any) -> tuple[Gatherer, dict[str, Any]]:
    """It, and what it looks at; each of `changes` replaces one of those."""
    view = LinkView(
        connected=True, caught_up=True, lease_until_ms=7, heard=True, incarnation="k", whole=True
    )
    parts: dict[str, Any] = {
        "me": ME,
        "standing": SimpleNamespace(
            changeable=True,
            wanted=OTHER,
            superseded=True,
            live={ME: SimpleNamespace(epoch=Epoch(0), end=Position(80))},
            state=Versioned(state, 1),
            config=SimpleNamespace(policy_mark=6),
            widest_isr=frozenset({OTHER}),
        ),
        "upstream": SimpleNamespace(connected=True, caught_up=True, promised_until_ms=8),
        "doubts": doubts(True, acked_under=5),
        "links": {OTHER: view},
        "frozen": Frozen(Epoch(2), b"x", "eA=="),
        "received": Received(RECORD, b"x"),
        "held": Epoch(4),
        "end": Position(80),
        "kept_end": Position(80),
        "next_offsets": {1: 1},
    } | changes
    journal = SimpleNamespace(
        epoch=Epoch(9),
        end=parts["end"],
        doubts=parts["doubts"],
        state=SimpleNamespace(next_offsets=parts["next_offsets"]),
    )
    stands: Any = SimpleNamespace(
        me=parts["me"],
        group=parts["standing"],
        journal=journal,
        slave=SimpleNamespace(upstream=parts["upstream"]),
        master=SimpleNamespace(links=parts["links"], kept_end=lambda: parts["kept_end"]),
        gate=SimpleNamespace(zookeeper_leased=lambda: False),
    )
    terms: Any = SimpleNamespace(
        frozen=parts["frozen"], received=parts["received"], held=parts["held"]
    )
    clock: Any = SimpleNamespace(monotonic_ms=lambda: NOW_MS)
    return Gatherer(stands, terms, clock, "i"), parts


def evidence_of(one: Gatherer) -> Evidence:
    return one.evidence(fresh=True, stopping=True, checks=1, next_check_ms=2, next_move_ms=3)


def test_every_fact_is_taken_from_its_part() -> None:
    one, parts = gatherer(kept_end=Position(70))
    found = evidence_of(one)
    link = Link(True, True, True, 7, "k", True, False)
    expected = Evidence(
        session_live=True, fresh=True, wanted=OTHER, incarnation="i", superseded=True,
        lease_out=True, live=parts["standing"].live, held=Epoch(4), journal_epoch=Epoch(9),
        journal_end=Position(80), kept_end=Position(70), has_records=True, stopping=True,
        may_lack=True, tail_lost=True,
        unproven=True, other_policy=True, upstream_connected=True, upstream_caught_up=True,
        promised_until_ms=8, checks=1, next_check_ms=2, frozen=Epoch(2), frozen_offsets="eA==",
        behind=True, links={OTHER: link}, record=RECORD, next_move_ms=3,
        reader_gone_since_ms=None, lacking_since_ms=NOW_MS,
    )  # fmt: skip
    assert found == expected
    nothing = Evidence()
    same = [f.name for f in fields(found) if getattr(found, f.name) == getattr(nothing, f.name)]
    assert sorted(same) == ["newer_gone", "reader_gone_since_ms"], "in mode NEW there is no reader"


def test_newer_member_is_kept_until_the_state_has_its_epoch() -> None:
    one, parts = gatherer()
    group = parts["standing"]
    for epoch, remembered in ((7, {OTHER: 7}), (0, {}), (7, {OTHER: 7})):
        group.live = {OTHER: SimpleNamespace(epoch=Epoch(epoch), end=Position(80))}
        assert not evidence_of(one).newer_gone, "it is live"
        group.live = {}
        assert evidence_of(one).newer_gone == remembered, "with epoch 0 it came back empty"
    group.state = Versioned(replace(STATE, epoch=Epoch(7)), 1)
    assert not evidence_of(one).newer_gone


def test_what_is_not_there_is_no_fact() -> None:
    sound = doubts(False)
    state = GroupState(Mode.SLAVE_CONSUME, Epoch(4), ME, OTHER, max_delivered_position=Position(80))
    one, _ = gatherer(state, frozen=None, received=None, links={}, doubts=sound)
    found = evidence_of(one)
    assert (found.frozen, found.frozen_offsets, found.record) == (0, None, None)
    assert not any((found.may_lack, found.behind, found.tail_lost, found.unproven))
    assert not found.has_records, "only a group that was never opened asks for them"
    assert (found.links, found.lacking_since_ms) == ({}, None)
    assert found.reader_gone_since_ms == NOW_MS


def test_a_new_group_has_records_if_its_journal_has_some() -> None:
    assert evidence_of(gatherer()[0]).has_records
    assert not evidence_of(gatherer(next_offsets={})[0]).has_records


@pytest.mark.parametrize(("acked_under", "other"), [(0, False), (6, False), (5, True)])
def test_a_policy_is_another_if_it_is_known_and_differs(acked_under: int, other: bool) -> None:
    one, _ = gatherer(doubts=doubts(True, acked_under=acked_under))
    assert evidence_of(one).other_policy is other


@pytest.mark.parametrize(
    ("mode", "master", "held", "until_ms"),
    [
        (Mode.MASTER, ME, 4, 7),
        (Mode.MASTER, OTHER, 4, 0),  # bound to another
        (Mode.MASTER, ME, 3, 0),  # in another term
        (Mode.SLAVE_CONSUME, ME, 4, 0),
    ],
)
def test_grants_count_in_a_term_of_my_own_alone(
    mode: Mode, master: BrokerId, held: int, until_ms: int
) -> None:
    one, _ = gatherer(GroupState(mode, Epoch(4), master, OTHER), held=Epoch(held))
    assert one.granted_until() == until_ms
    assert not one.granted_now()


@pytest.mark.parametrize(("lease_until_ms", "now"), [(NOW_MS, False), (NOW_MS + 1, True)])
def test_a_grant_binds_until_its_moment(lease_until_ms: int, now: bool) -> None:
    links = {OTHER: LinkView(lease_until_ms=lease_until_ms)}
    one, _ = gatherer(GroupState(Mode.MASTER, Epoch(4), ME, ME), links=links)
    assert one.granted_now() is now


@pytest.mark.parametrize(
    ("my_end", "reader_end", "since_ms"),
    [
        (98, None, NOW_MS),
        (98, 98, NOW_MS),
        (98, 99, None),  # it is there and has it
        (99, None, None),
        (99, 98, None),
    ],
)
def test_what_was_served_is_lacking_if_no_live_broker_has_it(
    my_end: int, reader_end: int | None, since_ms: int | None
) -> None:
    one, parts = gatherer(kept_end=Position(my_end))
    if reader_end is not None:
        parts["standing"].live[OTHER] = SimpleNamespace(epoch=Epoch(0), end=Position(reader_end))
    assert evidence_of(one).lacking_since_ms == since_ms


def test_the_time_of_a_lack_begins_again_after_it_was_there() -> None:
    one, parts = gatherer()
    clock: Any = one._clock
    assert evidence_of(one).lacking_since_ms == NOW_MS
    clock.monotonic_ms = lambda: NOW_MS + 100
    assert evidence_of(one).lacking_since_ms == NOW_MS
    parts["standing"].live[OTHER] = SimpleNamespace(epoch=Epoch(0), end=Position(99))
    assert evidence_of(one).lacking_since_ms is None
    del parts["standing"].live[OTHER]
    assert evidence_of(one).lacking_since_ms == NOW_MS + 100
