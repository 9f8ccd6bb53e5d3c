"""Ordered topics send elsewhere before a broker is stopped or moved, and come back afterwards."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ordered.evidence import GroupView
from fmqcore.zk.group_config import KeptOut
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core.actions import (
    Action,
    ApplyChild,
    PutGroupConfig,
    Requeue,
    RestartPod,
    SwitchSends,
)
from fmqoperator.core.ordered_sends import WAIT_MS
from fmqoperator.core.plan import BUSY_MS, plan
from fmqoperator.tests.chain_samples import (
    G1,
    G2,
    SENDER,
    chain,
    ended,
    opened,
    seen,
    unknown,
)
from fmqoperator.tests.ordered_kit import cordon, kept_out, outdated, sending_group, with_topic
from fmqoperator.tests.plan_kit import event_reasons, restarts
from fmqoperator.tests.world import World, running

ASKS: dict[str, Callable[[World], object]] = {
    "rolling change": lambda w: w.spec(image="new:2"),
    "switchover": lambda w: w.annotate(SWITCHOVER, "g1-1"),
    "drain of the master's node": lambda w: cordon(w, "g1-0"),
    "scale-down": lambda w: w.spec(replicas=2),
    "hibernation": lambda w: w.spec(hibernated=True),
}


def stops_a_broker(actions: list[Action], made: World) -> bool:
    """Whether the plan takes a broker away, or moves the mastership."""
    assert made.config is not None
    for action in actions:
        match action:
            case RestartPod():
                return True
            case PutGroupConfig(config=config) if config.master != made.config.value.master:
                return True
            case _:
                pass
    before = made.children["StatefulSet", "g1"]["spec"]["replicas"]
    after = [a.manifest for a in actions if type(a).__name__ == "ApplyChild"]  # type: ignore[union-attr]
    return any(c["kind"] == "StatefulSet" and c["spec"]["replicas"] < before for c in after)


@pytest.mark.parametrize("name", sorted(ASKS))
def test_sends_leave_before_any_broker_is_stopped(name: str) -> None:
    made = with_topic()
    ASKS[name](made)
    for _ in range(60):
        actions = plan(made.seen())
        if stops_a_broker(actions, made):
            break
        made.round()
        made.turn()
    else:
        raise AssertionError("no broker is stopped")
    assert (sending_group(made), kept_out(made) is not None) == ("g2", True)
    assert "OrderedTopicsLeave" in event_reasons(made)


def test_rolling_change_keeps_the_group_out_until_all_is_whole() -> None:
    made = with_topic()
    made.spec(image="new:2")
    ways: list[tuple[int, bool]] = []
    for _ in range(80):
        made.round()
        made.turn()
        ways.append((len(restarts(made)), kept_out(made) is not None))
    assert restarts(made) == ["g1-2", "g1-1", "g1-0"]
    assert all(kept for count, kept in ways if 0 < count < 3)
    assert ways[-1] == (3, False)
    assert len([a for a in made.done if isinstance(a, SwitchSends)]) == 1
    assert event_reasons(made).count("OrderedTopicsLeave") == 1
    assert event_reasons(made).count("OrderedTopicsReturn") == 1


KILLED = ("hibernation", "rolling change", "switchover")


@pytest.mark.parametrize("name", KILLED)
def test_operator_killed_after_any_action_leaves_nothing_behind(name: str) -> None:
    """Until the sends have left; what follows is tested by `test_plan_killed.py`."""
    made = with_topic()
    ASKS[name](made)
    killed = 0
    while sending_group(made) == "g1":
        for left in range(len(plan(made.seen()))):
            other, killed = deepcopy(made), killed + 1
            other.round(killed_after=left)
            other.turn()
            finish(other)
            assert sending_group(other) == "g2"
            assert (kept_out(other) is None) == (name != "hibernation")
        made.round()
        made.turn()
    assert killed > 2


def finish(made: World) -> None:
    """Run until the group is no longer kept out, or no broker runs."""
    for _ in range(60):
        made.round()
        made.turn()
        if (kept_out(made) is None and sending_group(made) == "g2") or not made.pods:
            return


def test_without_ordered_topics_nothing_waits_or_is_kept_out() -> None:
    made = running(True, replicas=3)
    made.spec(image="new:2")
    made.run()
    assert restarts(made) == ["g1-2", "g1-1", "g1-0"]
    puts = [a.config.kept_out for a in made.done if isinstance(a, PutGroupConfig)]
    assert puts == [None], "the switchover alone"


DEAD = GroupView(members=2)
KEPT = GroupView(reachable=True, takes_writes=True, members=2, avoid="g2-1 is restarted")


@pytest.mark.parametrize("view", [DEAD, KEPT], ids=["dead", "kept out itself"])
def test_last_group_is_not_switched_off_and_the_step_waits_30_s(view: GroupView) -> None:
    made = with_topic(seen(chain(G2, G1), SENDER, g2=view))
    outdated(made).round()
    first = kept_out(made)
    assert first is not None
    while not restarts(made):
        assert made.now_ms - first.since_ms <= WAIT_MS
        made.turn()
        made.round()
    assert made.now_ms - first.since_ms == WAIT_MS
    assert not [a for a in made.done if isinstance(a, SwitchSends)]
    assert (sending_group(made), event_reasons(made)[-1]) == ("g1", "Restarting")
    stay = next(e for e in made.events if e.reason == "OrderedTopicsStay")
    assert stay.message.startswith("ordered topics orders still send here after 30 s")
    assert made.condition("Progressing")["message"] != ""


def test_switch_that_no_group_follows_is_waited_for_30_s() -> None:
    made = with_topic()
    made.goes_on = False
    made.spec(image="new:2")
    made.run(lambda w: bool(restarts(w)))
    assert sending_group(made) == ""
    assert "OrderedTopicsStay" in event_reasons(made)


WAITS: list[tuple[str, Any, bool]] = [
    ("open here", seen(chain(G2, G1), SENDER), True),
    ("open here, no sender", seen(chain(G2, G1)), True),
    ("closing here, no sender", seen(replace(chain(G2, G1), closing="planned")), True),
    ("open elsewhere", seen(chain(G1, G2), SENDER), False),
    ("no segment yet", seen(chain()), False),
    ("ended here, a sender waits", seen(ended(chain(G2, G1)), SENDER), True),
    ("ended here, no sender", seen(ended(chain(G2, G1))), False),
    ("end unknown, a sender waits", seen(unknown(chain(G2, G1)), SENDER), True),
    ("open again elsewhere", seen(opened(unknown(chain(G2, G1)), G2), SENDER), False),
]


@pytest.mark.parametrize(("each", "waits"), [w[1:] for w in WAITS], ids=[w[0] for w in WAITS])
def test_step_waits_for_sends_that_are_here_or_on_their_way(each: Any, waits: bool) -> None:
    made = outdated(with_topic(each))
    actions = plan(made.seen())
    assert any(isinstance(a, RestartPod) for a in actions) is not waits
    put = next(a for a in actions if isinstance(a, PutGroupConfig))
    assert put.config.kept_out is not None


def test_unreadable_chains_hold_a_step_for_30_s_at_most() -> None:
    made = with_topic()
    made.chains = None
    outdated(made).round()
    assert not restarts(made)
    assert "their chains are not readable" in made.condition("Progressing")["message"]
    made.run(lambda w: bool(restarts(w)))


def test_cordoned_node_of_a_slave_keeps_its_group_out() -> None:
    made = with_topic()
    cordon(made, "g1-2")
    made.round()
    assert kept_out(made) == KeptOut(
        f"g1-2 has to leave its node: {made.pods['g1-2'].node} is cordoned", made.now_ms
    )
    assert sending_group(made) == "g2"
    made.turn()
    made.round()
    assert kept_out(made) is not None
    node = made.pods["g1-2"].node
    made.nodes[node] = replace(made.nodes[node], drain_reason="")
    made.run()
    assert kept_out(made) is None
    assert restarts(made) == []


def may_go(made: World) -> dict[str, int]:
    """Return how many pods each budget lets go, if all are healthy."""
    sizes = {"master": 1, "others": 2}
    budgets = {n: made.children["PodDisruptionBudget", f"g1-{n}"]["spec"] for n in sizes}
    return {n: sizes[n] - budget["minAvailable"] for n, budget in budgets.items()}


def test_slave_is_evicted_once_sends_have_left() -> None:
    made = with_topic()
    made.run()
    assert may_go(made) == {"master": 0, "others": 0}, "no drain is announced"
    cordon(made, "g1-2")
    made.round()
    assert may_go(made)["others"] == 0
    assert "ordered topics still send here" in made.condition("Progressing")["message"]
    while not may_go(made)["others"]:
        made.turn()
        assert any(isinstance(a, Requeue) and a.after_ms <= BUSY_MS for a in made.round())
    assert (sending_group(made), kept_out(made) is not None) == ("g2", True)


def test_master_that_stays_is_evicted_once_sends_have_left() -> None:
    made = with_topic(moves=False)
    made.run()
    cordon(made, "g1-0")
    made.round()
    assert may_go(made)["master"] == 0
    made.run(lambda w: may_go(w)["master"] == 1)
    assert (sending_group(made), kept_out(made) is not None) == ("g2", True)


def test_eviction_waits_thirty_seconds_for_sends_that_stay() -> None:
    made = with_topic()
    made.goes_on = False
    made.run()
    cordon(made, "g1-2")
    made.round()
    since = kept_out(made)
    assert since is not None
    made.run(lambda w: may_go(w)["others"] == 1)
    assert made.now_ms - since.since_ms == WAIT_MS


def test_group_whose_ordered_topics_are_gone_holds_no_eviction() -> None:
    made = with_topic()
    made.run()
    cordon(made, "g1-2")
    budgets = [
        action.manifest["spec"]["minAvailable"]
        for action in plan(replace(made.seen(), chains=()))
        if isinstance(action, ApplyChild) and action.manifest["metadata"]["name"] == "g1-others"
    ]
    assert budgets == [1]
    assert kept_out(made) is None


def test_waiting_step_takes_the_groups_turn() -> None:
    """Else two groups of one cluster would both be kept out, and sends have nowhere to go."""
    made = with_topic()
    made.goes_on = False
    outdated(made).round()
    assert made.body["status"]["memory"]["restartTurn"] == "own"
    assert made.body["status"]["phase"] == "Updating"
