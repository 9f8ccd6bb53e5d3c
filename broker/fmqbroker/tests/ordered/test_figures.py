"""The figures of ordered topics."""

from dataclasses import replace

import pytest

from fmqbroker.ordered.figures import REASONS, Figures, figures_of, switch_reason
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.evidence import (
    Action,
    CloseReason,
    Duty,
    Evidence,
    GroupView,
    Params,
    Phase,
)
from fmqcore.ordered.machine import RULES, decide
from fmqcore.ordered.transitions import close
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender

G1, G2 = GroupName("g1"), GroupName("g2")
OPEN = Chain(
    "changes",
    1,
    (ChainGroup(G1), ChainGroup(G2)),
    (Segment(1, G1, 1, (1,), (10,)),),
    sender=Sender("a-0000000001", 1),
    heads=(("app", (1,)), ("audit", (1,))),
    topic_id=TopicId(3),
)
CLOSING = replace(
    OPEN, closing="g1 does not answer", closing_class="trouble", closing_since_ms=5_000
)
UNKNOWN = replace(CLOSING, segments=(replace(OPEN.segments[0], end_unknown=True),))
NEXT = replace(
    UNKNOWN,
    segments=(*UNKNOWN.segments, Segment(2, G2, 1, (4,), (0,))),
    closing=None,
    closing_class="",
)
WHOLE = GroupView(reachable=True, takes_writes=True, members=2, ends=(20,))

FIGURES: list[tuple[str, Chain, int | None, Figures]] = [
    ("open", OPEN, 1_000, Figures(1, 0.0, 0, 0)),
    ("closing", CLOSING, 1_000, Figures(1, 4.0, 0, 0)),
    ("no sender waits", CLOSING, None, Figures(1, 0.0, 0, 0)),
    ("the sender came later", CLOSING, 8_500, Figures(1, 0.5, 0, 0)),
    ("another clock is ahead", CLOSING, 9_500, Figures(1, 0.0, 0, 0)),
    ("no segment yet", replace(OPEN, segments=()), 8_000, Figures(0, 1.0, 0, 0)),
    ("unknown", UNKNOWN, 1_000, Figures(1, 4.0, 2, 1)),
    ("goes on", NEXT, 1_000, Figures(2, 0.0, 2, 1)),
    ("one has left", replace(NEXT, heads=(("app", (2,)),)), 1_000, Figures(2, 0.0, 0, 1)),
]


@pytest.mark.parametrize(
    ("chain", "waiting_since_ms", "wanted"), [f[1:] for f in FIGURES], ids=[f[0] for f in FIGURES]
)
def test_figures(chain: Chain, waiting_since_ms: int | None, wanted: Figures) -> None:
    assert figures_of(chain, waiting_since_ms, 9_000) == wanted


def test_open_segment_whose_group_is_in_trouble_is_unavailable() -> None:
    assert figures_of(OPEN, 1_000, 9_000, trouble_since_ms=6_000).unavailable_s == 3
    assert figures_of(OPEN, 8_000, 9_000, trouble_since_ms=6_000).unavailable_s == 1
    assert figures_of(OPEN, None, 9_000, trouble_since_ms=6_000).unavailable_s == 0


LACKS = replace(WHOLE, missing=("g1-1",))  # type: ignore[arg-type]
SENTENCES: list[tuple[str, Chain, GroupView]] = [
    ("sender", replace(OPEN, sender=Sender("b-0000000000", 1)), WHOLE),
    ("journal", OPEN, replace(WHOLE, ends=(9,))),
    ("removal", replace(OPEN, groups=(ChainGroup(G2), ChainGroup(GroupName("g3")))), WHOLE),
    ("request", OPEN, replace(WHOLE, avoid="g1-1 is restarted: image a -> b")),
    ("unreached", OPEN, replace(WHOLE, cut=True)),
    ("takeover", OPEN, GroupView(reachable=True, read_only=True)),
    ("trouble", OPEN, GroupView()),
    ("trouble", OPEN, GroupView(reachable=True)),
    ("trouble", OPEN, LACKS),
]


@pytest.mark.parametrize(("label", "chain", "view"), SENTENCES)
def test_each_reason_of_the_machine_has_its_label(
    label: str, chain: Chain, view: GroupView
) -> None:
    evidence = Evidence(groups={G1: view, G2: WHOLE}, line=("a-0000000001",), trouble_since_ms=0)
    found = decide(Duty.SEND, chain, evidence, 60_000, Params())
    assert (found.action, found.edit is not None) == (Action.CLOSE, True)
    assert found.edit is not None
    assert switch_reason(chain, found.edit) == label
    assert label in REASONS


def test_every_close_of_the_machine_is_in_the_table_above() -> None:
    rows = RULES.rows[Duty.SEND, Phase.OPEN]
    assert {label for label, _, _ in SENTENCES} == {row.reason for row in rows}


CHANGES: list[tuple[str, Chain | None, Chain, str]] = [
    ("first look", None, CLOSING, ""),
    ("closed", OPEN, CLOSING, "trouble"),
    ("end not known", CLOSING, UNKNOWN, ""),
    ("opened", UNKNOWN, NEXT, ""),
    ("closed and opened between two reads", OPEN, NEXT, "request"),
    ("closed again", NEXT, close(NEXT, "g2 lacks a word", CloseReason.REMOVAL), "removal"),
    ("class of a newer broker", NEXT, replace(NEXT, closing="x", closing_class="y"), "request"),
    (
        "opened and closed between two reads",
        UNKNOWN,
        replace(CLOSING, segments=NEXT.segments),
        "trouble",
    ),
    ("another topic of that name", OPEN, replace(CLOSING, topic_id=TopicId(4)), ""),
]


@pytest.mark.parametrize(
    ("before", "after", "reason"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES]
)
def test_each_switch_counts_once(before: Chain | None, after: Chain, reason: str) -> None:
    assert switch_reason(before, after) == reason
