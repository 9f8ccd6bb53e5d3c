"""Which broker is master, and how many there are: switchovers, drains, scaling, a lost master."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core.actions import EmitEvent, PutGroupConfig, RemoveAnnotation, Requeue
from fmqoperator.core.observation import Defaults, Node, PodPhase
from fmqoperator.core.plan import plan
from fmqoperator.tests.plan_kit import (
    budget,
    event_reasons,
    kinds,
    lose_master,
    masters,
    members,
    replicas,
    restarts,
)
from fmqoperator.tests.world import running

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


# ---- switchover


def test_a_switchover_by_annotation(moves: bool) -> None:
    made = running(moves)
    made.annotate(SWITCHOVER, "g1-1")
    made.run()
    if moves:
        assert SWITCHOVER not in made.body["metadata"]["annotations"]
        assert made.state.master == "g1-1"
        epochs = ["EpochOpened"] * 3  # handed over, claimed, opened
        assert event_reasons(made) == ["Switchover", *epochs, "SwitchoverDone"]
        assert {e.type for e in made.events} == {"Normal"}
    else:
        assert made.state.master == "g1-0"
        assert event_reasons(made) == ["MoveUnsupported"]
        assert masters(made) == []


def test_mastership_moves_to_where_the_policy_can_be_met(moves: bool) -> None:
    """Or a rolling update would leave a group that takes no messages."""
    made = running(moves, replicas=3)
    made.nodes["n2"] = replace(made.nodes["n2"], zone="z0")  # g1-1 is alone in z1
    made.spec(policy={"howMany": "zones"})
    made.run()
    made.spec(policy={"howMany": "zones"}, image="new:2")
    made.run()
    assert made.state.master == ("g1-2" if moves else "g1-0")
    assert made.body["status"]["access"] == "FULL"


def test_a_switchover_while_moves_are_switched_off_is_refused(moves: bool) -> None:
    made = running(moves)
    made.annotate(SWITCHOVER, "g1-1")
    seen = replace(made.seen(), defaults=Defaults("fmq-broker:test", planned_moves=False))
    refusal, removal, _ = plan(seen)
    assert isinstance(refusal, EmitEvent)
    assert "FMQ_PLANNED_MOVES" in refusal.message
    assert removal == RemoveAnnotation(SWITCHOVER, "g1-1")


def test_manual_switchover_is_kept_while_moves_are_off(moves: bool) -> None:
    made = running(moves)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-1")))
    del made.pods["g1-1"]
    seen = replace(made.seen(), defaults=Defaults("fmq-broker:test", planned_moves=False))
    assert not [a for a in plan(seen) if isinstance(a, PutGroupConfig)]


@pytest.mark.parametrize("value", ["", "any"])
def test_switchover_to_any_slave_happens_once(moves: bool, value: str) -> None:
    made = running(moves, replicas=3)
    made.annotate(SWITCHOVER, value)
    made.run()
    assert made.state.master == ("g1-1" if moves else "g1-0")
    assert len(masters(made)) == (1 if moves else 0)


def test_switchover_to_an_unknown_broker_is_refused_with_reason(moves: bool) -> None:
    made = running(moves)
    made.annotate(SWITCHOVER, "g7-1")
    made.run()
    assert event_reasons(made) == ["SwitchoverRefused"]
    assert masters(made) == []


def test_switchover_of_a_lone_broker_is_refused_at_once(moves: bool) -> None:
    """A later switchover would surprise people once the second broker exists."""
    made = running(moves, replicas=1)
    made.annotate(SWITCHOVER, "any")
    made.run()
    assert event_reasons(made) == ["SwitchoverRefused"]
    assert SWITCHOVER not in made.body["metadata"]["annotations"]
    made.spec(replicas=2)
    made.run()
    assert made.state.master == "g1-0"


def test_a_declared_master(moves: bool) -> None:
    made = running(moves)
    made.spec(switchover={"to": "g1-1"})
    if not moves:
        made.round()
        assert "without planned moves: update it first" in made.condition("Progressing")["message"]
        assert masters(made) == []
        for _ in range(5):
            made.round()
        assert event_reasons(made) == ["MoveUnsupported"]
        assert plan(made.seen()) == [Requeue(30_000)]  # it keeps no round busy
        return
    made.run()
    assert made.state.master == "g1-1"


def test_a_declared_master_opens_a_new_group(moves: bool) -> None:
    made = running(moves, switchover={"to": "g1-1"})
    assert made.state.master == "g1-1"


def test_a_switchover_waits_for_a_slave_that_is_not_in_sync(moves: bool) -> None:
    made = running(moves)
    made.broken.add("g1-1")
    made.run(lambda w: "g1-1" not in w.state.isr)
    made.annotate(SWITCHOVER, "g1-1")
    for _ in range(5):
        made.round()
        made.turn()
    assert masters(made) == []
    made.broken.clear()
    made.run()
    assert made.state.master == ("g1-1" if moves else "g1-0")


def test_switchover_to_a_dead_broker_is_withdrawn(moves: bool) -> None:
    if not moves:
        return
    made = running(moves)
    made.annotate(SWITCHOVER, "g1-1")
    made.round()
    assert masters(made) == ["g1-1"]
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], waiting="CrashLoopBackOff", ready=False)
    made.round()
    assert masters(made) == ["g1-1", "g1-0"]


# ---- drain


def test_a_drained_node(moves: bool) -> None:
    made = running(moves)
    node = made.pods["g1-0"].node
    made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")
    if moves:
        made.run()
        assert made.state.master == "g1-1"
        assert restarts(made) == []
        return
    made.run(lambda w: budget(w) == 0)
    assert restarts(made) == []
    assert "DrainOpen" in event_reasons(made)
    made.nodes[node] = Node(node, zone="z0")
    made.run()
    assert budget(made) == 1


def test_a_drain_without_a_slave_in_sync_waits(moves: bool) -> None:
    made = running(moves)
    made.broken.add("g1-1")
    made.run(lambda w: "g1-1" not in w.state.isr)
    node = made.pods["g1-0"].node
    made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")
    for _ in range(5):
        made.round()
        made.turn()
    assert budget(made) == 1
    assert masters(made) == []
    assert "DrainWaits" in event_reasons(made)


# ---- scale


def test_a_new_slave_is_a_member_before_it_is_a_pod(moves: bool) -> None:
    made = running(moves)
    made.spec(replicas=3)
    first = made.round()
    assert kinds(first) == ["PutGroupConfig", "ApplyChild", "ApplyChild"]  # budget, StatefulSet
    assert made.config is not None
    assert [m.id for m in made.config.value.members] == ["g1-0", "g1-1", "g1-2"]
    made.run()
    assert sorted(made.state.isr) == ["g1-1", "g1-2"]
    assert restarts(made) == []


def test_leaving_brokers_stay_members_until_they_hold_nothing(moves: bool) -> None:
    made = running(moves, replicas=4)
    made.spec(replicas=2)
    made.round()
    assert replicas(made) == 3
    assert members(made) == ["g1-0", "g1-1", "g1-2", "g1-3"]
    made.run(lambda w: len(members(w)) == 3)
    assert "g1-3" not in made.pods
    made.run()
    assert members(made) == ["g1-0", "g1-1"]
    assert replicas(made) == 2
    assert sorted(made.claims) == [f"data-g1-{n}" for n in range(4)]


def test_a_scale_down_that_would_lose_a_copy_is_refused(moves: bool) -> None:
    made = running(moves, replicas=3)
    made.broken.add("g1-1")
    made.pods["g1-1"] = replace(made.pods["g1-1"], waiting="CrashLoopBackOff", ready=False)
    made.run(lambda w: w.state.isr == {"g1-2"})
    made.spec(replicas=2)
    for _ in range(10):
        made.round()
        made.turn()
    assert replicas(made) == 3
    assert (
        "g1-1 is not in sync and may hold less than g1-2"
        in made.condition("Progressing")["message"]
    )
    assert event_reasons(made).count("ScaleDownRefused") == 1
    made.broken.clear()
    made.run()
    assert replicas(made) == 2


def test_a_master_is_not_scaled_away(moves: bool) -> None:
    made = running(moves, replicas=3, switchover={"to": "g1-2"})
    assert made.state.master == "g1-2"
    del made.body["spec"]["switchover"]
    made.spec(replicas=2)
    if moves:
        made.run()
        assert made.state.master != "g1-2"
        assert replicas(made) == 2
        return
    for _ in range(10):
        made.round()
        made.turn()
    assert replicas(made) == 3
    assert "g1-2 is to be removed and is master" in made.condition("Progressing")["message"]


# ---- the master is gone


def test_lost_master_is_replaced_after_the_configured_time(moves: bool) -> None:
    made = running(moves, promotion={"policy": "after", "afterSeconds": 60})
    lose_master(made)
    made.pods["g1-0"] = replace(made.pods["g1-0"], phase=PodPhase.PENDING)
    start_ms = made.now_ms
    for _ in range(100):
        made.round()
        made.turn()
    if moves:
        assert made.state.master == "g1-1"
        assert "Promotion" in event_reasons(made)
        assert made.now_ms - start_ms >= 60_000
    else:
        assert made.state.mode is Mode.SLAVE_CONSUME
        assert masters(made) == []


def test_a_lost_master_is_not_replaced_before_the_time(moves: bool) -> None:
    made = running(moves, promotion={"policy": "after", "afterSeconds": 3600})
    lose_master(made)
    for _ in range(100):
        made.round()
        made.turn()
    assert masters(made) == []


def test_master_that_came_back_restarts_the_promotion_delay(moves: bool) -> None:
    """It was away, came back and served for an hour while no operator looked; it is away again."""
    made = running(moves, promotion={"policy": "after", "afterSeconds": 300})
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.round()
    made.broken.clear()
    for _ in range(20):
        made.turn()
    assert str(made.state.mode.value) == Mode.MASTER.value
    made.now_ms += 3_600_000
    lose_master(made)
    made.turn()
    assert made.state.mode is Mode.SLAVE_CONSUME
    start_ms = made.now_ms
    for _ in range(30):
        made.round()
        made.turn()
        assert masters(made) == [] or made.now_ms - start_ms >= 300_000


def test_lost_master_is_not_replaced_unless_configured(moves: bool) -> None:
    made = running(moves)
    lose_master(made)
    for _ in range(120):
        made.round()
        made.turn()
    assert masters(made) == []
    assert made.body["status"]["phase"] == "ReadOnly"


def test_services_select_the_takeover_reader_of_a_dead_master(moves: bool) -> None:
    made = running(moves)
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.round()
    ro = made.children["Service", "g1-ro"]["spec"]["selector"]
    assert ro["statefulset.kubernetes.io/pod-name"] == "g1-1"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("g1-0 opened the group", "epoch 9: g1-0 opened the group"),
        ("master g1-0 is back, no broker had taken over", "epoch 9: master g1-0 is back, no"),
        ("g1-1 is in sync", "epoch 9: g1-0 is master; g1-1 is in sync"),  # a later change
    ],
)
def test_new_epoch_is_reported_with_its_master(moves: bool, cause: str, expected: str) -> None:
    made = running(moves)
    made.state = replace(made.state, epoch=Epoch(9), reason=cause)
    (event,) = [a for a in plan(made.seen()) if isinstance(a, EmitEvent)]
    assert (event.reason, event.type) == ("EpochOpened", "Normal")
    assert event.message.startswith(expected)


def test_a_master_that_only_slept_is_waited_for(moves: bool) -> None:
    """A hibernated group is woken after days, and its master's pod takes a little longer."""
    spec = {"promotion": {"policy": "after", "afterSeconds": 300}, "switchover": {"to": "g1-1"}}
    made = running(moves, **spec)
    assert made.state.master == "g1-1"
    made.spec(hibernated=True)
    made.run(lambda w: w.body["status"]["phase"] == "Hibernated")
    reader = BrokerId("g1-0")  # the reader to which it gave the reads when it stopped
    mode, epoch = Mode.SLAVE_CONSUME, Epoch(made.state.epoch + 1)
    made.state = replace(made.state, mode=mode, epoch=epoch, reader=reader, isr=frozenset({reader}))
    made.round()
    made.now_ms += 3 * 86_400_000
    made.spec(hibernated=False)
    made.broken.add("g1-1")
    for _ in range(10):
        made.round()
        made.turn()
    assert "Promotion" not in event_reasons(made)


def test_a_declared_master_waits_for_its_update(moves: bool) -> None:
    """Half-way in an upgrade another is master; a slave that reconnects is out of sync a moment."""
    made = running(moves, replicas=3, switchover={"to": "g1-0"})
    made.spec(image="new:2")
    made.run(lambda w: len(restarts(w)) == 2 and not w.state.required_epoch)
    made.run(lambda w: w.state.master == "g1-1" or not moves)
    while made.state.required_epoch:
        made.turn()
    before = list(masters(made))
    made.state = replace(made.state, isr=frozenset({BrokerId("g1-0")}))
    made.round()
    assert masters(made) == before
    made.run()
    assert made.state.master == "g1-0"
    assert restarts(made) == ["g1-2", "g1-1", "g1-0"]


def test_changes_missed_by_the_operator_are_reported(moves: bool) -> None:
    made = running(moves)
    made.zookeeper_away = True
    made.round()
    lose_master(made)
    made.zookeeper_away = False
    made.turn()
    made.events.clear()
    made.round()
    assert made.state.mode is Mode.SLAVE_CONSUME
    assert "EpochOpened" in event_reasons(made)
