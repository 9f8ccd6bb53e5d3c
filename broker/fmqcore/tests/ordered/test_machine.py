"""The table of the chain machine, row by row, and the sentences of what is awaited."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import GroupName
from fmqcore.ordered.delivery import window
from fmqcore.ordered.evidence import (
    Action,
    Duty,
    Evidence,
    GroupView,
    SenderReport,
    Serving,
)
from fmqcore.ordered.invariants import broken_invariants, broken_step
from fmqcore.ordered.machine import decide
from fmqcore.ordered.requests import release
from fmqcore.tests.ordered.chains import (
    ALL_WHOLE,
    CLOSING,
    DONE,
    EMPTY,
    ENDED,
    G1,
    G2,
    G3,
    LACKING,
    NEXT,
    NOW,
    OPEN,
    PARAMS,
    UNKNOWN,
    WHOLE,
    made,
)
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender

FULL_DISK = replace(WHOLE, full=True)
A, B = ("copier-1",), ("copier-2",)
LONG = NOW - 60_000
REPORT = SenderReport("copier-1", 1, (3,))
LACKS = {**ALL_WHOLE, G1: LACKING}
ALL_KEPT_OUT = dict.fromkeys(ALL_WHOLE, replace(WHOLE, avoid="a broker is restarted"))
CUT = replace(WHOLE, cut=True)
MASTER: dict[str, Any] = {"group": G1, "serving": Serving.MASTER}
READER: dict[str, Any] = {"group": G1, "serving": Serving.READER}


def _out(chain: Chain) -> Chain:
    return replace(chain, groups=(ChainGroup(G2), ChainGroup(G3)))


VACANT = replace(
    DONE,
    heads=(),
    segments=(
        replace(DONE.segments[0], end=DONE.segments[0].start),
        replace(DONE.segments[1], first_sequence=DONE.segments[0].first_sequence),
    ),
)
"""Its first segment ended without a record, and nothing reads the chain."""
STEPS: list[tuple[str, Duty, Chain, dict[str, Any], Action]] = [
    ("first", Duty.SEND, EMPTY, {"line": A, "groups": ALL_WHOLE}, Action.OPEN),
    ("no sender", Duty.SEND, EMPTY, {"groups": ALL_WHOLE}, Action.WAIT),
    ("calm", Duty.SEND, OPEN, {"line": A, "groups": ALL_WHOLE}, Action.WAIT),
    ("no line", Duty.SEND, OPEN, {"groups": ALL_WHOLE}, Action.WAIT),
    ("another sender", Duty.SEND, OPEN, {"line": B}, Action.CLOSE),
    ("group out", Duty.SEND, _out(OPEN), {"line": A, "groups": ALL_WHOLE}, Action.CLOSE),
    ("group kept out", Duty.SEND, OPEN,
     {"groups": {**ALL_WHOLE, G1: replace(WHOLE, avoid="g1 is restarted")}}, Action.CLOSE),
    ("sender does not reach it", Duty.SEND, OPEN,
     {"line": A, "groups": {**ALL_WHOLE, G1: CUT}}, Action.CLOSE),
    ("sender reaches no group", Duty.SEND, OPEN,
     {"line": A, "groups": dict.fromkeys(ALL_WHOLE, CUT)}, Action.WAIT),
    ("sender does not reach it, the others kept out", Duty.SEND, OPEN,
     {"line": A, "groups": {**ALL_KEPT_OUT, G1: CUT}}, Action.WAIT),
    ("kept out, sender does not reach the others", Duty.SEND, OPEN,
     {"line": A, "groups": {**dict.fromkeys(ALL_WHOLE, CUT), G1: ALL_KEPT_OUT[G1]}}, Action.WAIT),
    ("first, sender reaches no group", Duty.SEND, EMPTY,
     {"line": A, "groups": dict.fromkeys(ALL_WHOLE, CUT)}, Action.OPEN),
    ("all groups kept out", Duty.SEND, OPEN, {"line": A, "groups": ALL_KEPT_OUT}, Action.WAIT),
    ("member lost, the others kept out", Duty.SEND, OPEN,
     {"groups": {**ALL_KEPT_OUT, G1: LACKING}, "trouble_since_ms": LONG}, Action.CLOSE),
    ("first, all kept out", Duty.SEND, EMPTY, {"line": A, "groups": ALL_KEPT_OUT}, Action.OPEN),
    ("journal lost", Duty.SEND, OPEN, {"groups": {G1: replace(WHOLE, ends=(9,))}}, Action.CLOSE),
    ("slave serves reads", Duty.SEND, OPEN,
     {"groups": {G1: GroupView(reachable=True, read_only=True)}}, Action.CLOSE),
    ("member lost", Duty.SEND, OPEN, {"groups": LACKS, "trouble_since_ms": LONG}, Action.CLOSE),
    ("one member left in the configuration", Duty.SEND, OPEN,
     {"groups": {**ALL_WHOLE, G1: replace(WHOLE, members=1)}, "trouble_since_ms": LONG},
     Action.CLOSE),
    ("no room", Duty.SEND, OPEN,
     {"groups": {**ALL_WHOLE, G1: FULL_DISK}, "trouble_since_ms": LONG}, Action.CLOSE),
    ("no room anywhere", Duty.SEND, OPEN,
     {"groups": dict.fromkeys(ALL_WHOLE, FULL_DISK), "trouble_since_ms": LONG}, Action.WAIT),
    ("a moment", Duty.SEND, OPEN,
     {"groups": LACKS, "trouble_since_ms": NOW - 399}, Action.WAIT),
    ("no other group", Duty.SEND, OPEN,
     {"groups": {G1: LACKING}, "trouble_since_ms": LONG}, Action.WAIT),
    ("silent", Duty.SEND, OPEN,
     {"groups": {G2: WHOLE}, "trouble_since_ms": LONG}, Action.CLOSE),
    ("lease over", Duty.SEND, CLOSING,
     {"groups": LACKS, "closing_since_ms": NOW - 4_500}, Action.DECLARE_UNKNOWN),
    ("lease not over", Duty.SEND, CLOSING,
     {"groups": LACKS, "closing_since_ms": NOW - 4_499}, Action.WAIT),
    ("just seen", Duty.SEND, CLOSING, {"groups": LACKS}, Action.WAIT),
    ("next", Duty.SEND, ENDED,
     {"line": A, "report": REPORT, "groups": LACKS}, Action.OPEN),
    ("next without end", Duty.SEND, UNKNOWN,
     {"line": A, "report": REPORT, "groups": LACKS}, Action.OPEN),
    ("acked above the end", Duty.SEND, ENDED,
     {"line": A, "report": replace(REPORT, unacked=(6,)), "groups": LACKS}, Action.WAIT),
    ("all acked", Duty.SEND, ENDED,
     {"line": A, "report": replace(REPORT, unacked=(5,)), "groups": LACKS}, Action.OPEN),
    ("acked above the end, accepted", Duty.SEND, release(ENDED, 1, (12,), {}, accept_loss=True),
     {"line": A, "report": replace(REPORT, unacked=(6,)), "groups": LACKS}, Action.OPEN),
    ("no report", Duty.SEND, ENDED, {"line": A, "groups": LACKS}, Action.WAIT),
    ("report of another", Duty.SEND, ENDED,
     {"line": A, "report": replace(REPORT, sender="x"), "groups": LACKS}, Action.WAIT),
    ("old report", Duty.SEND, ENDED,
     {"line": A, "report": replace(REPORT, segment=0), "groups": LACKS}, Action.WAIT),
    ("new sender", Duty.SEND, ENDED, {"line": B, "groups": LACKS}, Action.OPEN),
    ("new sender, no end", Duty.SEND, UNKNOWN, {"line": B, "groups": LACKS}, Action.WAIT),
    ("new sender accepts", Duty.SEND, UNKNOWN,
     {"line": B, "groups": LACKS, "accepts_unknown": "copier-2"}, Action.OPEN),
    ("another accepts", Duty.SEND, UNKNOWN,
     {"line": B, "groups": LACKS, "accepts_unknown": "copier-1"}, Action.WAIT),
    ("seal", Duty.END, CLOSING, {**MASTER, "held": (14,)}, Action.SEAL),
    ("seal unknown", Duty.END, NEXT, {**MASTER, "held": (14,)}, Action.SEAL),
    ("members not heard", Duty.END, CLOSING, MASTER, Action.WAIT),
    ("master's end", Duty.END, CLOSING, {**MASTER, "sealed": {1: (14,)}}, Action.GIVE_END),
    ("late end", Duty.END, NEXT, {**MASTER, "sealed": {1: (12,)}}, Action.GIVE_END),
    ("acked lost", Duty.END, NEXT, {**MASTER, "sealed": {1: (11,)}}, Action.WAIT),
    ("below start", Duty.END, CLOSING, {**MASTER, "sealed": {1: (9,)}}, Action.WAIT),
    ("reader's end", Duty.END, CLOSING, {**READER, "durable_ends": (13,)}, Action.GIVE_END),
    ("end of a lost reader", Duty.END, DONE, {**MASTER, "whole_ends": (12,)}, Action.LOWER_END),
    ("a member is away", Duty.END, DONE, {**MASTER, "held": (12,)}, Action.WAIT),
    ("a reader's own end", Duty.END, DONE, {**READER, "durable_ends": (12,)}, Action.WAIT),
    ("acked above all members", Duty.END, DONE, {**MASTER, "whole_ends": (11,)}, Action.WAIT),
    ("consumed above all members", Duty.END, DONE,
     {**MASTER, "whole_ends": (12,), "progress": {"app": (13,)}}, Action.WAIT),
    ("all reach the end", Duty.END, DONE, {**MASTER, "whole_ends": (14,)}, Action.WAIT),
    ("not serving", Duty.END, CLOSING, {"group": G1, "held": (13,)}, Action.WAIT),
    ("not closing", Duty.END, OPEN, {**MASTER, "held": (14,)}, Action.WAIT),
    ("another's segment", Duty.END, CLOSING,
     {"group": G2, "serving": Serving.MASTER, "held": (14,)}, Action.WAIT),
    ("head", Duty.HEADS, DONE, {"group": G1, "progress": {"app": (14,)}}, Action.MOVE_HEADS),
    ("not all acked", Duty.HEADS, DONE, {"group": G1, "progress": {"app": (13,)}}, Action.WAIT),
    ("no end yet", Duty.HEADS, NEXT, {"group": G1, "progress": {"app": (14,)}}, Action.WAIT),
    ("drained", Duty.TIDY, replace(DONE, heads=(("app", (2,)),)), {}, Action.DROP),
    ("read still", Duty.TIDY, DONE, {}, Action.WAIT),
    ("never read", Duty.TIDY, replace(DONE, heads=()), {}, Action.WAIT),
    ("read by an unnamed group", Duty.TIDY,
     replace(DONE, heads=(("app", (2,)),), temporary=frozenset({"app"})), {}, Action.WAIT),
    ("an unnamed group reads still", Duty.TIDY,
     replace(DONE, heads=(("app", (2,)), ("fmq-1", (1,))), temporary=frozenset({"fmq-1"})),
     {"expired": frozenset({1})}, Action.WAIT),
    ("expired, left by an unnamed group", Duty.TIDY,
     replace(DONE, heads=(("app", (2,)),), temporary=frozenset({"app"})),
     {"expired": frozenset({1})}, Action.DROP),
    ("expired", Duty.TIDY, replace(DONE, heads=()), {"expired": frozenset({1})}, Action.DROP),
    ("empty, without a reader", Duty.TIDY, VACANT, {}, Action.DROP),
]  # fmt: skip


@pytest.mark.parametrize(
    ("duty", "chain", "evidence", "action"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS]
)
def test_each_row_takes_its_step_once(
    duty: Duty, chain: Chain, evidence: dict[str, Any], action: Action
) -> None:
    found = made(duty, chain, **evidence)
    assert found.action is action
    assert found.reason
    if found.edit is not None:
        assert broken_invariants(found.edit) == []
        assert broken_step(chain, found.edit, lowers=action is Action.LOWER_END) == []
        again = made(duty, found.edit, **evidence)
        assert again.edit is None or again.action is not action


def test_closing_raises_the_version_that_leases_look_at() -> None:
    found = made(Duty.SEND, OPEN, groups=LACKS, trouble_since_ms=LONG)
    assert found.raises == G1
    assert found.edit is not None
    assert found.edit.closing == "g1 lacks g1-1"


def test_opening_takes_present_ends_and_lowest_unacked() -> None:
    found = made(Duty.SEND, ENDED, line=A, report=REPORT, groups=LACKS)
    assert found.edit is not None
    opened = found.edit.segments[-1]
    assert (opened.group, opened.first_sequence, opened.start) == (G3, (3,), (10,))
    assert (found.edit.closing, found.edit.sender, found.raises) == (None, ENDED.sender, None)


def test_new_sender_goes_on_after_the_last_record() -> None:
    found = made(Duty.SEND, ENDED, line=B, groups=LACKS)
    assert found.edit is not None
    assert found.edit.sender == Sender("copier-2", 2)
    assert found.edit.segments[-1].first_sequence == (5,)


def test_master_seals_at_what_all_members_hold() -> None:
    assert made(Duty.END, CLOSING, **MASTER, held=(13,)).end == (13,)


ORDER: list[tuple[Chain, dict[GroupName, GroupView], GroupName]] = [
    (EMPTY, ALL_WHOLE, G3),
    (EMPTY, {**ALL_WHOLE, G3: LACKING}, G1),
    (ENDED, {**ALL_WHOLE, G1: replace(WHOLE, ends=(14,)), G3: LACKING}, G2),
    (ENDED, {G1: replace(WHOLE, ends=(14,))}, G1),
]


@pytest.mark.parametrize(("chain", "groups", "chosen"), ORDER)
def test_drained_groups_go_first_then_heavy_then_first_named(
    chain: Chain, groups: dict[GroupName, GroupView], chosen: GroupName
) -> None:
    found = made(Duty.SEND, chain, line=A, report=REPORT, groups=groups)
    assert found.edit is not None
    assert found.edit.segments[-1].group == chosen


FULL = replace(
    ENDED,
    segments=(
        *ENDED.segments,
        Segment(2, G2, 1, (5,), (0,), (4,)),
        Segment(3, G3, 1, (9,), (0,), (2,)),
    ),
)
"""No group is drained, the heaviest one has the closing segment."""


@pytest.mark.parametrize(("line", "chosen"), [(A, G1), (B, G3)])
def test_switch_leaves_the_group_and_a_new_sender_does_not(
    line: tuple[str, ...], chosen: GroupName
) -> None:
    report = SenderReport("copier-1", 3, (11,))
    groups = dict.fromkeys(ALL_WHOLE, replace(WHOLE, ends=(14,)))
    found = made(Duty.SEND, FULL, line=line, report=report, groups=groups)
    assert found.edit is not None
    assert found.edit.segments[-1].group == chosen


def test_only_the_closing_group_is_whole_then_it_goes_on() -> None:
    report = SenderReport("copier-1", 3, (11,))
    groups = {G3: replace(WHOLE, ends=(14,))}
    found = made(Duty.SEND, FULL, line=A, report=report, groups=groups)
    assert found.edit is not None
    assert found.edit.segments[-1].group == G3


OBSTACLES: list[tuple[GroupView, str]] = [
    (GroupView(), "its master does not answer"),
    (replace(WHOLE, takes_writes=False), "no master that takes writes"),
    (replace(WHOLE, members=1), "1 of 2 members: add a slave"),
    (LACKING, "g1-1 not in sync"),
    (replace(WHOLE, full=True), "disk limit"),
    (replace(LACKING, avoid="node n1 is drained"), "g1-1 not in sync"),
    (replace(WHOLE, ends=None), "do not all hold its last records"),
]


@pytest.mark.parametrize(("view", "sentence"), OBSTACLES)
def test_sender_learns_why_it_waits_for_each_group(view: GroupView, sentence: str) -> None:
    found = made(Duty.SEND, EMPTY, line=A, groups={G1: view, G2: view, G3: view})
    assert found.action is Action.WAIT
    assert found.reason.count(sentence) == 3


def test_group_without_an_end_or_its_journal_is_not_chosen() -> None:
    found = made(Duty.SEND, UNKNOWN, line=A, report=REPORT, groups={G1: WHOLE})
    assert "has not given the end of segment 1 yet" in found.reason
    found = made(Duty.SEND, ENDED, line=A, report=REPORT, groups={G1: WHOLE})
    assert "ends below segment 1: records were lost" in found.reason


def test_waiting_names_its_timer() -> None:
    found = made(Duty.SEND, CLOSING, groups=LACKS, closing_since_ms=NOW)
    assert found.wake_ms == NOW + CLOSING.lease_ms + PARAMS.margin_ms
    found = made(Duty.SEND, OPEN, groups=LACKS, trouble_since_ms=NOW)
    assert found.wake_ms == NOW + PARAMS.trouble_ms


def test_a_switch_costs_at_most_six_writes() -> None:
    """Also with an end that is unknown first: one write each, two for the closing."""
    steps: list[tuple[Duty, dict[str, Any]]] = [
        (Duty.SEND, {"line": A, "groups": LACKS, "trouble_since_ms": LONG}),
        (Duty.SEND, {"line": A, "groups": LACKS, "closing_since_ms": LONG}),
        (Duty.SEND, {"line": A, "groups": LACKS, "report": REPORT}),
        (Duty.END, {**READER, "durable_ends": (14,)}),
        (Duty.HEADS, {"group": G1, "progress": {"app": (14,)}}),
    ]
    chain, writes = OPEN, 0
    for duty, evidence in steps:
        found = decide(duty, chain, Evidence(**evidence), NOW, PARAMS)
        assert found.edit is not None
        chain = found.edit
        writes += 1 + (found.raises is not None)
    assert writes <= 6
    assert chain.heads == (("app", (2,)),)


def test_segment_with_accepted_loss_is_dropped_without_a_gap() -> None:
    lossy = replace(DONE.segments[0], end=(11,), loss=True)  # sequence 1; the next has 3 and on
    chain = replace(DONE, segments=(lossy, DONE.segments[1]), heads=(("app", (2,)),))
    assert broken_invariants(chain) == []
    found = made(Duty.TIDY, chain)
    assert found.action is Action.DROP
    assert found.edit is not None
    assert found.edit.floor.last_sequence == (2,)
    assert window(found.edit, "app", 0, G2, 0, 9).first == 0, "the next segment is read whole"
