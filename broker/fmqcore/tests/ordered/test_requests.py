"""What a person may ask of a chain: the changes, and the refusals with what to do."""

import re
from dataclasses import replace
from typing import Any

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName, Offset
from fmqcore.ordered import requests, subscriptions
from fmqcore.ordered.context import MAX_CHAIN_BYTES
from fmqcore.ordered.delivery import window
from fmqcore.ordered.evidence import Action, Duty, Evidence, SenderReport
from fmqcore.ordered.requests import release
from fmqcore.tests.ordered.chains import (
    ALL_WHOLE,
    DONE,
    EMPTY,
    ENDED,
    G1,
    G2,
    G3,
    LACKING,
    NEXT,
    OPEN,
    PARAMS,
    UNKNOWN,
    WHOLE,
    made,
)
from fmqcore.zk.chain import Chain, ChainGroup, Floor, PerQueue, RecordPlace, Sender
from fmqcore.zk.chain_json import chain_to_json

GROUPS = (ChainGroup(G1), ChainGroup(G2))
TWO = {G1: 2, G2: 2}
A = ("copier-1",)
LAST = 4_500
"""So many segments that no more fit."""


def test_a_chain_needs_two_groups_of_two() -> None:
    assert requests.create_chain("t", 1, GROUPS, TWO).groups == GROUPS
    with pytest.raises(InvalidArgument, match=r"two groups or more.*it has g1: name two or more"):
        requests.create_chain("t", 1, GROUPS[:1], TWO)
    with pytest.raises(InvalidArgument, match=r"g2 has 1 broker, .*--allow-single"):
        requests.create_chain("t", 1, GROUPS, {G1: 2, G2: 1})
    with pytest.raises(InvalidArgument, match="occurs twice"):
        requests.create_chain("t", 1, (GROUPS[0], GROUPS[0]), TWO)


@pytest.mark.parametrize("weights", [(0, 0), (1, 0)])
def test_weight_zero_is_refused_at_creation_and_change(weights: tuple[int, int]) -> None:
    """It reads as "no sends", but the machine would still use the group when it has no other."""
    groups = [ChainGroup(g, weight) for g, weight in zip((G1, G2), weights, strict=True)]
    with pytest.raises(InvalidArgument, match=r"has weight 0.*leave this one out"):
        requests.create_chain("t", 1, groups, TWO)
    with pytest.raises(InvalidArgument, match=r"has weight 0.*leave this one out"):
        requests.change_groups(OPEN, groups, TWO)


def test_single_brokers_are_for_tries_and_still_must_exist() -> None:
    assert requests.create_chain("t", 1, GROUPS, {G1: 1, G2: 1}, allow_single=True).allow_single
    with pytest.raises(InvalidArgument, match="g2 has no broker"):
        requests.create_chain("t", 1, GROUPS, {G1: 1}, allow_single=True)


def test_a_planned_switch_is_made_once_and_needs_another_group() -> None:
    evidence = Evidence(groups=ALL_WHOLE)
    closed = requests.switch(OPEN, evidence, 1, PARAMS, "g1 is restarted")
    assert (closed.closing, closed.closing_class) == ("g1 is restarted", "request")
    assert requests.switch(closed, evidence, 1, PARAMS, "again") is closed
    assert requests.switch(NEXT, evidence, 1, PARAMS, "late") is NEXT
    with pytest.raises(InvalidArgument, match=r"stays in g1.*g2: g1-1 not in sync"):
        requests.switch(OPEN, Evidence(groups={G1: WHOLE, G2: LACKING}), 1, PARAMS, "x")


def full(chain: Chain) -> Chain:
    """The chain with so many past segments that no more fit, all read by `app` only."""
    first = replace(DONE.segments[0], start=(0,), end=(0,), group=G2)
    past = tuple(replace(first, number=n, first_sequence=(11,)) for n in range(1, LAST))
    return replace(
        chain,
        segments=(*past, replace(chain.segments[-1], number=LAST)),
        heads=(("app", (1,)),),
    )


def test_full_chain_keeps_its_open_segment_until_it_is_read() -> None:
    """ZooKeeper would drop the session of the broker that writes a larger one."""
    evidence: dict[str, Any] = {
        "line": A,
        "groups": {G1: LACKING, G2: WHOLE},
        "trouble_since_ms": 0,
    }
    crowded = full(OPEN)
    assert len(chain_to_json(crowded)) < 1024 * 1024 - MAX_CHAIN_BYTES // 4
    assert made(Duty.SEND, OPEN, **evidence).action is Action.CLOSE
    waits = made(Duty.SEND, crowded, **evidence)
    assert waits.action is Action.WAIT
    wanted = rf"{LAST} segments.*group app has not read segment 1.*fmq group delete app"
    assert re.search(wanted, waits.reason)
    with pytest.raises(InvalidArgument, match=rf"stays in g1: .*{LAST} segments, and no more fit"):
        requests.switch(crowded, Evidence(groups=ALL_WHOLE), LAST, PARAMS, "planned")
    for unread in (replace(crowded, heads=()), replace(crowded, temporary=frozenset(["app"]))):
        waits = made(Duty.SEND, unread, **evidence)
        assert "no named consumer group reads it: start one, or set a retention" in waits.reason


def test_full_chain_gets_no_further_segment() -> None:
    report = SenderReport(ENDED.sender.id, LAST, ENDED.segments[-1].first_sequence)
    evidence: dict[str, Any] = {"line": A, "groups": ALL_WHOLE, "report": report}
    crowded = full(ENDED)
    assert made(Duty.SEND, crowded, **evidence).action is Action.WAIT
    floor = Floor(LAST - 1, 0, (0,))
    drained = replace(crowded, segments=crowded.segments[-1:], heads=(), floor=floor)
    assert made(Duty.SEND, drained, **evidence).action is Action.OPEN


def test_chain_takes_no_consumer_group_that_its_node_cannot_hold() -> None:
    few = replace(EMPTY, heads=tuple((f"{n:0200}", (1,)) for n in range(100)))
    assert subscriptions.add_at(few, "one-more", 1).heads_of("one-more") == (1,)
    many = replace(EMPTY, heads=tuple((f"{n:0200}", (1,)) for n in range(4_000)))
    with pytest.raises(InvalidArgument, match="4000 consumer groups on 1 queues, and takes no"):
        subscriptions.add_at(many, "one-more", 1)


def test_release_ends_an_unknown_segment_where_its_members_end() -> None:
    released = release(NEXT, 1, (12,), {})
    assert released.segments[0].end == (12,)
    assert released.segments[0].passed == ()
    with pytest.raises(InvalidArgument, match=r"lose acknowledged records.*--accept-loss"):
        release(NEXT, 1, (11,), {})
    assert release(NEXT, 1, (11,), {}, accept_loss=True).segments[0].loss


def test_release_of_the_last_segment_below_its_start_is_a_loss() -> None:
    """The journals were lost. What was acknowledged, its sender alone knows, and it may be gone."""
    assert release(UNKNOWN, 1, (10,), {}).segments[0].end == (10,), "it may be empty"
    with pytest.raises(InvalidArgument, match=r"journals of g1 end below its start.*--accept-loss"):
        release(UNKNOWN, 1, (9,), {})
    (ended,) = release(UNKNOWN, 1, (9,), {}, accept_loss=True).segments
    assert (ended.end, ended.loss) == ((10,), True)


def test_release_keeps_what_a_new_sender_was_shown_as_the_last() -> None:
    """It goes on after that, so no sender sends the record again."""
    shown = replace(DONE.segments[1], sender_epoch=2, first_sequence=(5,))
    chain = replace(DONE, segments=(DONE.segments[0], shown), sender=Sender("copier-2", 2))
    assert release(chain, 1, (14,), {}).segments[0].end == (14,)
    with pytest.raises(InvalidArgument, match=r"lose acknowledged records.*--accept-loss"):
        release(chain, 1, (13,), {})
    taken = replace(shown, first_sequence=(3,))  # it accepted an unknown end
    unaware = replace(chain, segments=(DONE.segments[0], taken))
    assert release(unaware, 1, (13,), {}).segments[0].end == (13,)


def test_release_refuses_open_and_missing_segments() -> None:
    with pytest.raises(InvalidArgument, match="switch first"):
        release(OPEN, 1, (12,), {})
    with pytest.raises(InvalidArgument, match="no segment 9"):
        release(OPEN, 9, (12,), {})


def test_release_below_an_end_delivers_nothing_twice() -> None:
    """`past` has read 3 and 4 in segment 1, `half` has read 3 there, `slow` neither."""
    heads = (("half", (1,)), ("past", (2,)), ("slow", (1,)))
    released = release(replace(DONE, heads=heads), 1, (12,), {"half": (13,), "slow": (11,)})
    assert released.segments[0].end == (12,)
    at_two = replace(released, heads=tuple((name, (2,)) for name, _ in heads))
    dropped = made(Duty.TIDY, at_two)
    assert dropped.action is Action.DROP
    assert dropped.edit is not None
    for chain in (at_two, dropped.edit):
        first = {name: window(chain, name, 0, G2, 0, 9).first for name, _ in heads}
        assert first == {"half": 1, "past": 2, "slow": 0}


def test_groups_may_leave_and_are_kept_until_drained() -> None:
    changed = requests.change_groups(DONE, (ChainGroup(G2), ChainGroup(G3)), {G2: 2, G3: 2})
    assert requests.group_in_use(changed, G1) is not None
    assert "segments 1 to 1" in str(requests.group_in_use(changed, G1))
    assert "have another group for it, then" in str(requests.group_in_use(changed, G2))
    three = replace(changed, groups=(ChainGroup(G1), *changed.groups))
    assert "take it out first" in str(requests.group_in_use(three, G2))
    drained = made(Duty.TIDY, replace(changed, heads=(("app", (2,)),))).edit
    assert drained is not None
    assert drained.floor == Floor(1, 1, (4,), (), (RecordPlace(1, 4, 1, G1, Offset(13)),))
    assert requests.group_in_use(drained, G1) is None


def test_a_new_group_needs_two_brokers() -> None:
    with pytest.raises(InvalidArgument, match="add a slave"):
        requests.change_groups(
            replace(OPEN, groups=GROUPS), (*GROUPS, ChainGroup(G3)), TWO | {G3: 1}
        )


def test_subscriptions_start_at_the_first_or_the_last_segment() -> None:
    heads = subscriptions.add_subscription(DONE, "new", latest=False).heads_of("new")
    assert heads == (1,)
    assert subscriptions.add_subscription(DONE, "new", latest=True).heads_of("new") == (2,)
    assert subscriptions.add_subscription(NEXT, "new", latest=True).heads_of("new") == (1,)
    assert subscriptions.add_subscription(EMPTY, "new", latest=True).heads_of("new") == (1,)
    assert subscriptions.add_subscription(DONE, "app", latest=True) is DONE
    assert subscriptions.remove_subscription(DONE, "app").heads == ()


def test_retention_keeps_what_subscriptions_still_read() -> None:
    def kept(chain: Chain, group: GroupName, floor: int = 0) -> PerQueue | None:
        return subscriptions.oldest_kept(chain, group, lambda *_: floor)

    assert kept(ENDED, G1) == (10,)
    assert kept(ENDED, G2) is None
    assert kept(replace(ENDED, heads=()), G1) is None


def test_retention_may_take_what_all_have_read() -> None:
    floors = {"app": 12, "audit": 11}
    chain = replace(OPEN, heads=(("app", (1,)), ("audit", (1,))))
    assert subscriptions.oldest_kept(chain, G1, lambda name, *_: floors[name]) == (11,)
    passed = replace(DONE, heads=(("app", (2,)), ("audit", (1,))))
    assert subscriptions.oldest_kept(passed, G1, lambda name, *_: floors[name]) == (11,)
    assert subscriptions.oldest_kept(passed, G2, lambda *_: 99) == DONE.segments[1].start
