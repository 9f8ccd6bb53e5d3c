"""When the chains are read, for how long a group is kept out, and what is switched."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fmqcore.ordered.evidence import GroupView
from fmqcore.zk.group_config import KeptOut
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core.actions import SwitchSends
from fmqoperator.core.ordered_sends import WAIT_MS, asks, holds_evictions
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.tests.chain_samples import G1, G2, SENDER, chain, seen
from fmqoperator.tests.ordered_kit import cordon, kept_out, outdated, sending_group, with_topic
from fmqoperator.tests.plan_kit import event_reasons, restarts
from fmqoperator.tests.world import World, running, world

HERE, ELSEWHERE = seen(chain(G2, G1), SENDER), seen(chain(G1, G2), SENDER)


def unreadable(made: World) -> World:
    made.chains = None
    return made


def unconfigured() -> World:
    made = world(replicas=3)
    made.round()
    made.turn()
    made.config, made.chains = None, (HERE,)
    return made


def cordoned(since_ms: int | None, *topics: ChainSeen, image: str = "") -> World:
    """Return a group with a cordoned node, kept out for so long, maybe with a step due."""
    made = with_topic(*topics)
    cordon(made, "g1-2")
    assert made.config is not None
    if since_ms is not None:
        kept = KeptOut("g1-2 has to leave its node: n2 is cordoned", made.now_ms - since_ms)
        made.config = replace(made.config, value=replace(made.config.value, kept_out=kept))
    return outdated(made) if image else made


READS: list[tuple[str, Callable[[], World], bool]] = [
    ("calm", with_topic, False),
    ("no configuration, node cordoned", lambda: cordon(unconfigured(), "g1-2"), False),
    ("node cordoned", lambda: cordoned(None), True),
    ("kept out for 29 s", lambda: cordoned(WAIT_MS - 1), True),
    ("kept out for 30 s", lambda: cordoned(WAIT_MS), False),
    ("kept out for 30 s, a step is due", lambda: cordoned(WAIT_MS, image="new:2"), True),
]


@pytest.mark.parametrize(("made", "read"), [r[1:] for r in READS], ids=[r[0] for r in READS])
def test_chains_are_read_only_while_a_step_depends_on_them(
    made: Callable[[], World], read: bool
) -> None:
    assert asks(made().seen()) is read


HOLDS: list[tuple[str, Callable[[], World], bool]] = [
    ("no node is cordoned", with_topic, True),
    ("no configuration", unconfigured, False),
    ("node cordoned", lambda: cordoned(None), True),
    ("kept out for 29 s", lambda: cordoned(WAIT_MS - 1), True),
    ("kept out for 30 s", lambda: cordoned(WAIT_MS), False),
    ("kept out for 30 s, a step is due", lambda: cordoned(WAIT_MS, image="new:2"), False),
    ("chains not readable", lambda: unreadable(cordoned(0)), True),
    ("sends elsewhere, kept out", lambda: cordoned(0, ELSEWHERE), False),
    ("sends elsewhere, not kept out yet", lambda: cordoned(None, ELSEWHERE), True),
    ("one topic of two sends here", lambda: cordoned(0, ELSEWHERE, HERE), True),
]


@pytest.mark.parametrize(("made", "held"), [h[1:] for h in HOLDS], ids=[h[0] for h in HOLDS])
def test_evictions_wait_for_the_sends_for_30_s(made: Callable[[], World], held: bool) -> None:
    assert holds_evictions(made().seen()) is held


def test_group_on_a_cordoned_node_stays_out_after_30_s() -> None:
    made = with_topic()
    cordon(made, "g1-2")
    made.round()
    first = kept_out(made)
    assert first is not None
    while made.now_ms - first.since_ms < 2 * WAIT_MS:
        made.turn()
        made.round()
    assert kept_out(made) == first
    assert event_reasons(made).count("OrderedTopicsReturn") == 0


def test_group_stays_out_until_the_wanted_master_serves() -> None:
    made = with_topic()
    made.annotate(SWITCHOVER, "g1-1")
    made.run(lambda w: w.config is not None and w.config.value.master == "g1-1")
    assert made.state.master == "g1-0", "the brokers have not followed yet"
    made.round()
    assert kept_out(made) is not None
    made.run(lambda w: w.state.master == "g1-1")
    assert kept_out(made) is not None
    made.run()
    assert kept_out(made) is None


def test_group_whose_hibernation_waits_stays_out() -> None:
    """Its volumes are being deleted, so no broker is stopped; the sends must not return."""
    made = with_topic()
    made.spec(hibernated=True)
    made.round()
    first = kept_out(made)
    assert first is not None
    made.claims = {name: replace(claim, deleting=True) for name, claim in made.claims.items()}
    for _ in range(10):
        made.turn()
        made.round()
    assert len(made.pods) == 3
    assert kept_out(made) == first


def test_pods_that_cannot_be_listed_keep_no_group_out() -> None:
    made = with_topic()
    cordon(made, "g1-2")
    made.pods_unknown = True
    made.round()
    assert kept_out(made) is None


def test_segment_is_switched_off_once() -> None:
    made = with_topic()
    made.goes_on = False
    made.spec(image="new:2")
    made.run(lambda w: bool(restarts(w)))
    assert [a.segment for a in made.done if isinstance(a, SwitchSends)] == [2]


def test_group_without_ordered_topics_lets_pods_go() -> None:
    made = running(True, replicas=3)
    assert made.children["PodDisruptionBudget", "g1-others"]["spec"]["minAvailable"] == 1


def test_step_after_the_sends_have_left_reports_none_that_stay() -> None:
    made = with_topic()
    made.spec(image="new:2")
    made.run(lambda w: len(restarts(w)) == 3)
    assert sending_group(made) == "g2"
    assert "OrderedTopicsStay" not in event_reasons(made)


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (3, "t0, t1, t2 still"),
        (4, "t0, t1, t2 and 1 more still"),
    ],
)
def test_three_topics_that_stay_are_named(count: int, named: str) -> None:
    topics = [seen(chain(G2, G1, topic=f"t{n}"), SENDER) for n in range(count)]
    made = with_topic(*topics)
    made.goes_on = False
    outdated(made).run(lambda w: bool(restarts(w)))
    assert f"ordered topics {named}" in next(
        e.message for e in made.events if e.reason == "OrderedTopicsStay"
    )


def test_step_that_waits_for_the_sends_is_progress() -> None:
    made = outdated(with_topic())
    made.goes_on = False
    made.round()
    progress = made.condition("Progressing")
    assert (progress["status"], progress["reason"]) == ("True", "OrderedTopicsLeave")


@pytest.mark.parametrize("since_ms", [3_600_000, -1, -3_600_000], ids=["behind", "close", "ahead"])
def test_step_waits_30_s_whatever_clock_kept_the_group_out(since_ms: int) -> None:
    """Another operator wrote the time, or this one before its clock was set."""
    stays = seen(chain(G2, G1), SENDER, g2=GroupView(members=2))
    made = cordoned(since_ms, stays, image="new:2")
    started_ms = made.now_ms
    made.run(lambda w: bool(restarts(w)))
    assert made.now_ms - started_ms == (0 if since_ms > 0 else WAIT_MS)
