"""`fmq ordered status`: the chain as a picture, and the sentences under it."""

from dataclasses import replace

from fmqcli.output.chain import picture, reader_waits
from fmqclient.admin.infos import OrderedTopicStatus
from fmqcore.ids import GroupName
from fmqcore.zk.chain import Chain, ChainGroup, Floor, Segment, Sender

G1, G2 = GroupName("g1"), GroupName("g2")
NOW = 1_000_000_000
CHAIN = Chain(
    "changes",
    1,
    (ChainGroup(G1), ChainGroup(G2, 2)),
    segments=(
        Segment(1, G1, 1, (1,), (0,), end=(40,)),
        Segment(2, G2, 1, (39,), (7,), end=(39,)),
        Segment(3, G1, 2, (71,), (40,)),
    ),
    sender=Sender("copier-0000000004", 2),
    heads=(("audit", (3,)), ("billing", (1,))),
)
STATUS = OrderedTopicStatus(
    topic="changes",
    chain=CHAIN,
    phase="open",
    reason="copier-0000000004 sends into segment 3 in g1",
    since_ms=NOW - 125_000,
    answered_ms=NOW,
    senders=("copier-0000000004", "backup-0000000005"),
    obstacles={"g1": "", "g2": "g2-1 not in sync"},
)


def test_open_chain_is_drawn_with_groups_segments_and_readers() -> None:
    assert picture(STATUS, 80) == [
        "changes: ordered, 1 queue over g1, g2 (weight 2)",
        "  sends: open for 2 min: copier-0000000004 sends into segment 3 in g1",
        "  in line: backup-0000000005",
        "",
        "  segment  1         2          3",
        "  g1       ├ 1–40 ┤             ├ 71 ─▶",
        "  g2                 ├ 39–70 ┤",
        "  audit                         ▲ reads",
        "  billing  ▲ reads",
        "",
        "  g2 may not take the next segment: g2-1 not in sync",
    ]


def test_unknown_end_is_drawn_and_its_readers_wait() -> None:
    first = replace(CHAIN.segments[0], end=None, end_unknown=True, ended_ms=NOW - 8_000)
    chain = replace(CHAIN, segments=(first, *CHAIN.segments[1:]))
    status = replace(STATUS, chain=chain, stuck={1: "start g1-0"})
    lines = picture(status, None)
    assert "  g1       ├ 1 ─?              ├ 71 ─▶" in lines
    assert lines[-1] == "  billing waits for 8 s for the end of segment 1: start g1-0"
    alone = picture(replace(status, chain=replace(chain, heads=())), None)
    assert alone[-1] == "  segment 1 in g1 has no known end for 8 s: start g1-0"


def test_reader_within_a_segment_of_a_lost_group_is_named() -> None:
    lines = picture(replace(STATUS, stuck={1: "start g1-0"}), None)
    assert lines[-1] == "  billing waits within segment 1: start g1-0"


def test_closing_is_drawn_with_its_reason() -> None:
    chain = replace(CHAIN, closing="g1 lacks g1-1")
    status = replace(STATUS, chain=chain, phase="closing", reason="waits for g1", since_ms=0)
    lines = picture(status, 80)
    assert lines[1] == "  sends: closing: waits for g1 (closed because g1 lacks g1-1)"
    assert any("├ 71 ─…" in line for line in lines)


def test_several_queues_show_numbers_of_records() -> None:
    segments = (
        Segment(1, G1, 1, (1, 1), (0, 0), end=(1_000, 234)),
        Segment(2, G2, 1, (1_001, 235), (0, 0), end=(0, 0)),
        replace(CHAIN.segments[0], number=3, first_sequence=(9, 9), start=(9, 9), end=None),
    )
    chain = replace(CHAIN, queues=2, segments=segments, heads=(("app", (1, 3)),))
    lines = picture(replace(STATUS, chain=chain), 80)
    assert "  g1       ├ 1,234 records ┤             ├ ─▶" in lines
    assert "  g2                          ├ empty ┤" in lines
    assert "  app      ▲ reads                       ▲ reads" in lines


def test_one_record_of_several_queues_is_not_called_records() -> None:
    only = Segment(1, G1, 1, (1, 1), (0, 0), end=(1, 0))
    lines = picture(replace(STATUS, chain=replace(CHAIN, queues=2, segments=(only,), heads=())), 80)
    assert "  g1       ├ 1 record ┤" in lines


def test_narrow_terminal_shows_the_newest_segments() -> None:
    chain = replace(
        CHAIN,
        floor=Floor(2, 1, (30,)),
        segments=tuple(
            Segment(n, G1 if n % 2 else G2, 1, (n * 100,), (n,), end=(n + 100,))
            for n in range(3, 20)
        ),
        closing="planned",
        heads=(),
    )
    lines = picture(replace(STATUS, chain=chain), 60)
    assert max(map(len, lines[4:8])) <= 60
    assert "  segments before 17 are not drawn: too many to draw" in lines
    assert any(line.split() == ["segment", "17", "18", "19"] for line in lines)


def test_topic_without_segments_has_no_drawing() -> None:
    chain = replace(CHAIN, segments=(), heads=(), sender=Sender())
    reason = "no sender has asked for the role"
    status = replace(STATUS, chain=chain, phase="empty", reason=reason, since_ms=0, senders=())
    assert picture(replace(status, obstacles={}), 80) == [
        "changes: ordered, 1 queue over g1, g2 (weight 2)",
        f"  sends: empty: {reason}",
    ]


def test_many_subscriptions_are_counted() -> None:
    heads = tuple((f"app-{n:02}", (1,)) for n in range(11))
    lines = picture(replace(STATUS, chain=replace(CHAIN, heads=heads)), 80)
    assert "  and 3 more subscriptions" in lines
    assert not any("app-08" in line for line in lines)


def test_consumer_gets_only_what_its_own_group_waits_for() -> None:
    first = replace(CHAIN.segments[0], end=None, end_unknown=True, ended_ms=NOW - 8_000)
    chain = replace(CHAIN, segments=(first, *CHAIN.segments[1:]))
    status = replace(STATUS, chain=chain, stuck={1: "start g1-0"})
    assert reader_waits(status, "billing") == [
        "ordered topic changes: billing waits for 8 s for the end of segment 1: start g1-0"
    ]
    assert reader_waits(status, "audit") == []
    assert reader_waits(STATUS, "billing") == []
