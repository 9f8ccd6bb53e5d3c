"""When an ordered sender reports that it does not reach a group."""

import pytest

from fmqclient.producer.group_cuts import CUT_MS, FORGET_MS, NEXT_TRY_MS, GroupCuts
from fmqcore.ids import GroupName

G1, G2 = GroupName("g1"), GroupName("g2")
TRIES: list[tuple[str, list[tuple[str, int]], int, set[GroupName]]] = [
    ("one failure", [("fail", 0)], CUT_MS, set()),
    ("failures for a moment", [("fail", 0), ("fail", CUT_MS - 1)], CUT_MS, set()),
    ("failures for long", [("fail", 0), ("fail", CUT_MS)], CUT_MS, {G1}),
    ("reached between", [("fail", 0), ("reach", 1), ("fail", CUT_MS)], CUT_MS, set()),
    ("reached again", [("fail", 0), ("fail", CUT_MS), ("reach", CUT_MS)], CUT_MS, set()),
    ("another trouble, later", [("fail", 0), ("fail", NEXT_TRY_MS)], NEXT_TRY_MS, set()),
    ("still", [("fail", 0), ("fail", CUT_MS)], CUT_MS + FORGET_MS - 1, {G1}),
    ("not tried since", [("fail", 0), ("fail", CUT_MS)], CUT_MS + FORGET_MS, set()),
]


@pytest.mark.parametrize(
    ("tries", "now_ms", "cut"), [row[1:] for row in TRIES], ids=[row[0] for row in TRIES]
)
def test_group_is_cut_off_while_all_tries_fail(
    tries: list[tuple[str, int]], now_ms: int, cut: set[GroupName]
) -> None:
    cuts = GroupCuts()
    cuts.fail(G2, now_ms)
    for what, at_ms in tries:
        if what == "fail":
            cuts.fail(G1, at_ms)
        else:
            cuts.reach(G1)
    assert cuts.groups(now_ms) == cut
