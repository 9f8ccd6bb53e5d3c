"""Single decisions: which broker is lost, is promoted, has left; which pod runs nothing."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import HowMany, SlaveCounts
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.live_broker import LiveBroker
from fmqoperator.api.group import FENCE, Promotion
from fmqoperator.core import desired_config as wanted
from fmqoperator.core import facts
from fmqoperator.core import switchovers as moves
from fmqoperator.core.actions import EmitEvent, PutGroupConfig, RestartPod
from fmqoperator.core.observation import Answer, Node, Observation, Pod, PodPhase
from fmqoperator.core.plan import plan
from fmqoperator.core.plan_types import Hold, Move, Restart
from fmqoperator.core.promotion import Wait, is_lost, promotion
from fmqoperator.core.status.group import status
from fmqoperator.core.steps import next_step
from fmqoperator.tests.world import running

NO_BROKER = BrokerId("")
M, S1, S2 = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")


def lost(how_many: str = "one", after_s: int = 60, gone_s: int = 100, moves: bool = True) -> Any:
    """The master is gone for good; g1-1 serves the reads; all report what the next tests change."""
    made = running(
        moves,
        replicas=3,
        policy={"howMany": how_many},
        promotion={"policy": "after", "afterSeconds": after_s},
    )
    made.state = replace(made.state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(7), reader=S1)
    made.body["status"]["memory"]["masterGoneSinceMs"] = made.now_ms - gone_s * 1000
    del made.pods[M]
    return made.seen()


def live(seen: Observation, **ends: tuple[int, int]) -> Observation:
    """Return the live nodes: (epoch, end) by broker."""
    assert seen.zookeeper is not None
    nodes = {
        BrokerId(b.replace("_", "-")): LiveBroker(
            BrokerId(b.replace("_", "-")),
            "i",
            "a",
            Epoch(epoch),
            Position(end),
            supports_switchover=True,
        )
        for b, (epoch, end) in ends.items()
    }
    return replace(seen, zookeeper=replace(seen.zookeeper, live=nodes))


def wished(seen: Observation, master: BrokerId, lost: BrokerId = NO_BROKER) -> Observation:
    """The configuration wants that master."""
    assert seen.zookeeper is not None
    assert seen.zookeeper.config is not None
    config = replace(seen.zookeeper.config.value, master=master, declared_lost=lost)
    versioned = replace(seen.zookeeper.config, value=config)
    return replace(seen, zookeeper=replace(seen.zookeeper, config=versioned))


def annotated(seen: Observation, name: str, value: str) -> Observation:
    meta = seen.group.metadata.model_copy(update={"annotations": {name: value}})
    return replace(seen, group=seen.group.model_copy(update={"metadata": meta}))


def with_policy(seen: Observation, **change: Any) -> Observation:
    assert seen.zookeeper is not None
    assert seen.zookeeper.config is not None
    config = seen.zookeeper.config.value
    config = replace(config, policy=replace(config.policy, **change))
    versioned = replace(seen.zookeeper.config, value=config)
    return replace(seen, zookeeper=replace(seen.zookeeper, config=versioned))


def wants(seen: Observation, **change: Any) -> Observation:
    """Its resource has another policy, which is not configured yet."""
    policy = seen.group.spec.policy.model_copy(update=change)
    spec = seen.group.spec.model_copy(update={"policy": policy})
    return replace(seen, group=seen.group.model_copy(update={"spec": spec}))


# ---- promotion


def test_promotion_makes_the_reader_master_and_declares_the_loss() -> None:
    assert promotion(lost()) == Move(
        S1, "master g1-0 is lost: g1-1 serves the reads and becomes master", lost=M
    )
    (put,) = [a for a in plan(lost()) if isinstance(a, PutGroupConfig)]
    assert (put.config.master, put.config.declared_lost) == (S1, M)
    assert "Promotion" in [a.reason for a in plan(lost()) if isinstance(a, EmitEvent)]


def test_declared_loss_is_not_declared_again() -> None:
    seen = wished(lost(), master=S1, lost=M)
    found = promotion(seen)
    assert isinstance(found, Wait)
    assert found.reason == "Promoting"
    assert not [a for a in plan(seen) if isinstance(a, PutGroupConfig | RestartPod)]
    assert status(seen)["phase"] == "Promoting"


def test_switchover_in_progress_then_the_loss_is_declared_too() -> None:
    """A move in progress when the master died: the loss must still be declared."""
    seen = wished(lost(), master=S2)
    (put,) = [a for a in plan(seen) if isinstance(a, PutGroupConfig)]
    assert (put.config.master, put.config.declared_lost) == (S1, M)


def as_state(seen: Observation, **change: Any) -> Observation:
    assert seen.zookeeper is not None
    state = replace(seen.zookeeper.state, **change)
    return replace(seen, zookeeper=replace(seen.zookeeper, state=state))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda s: as_state(s, mode=Mode.MASTER), "no slave serves the reads"),
        (lambda s: as_state(s, mode=Mode.HANDOVER), "no slave serves the reads"),
        (lambda s: live(s, g1_2=(3, 100)), "takeover reader g1-1 is not live"),
        (lambda s: live(s, g1_1=(3, 100)), "missing: g1-2"),
        (lambda s: as_state(s, isr=frozenset({S2})), "takeover reader g1-1 was not in sync"),
        (
            lambda s: as_state(s, required_epoch=Epoch(8)),
            "it had not heard every slave before it went",
        ),
        (lambda s: annotated(s, FENCE, "g1-1"), "g1-1 may not serve FULL"),
        (lambda s: with_policy(s, how_many=HowMany.NONE), "the policy needs no slave"),
        (lambda s: with_policy(s, counts=SlaveCounts.SENT), "the policy counts what is only sent"),
        (lambda s: wants(s, how_many=HowMany.NONE), "the policy needs no slave"),
        (lambda s: wants(s, slave_counts=SlaveCounts.SENT), "the policy counts what is only sent"),
    ],
)
def test_broker_that_may_lack_acked_records_is_not_promoted(change: Any, cause: str) -> None:
    seen = change(lost())
    found = promotion(seen)
    assert isinstance(found, Wait), found
    assert cause in found.message
    assert not [a for a in plan(seen) if isinstance(a, PutGroupConfig) and a.config.declared_lost]


def test_a_promotion_is_off_unless_asked_for() -> None:
    seen = lost()
    spec = seen.group.spec.model_copy(update={"promotion": Promotion()})
    assert promotion(replace(seen, group=seen.group.model_copy(update={"spec": spec}))) is None


def test_promotion_waits_for_its_time_and_reports_when() -> None:
    seen = lost(after_s=60, gone_s=59)
    found = promotion(seen)
    assert isinstance(found, Wait)
    assert found.at_ms == seen.now_ms + 1000
    assert isinstance(promotion(replace(seen, now_ms=seen.now_ms + 1000)), Move)


def remembered(seen: Observation, **change: Any) -> Observation:
    status = seen.group.status.model_copy(update=change)
    return replace(seen, group=seen.group.model_copy(update={"status": status}))


def test_unknown_time_of_loss_then_promotion_waits() -> None:
    seen = lost()
    memory = seen.group.status.memory.model_copy(update={"master_gone_since_ms": None})
    assert isinstance(promotion(remembered(seen, memory=memory)), Wait)


def test_time_of_an_earlier_masters_loss_is_not_reused() -> None:
    """It was promoted and died between two looks."""
    seen = remembered(lost(gone_s=1000), master=S2)
    assert isinstance(promotion(seen), Wait)
    assert status(seen)["memory"]["masterGoneSinceMs"] == seen.now_ms


def test_brokers_without_moves_are_not_promoted_and_it_is_shown() -> None:
    found = promotion(lost(moves=False))
    assert isinstance(found, Wait)
    assert found.reason == "MoveUnsupported"


# ---- lost


def pod(**fields: Any) -> Pod:
    return Pod("g1-0", "u", node="n0", **fields)


@pytest.mark.parametrize(
    ("there", "node", "gone"),
    [
        (None, None, True),
        (pod(phase=PodPhase.RUNNING, ready=True), Node("n0"), False),
        (pod(phase=PodPhase.RUNNING), Node("n0"), False),  # it may be reading its journal
        (pod(phase=PodPhase.RUNNING), Node("n0", ready=None), False),
        (pod(phase=PodPhase.RUNNING), Node("n0", ready=False), True),
        (pod(phase=PodPhase.RUNNING, deleting=True), Node("n0", ready=None), True),  # given up
        (pod(phase=PodPhase.RUNNING, deleting=True), Node("n0"), False),  # it is being stopped
        (pod(phase=PodPhase.UNKNOWN), None, False),
        (pod(phase=PodPhase.RUNNING, waiting="CrashLoopBackOff"), Node("n0"), True),
        (pod(phase=PodPhase.PENDING, waiting="Unschedulable"), None, True),
        (pod(phase=PodPhase.FAILED), Node("n0"), True),
        (pod(phase=PodPhase.PENDING), Node("n0"), False),  # it is about to start
    ],
)
def test_pod_and_node_then_master_is_lost_or_not(
    there: Pod | None, node: Node | None, gone: bool
) -> None:
    seen = lost()
    assert seen.pods is not None
    pods = dict(seen.pods) | ({"g1-0": there} if there is not None else {})
    nodes = {} if node is None else {"n0": node}
    assert is_lost(replace(seen, pods=pods, nodes=nodes)) is gone


def test_master_that_answers_is_not_lost() -> None:
    seen = lost()
    assert is_lost(seen)
    assert not is_lost(live(seen, g1_0=(7, 100), g1_1=(7, 100)))
    assert not is_lost(replace(seen, answers={**seen.answers, M: Answer(M)}))


@pytest.mark.parametrize("unknown", [{"zookeeper": None}, {"pods": None}])
def test_unknown_pods_then_master_is_not_lost(unknown: dict[str, Any]) -> None:
    assert not is_lost(replace(lost(), **unknown))


# ---- who has left


def test_a_broker_has_left_when_it_holds_nothing() -> None:
    made = running(replicas=3)
    del made.pods["g1-2"]
    made.state = replace(made.state, isr=frozenset({S1}))
    assert wanted.has_left(made.seen(), "g1-2")
    made.state = replace(made.state, isr=frozenset({S1, S2}))
    assert not wanted.has_left(made.seen(), "g1-2")
    made.state = replace(made.state, isr=frozenset({S1}), reader=S2)
    assert not wanted.has_left(made.seen(), "g1-2")
    made.state = replace(made.state, isr=frozenset({S1}), reader=M)
    assert wanted.has_left(made.seen(), "g1-2")
    assert not wanted.has_left(replace(made.seen(), zookeeper=None), "g1-2")
    assert not wanted.has_left(replace(made.seen(), pods=None), "g1-2")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, "g1-2 is being removed: its pod still exists"),
        ({"nodes": {"n2": Node("n2", ready=False)}}, "kubectl delete node n2"),
        ({"pods": {}}, "its session with ZooKeeper"),
        ({"pods": {}, "live": False}, "it is still in the in-sync set"),
    ],
)
def test_waiting_scale_down_reports_its_reason(change: dict[str, Any], cause: str) -> None:
    """All but a promotion waits behind it: a pod on a dead node stays until a person acts."""
    made = running(replicas=3)
    made.spec(replicas=2)
    made.round()
    seen = made.seen()
    assert seen.zookeeper is not None
    if not change.get("live", True):
        seen = replace(seen, zookeeper=replace(seen.zookeeper, live={}))
    if "pods" in change:
        change = {"pods": {b: pod for b, pod in made.pods.items() if b != "g1-2"}}
    (hold, *_) = next_step(replace(seen, **change)).holds
    assert cause in hold.message
    assert hold.blocks


def test_waiting_restart_names_the_broker() -> None:
    seen = idle(deleting=True)
    assert moves.unsettled(seen).endswith(": g1-2")
    down = replace(seen, nodes={"n2": Node("n2", ready=False)})
    assert "g1-2 (on node n2, which is not ready" in moves.unsettled(down)


# ---- pods that run nothing


def idle(**fields: Any) -> Observation:
    """g1-2 with an old template, as described, its broker not in ZooKeeper."""
    made = running(replicas=3)
    made.spec(image="new:2")
    made.round()
    made.pods = {n: replace(p, deleting=False, ready=True) for n, p in made.pods.items()}
    made.pods["g1-2"] = replace(made.pods["g1-2"], **({"ready": False} | fields))
    return made.seen()


def test_idle_pod_is_replaced_whatever_the_others_do() -> None:
    seen = idle(waiting="ImagePullBackOff")
    assert facts.runs_nothing(seen, (seen.pods or {})["g1-2"])
    found = next_step(replace(seen, answers={})).step
    assert isinstance(found, Restart)
    assert found.pod == "g1-2"


def does_not_come_up(seen: Observation) -> bool:
    """Whether it is restarted, and for that reason."""
    assert seen.zookeeper is not None
    live = {b: node for b, node in seen.zookeeper.live.items() if b != S2}
    answers = {b: a for b, a in seen.answers.items() if b != S2}
    zookeeper = replace(seen.zookeeper, live=live)
    step = next_step(replace(seen, zookeeper=zookeeper, answers=answers)).step
    return isinstance(step, Restart) and step.pod == S2 and "does not start" in step.cause


@pytest.mark.parametrize(
    ("change", "long_ms", "restarted"),
    [
        ({}, facts.STUCK_MS, True),
        ({}, facts.STUCK_MS - 1, False),  # it may read a long journal
        ({"ready": True}, facts.STUCK_MS, False),
        ({"unready_since_ms": None}, facts.STUCK_MS, False),
        ({"phase": PodPhase.PENDING}, facts.STUCK_MS, False),
        ({"waiting": "CrashLoopBackOff"}, facts.STUCK_MS, True),
    ],
)
def test_stuck_broker_is_restarted_with_the_newer_template(
    change: dict[str, Any], long_ms: int, restarted: bool
) -> None:
    """It runs with settings that were reverted since."""
    runs = {"phase": PodPhase.RUNNING, "unready_since_ms": idle().now_ms - long_ms}
    assert does_not_come_up(idle(**(runs | change))) is restarted


def test_group_that_never_served_then_stuck_pod_is_seen_at_once() -> None:
    seen = idle(phase=PodPhase.RUNNING, unready_since_ms=idle().now_ms)
    assert not does_not_come_up(seen)
    assert seen.zookeeper is not None
    new = replace(seen, zookeeper=replace(seen.zookeeper, state=GroupState(), live={}), answers={})
    assert does_not_come_up(new)


def test_idle_pod_is_not_replaced_while_another_stops() -> None:
    seen = idle(waiting="ImagePullBackOff")
    assert seen.pods is not None
    pods = {**seen.pods, "g1-1": replace(seen.pods["g1-1"], deleting=True)}
    assert not [a for a in plan(replace(seen, pods=pods)) if isinstance(a, RestartPod)]


def test_pod_that_answers_is_not_idle() -> None:
    seen = idle(waiting="ImagePullBackOff")
    answering = replace(seen, answers={**seen.answers, S2: Answer(S2)})
    assert not facts.runs_nothing(answering, (seen.pods or {})["g1-2"])


def test_revision_is_unknown_until_the_controller_saw_it() -> None:
    made = running()
    assert facts.wanted_revision(made.seen())
    made.children["StatefulSet", "g1"]["metadata"]["generation"] += 1
    assert facts.wanted_revision(made.seen()) is None
    made.children["StatefulSet", "g1"]["status"]["updateRevision"] = "newer"
    assert facts.outdated(made.seen()) == ()


# ---- a wish on its way


def test_no_other_step_starts_during_a_switchover() -> None:
    made = running(True, replicas=3)
    made.spec(image="new:2")
    made.round()
    made.pods = {n: replace(p, deleting=False, ready=True) for n, p in made.pods.items()}
    assert made.config is not None
    assert isinstance(next_step(made.seen()).step, Restart)
    made.config = replace(made.config, value=replace(made.config.value, master=S1))
    made.state = replace(made.state, isr=frozenset({S1, S2}))
    found = next_step(made.seen())
    assert found.step is None
    assert found.holds == (Hold("Switching", "g1-1 is to be master instead of g1-0", True),)
