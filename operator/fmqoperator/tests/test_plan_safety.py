"""Random trouble in any order: what a plan must never do, and that all ends as declared.

The world is disturbed and the resource edited at random; every plan on the way, also with a part of
the observation missing, is checked against the rules. Then the trouble ends.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import FENCE, RESTART, SWITCHOVER, PromotionPolicy
from fmqoperator.core import facts
from fmqoperator.core.actions import (
    Action,
    ApplyChild,
    DeleteChild,
    GrowClaim,
    PutGroupConfig,
    RestartPod,
)
from fmqoperator.core.children.quantities import amount
from fmqoperator.core.observation import Node, Observation, PodPhase
from fmqoperator.core.plan import plan
from fmqoperator.core.promotion import gone_since_ms
from fmqoperator.core.status.group import status
from fmqoperator.tests.world import World, running

# ---- what must never be


def check(seen: Observation) -> None:
    """Check every rule for the plan of this observation."""
    actions = plan(seen)
    stops = [a for a in actions if _stops(seen, a)]
    assert len(stops) <= 1, stops
    if seen.zookeeper is None or seen.pods is None or seen.children is None:
        assert stops == []
    for action in actions:
        match action:
            case RestartPod(pod=pod, uid=uid):
                _check_restart(seen, pod, uid)
            case PutGroupConfig():
                _check_config(seen, action)
            case GrowClaim(claim=claim, size=size):
                assert seen.claims is not None
                more, less = amount(size), amount(seen.claims[claim].requested)
                assert more is not None
                assert less is not None
                assert more > less
            case ApplyChild(manifest=manifest) if manifest["kind"] == "StatefulSet":
                _check_replicas(seen, manifest["spec"]["replicas"])
            case DeleteChild(kind=kind):
                assert kind == "NetworkPolicy"
            case _:
                pass


def _stops(seen: Observation, action: Action) -> bool:
    """Whether the action makes something unavailable for a moment."""
    match action:
        case RestartPod():
            return True
        case PutGroupConfig(config=config):
            now = facts.config_of(seen)
            return now is not None and config.master != now.master
        case ApplyChild(manifest=manifest) if manifest["kind"] == "StatefulSet":
            running_now = facts.running_replicas(seen)
            return running_now is not None and manifest["spec"]["replicas"] < running_now
        case _:
            return False


def _check_restart(seen: Observation, name: str, uid: str) -> None:
    """Check that another copy is running, and no move in progress could need this one."""
    assert seen.pods is not None
    assert seen.zookeeper is not None
    assert seen.pods[name].uid == uid
    assert not any(p.deleting for p in seen.pods.values())
    alive = facts.is_live(seen, name) or BrokerId(name) in seen.answers or seen.pods[name].ready
    config, state = facts.config_of(seen), facts.state_of(seen)
    assert config is not None
    if alive and len(config.members) > 1:
        # Another copy of acknowledged data is running, and is not about to be stopped.
        others = {state.master, *state.isr} - {name}
        assert any(facts.is_live(seen, b) and facts.is_ready(seen, b) for b in others)
    if alive:
        assert not state.required_epoch
        assert not state.successor_incarnation
        assert config.master == state.master or config.master not in state.isr
    if alive and name != state.master:
        # A slave goes only while the master serves, or writes would end with it.
        assert facts.master_serves(seen)


def _check_config(seen: Observation, action: PutGroupConfig) -> None:
    assert seen.zookeeper is not None
    now, state = seen.zookeeper.config, seen.zookeeper.state
    assert action.version == (-1 if now is None else now.version)
    ids = {m.id for m in action.config.members}
    # A broker that counts or serves stays a member.
    before = set() if now is None else {m.id for m in now.value.members}
    assert before & ({state.master, state.reader} | state.isr) <= ids
    assert action.config.master in ids
    if now is None or (now.value.master, now.value.declared_lost) == (
        action.config.master,
        action.config.declared_lost,
    ):
        return
    to, lost = action.config.master, action.config.declared_lost
    assert seen.pods is not None
    if to == state.master:  # withdraws another switchover: this master acts, so nothing changes
        assert state.mode is Mode.MASTER
        assert not state.required_epoch
        return
    assert facts.moves(seen)
    assert to in state.isr
    assert facts.is_live(seen, to)
    assert next(m for m in action.config.members if m.id == to).permission is Permission.FULL
    if lost:
        _check_promotion(seen, to, lost)
        return
    assert facts.master_serves(seen)
    assert facts.is_ready(seen, state.master)
    assert facts.is_in_sync(seen, to)
    assert not any(p.deleting for p in seen.pods.values())


def _check_promotion(seen: Observation, to: str, lost: str) -> None:
    """Check ADR 0022: only the acting, missing master is declared lost, with all others present."""
    config, state, policy = facts.config_of(seen), facts.state_of(seen), seen.group.spec.promotion
    assert config is not None
    assert seen.zookeeper is not None
    assert policy.policy is PromotionPolicy.AFTER
    assert (state.mode, to, lost) == (Mode.SLAVE_CONSUME, state.reader, state.master)
    assert not facts.is_live(seen, lost)
    assert lost not in seen.answers
    assert all(m.id in seen.zookeeper.live for m in config.members if m.id != lost)
    since = gone_since_ms(seen)
    assert since is not None
    assert seen.now_ms - since >= policy.after_seconds * 1000


def _check_replicas(seen: Observation, count: int) -> None:
    """Check that a removed broker is neither master nor reader, and others hold its data."""
    now = facts.running_replicas(seen)
    if now is None or count >= now or seen.group.spec.hibernated:
        return
    state, config = facts.state_of(seen), facts.config_of(seen)
    assert config is not None
    assert count == now - 1
    gone = f"{seen.group.name}-{count}"
    assert gone not in (state.master, state.reader)
    assert state.mode is Mode.MASTER
    if gone in state.isr:
        stay = {m.id for m in config.members if m.id in seen.group.brokers} - {state.master}
        assert stay <= state.isr


# ---- what happens


def _kill(made: World, at: int) -> None:
    if pod := made.pods.get(f"g1-{at}"):
        made.pods[pod.name] = replace(pod, deleting=True, ready=False)


def _break(made: World, at: int) -> None:
    made.broken.add(f"g1-{at}")
    if pod := made.pods.get(f"g1-{at}"):
        made.pods[pod.name] = replace(pod, ready=False, waiting="CrashLoopBackOff")


def _cordoned(made: World, at: int) -> None:
    made.nodes[f"n{at % 3}"] = Node(f"n{at % 3}", drain_reason="is cordoned", zone=f"z{at % 3}")


def _wish(made: World, at: int, *, lost: bool = False) -> None:
    """Run `fmq failover`, as a person does."""
    if made.config is not None and made.config.value.member(BrokerId(f"g1-{at}")):
        who = made.state.master if lost else BrokerId("")
        config = replace(made.config.value, master=BrokerId(f"g1-{at}"), declared_lost=who)
        made.config = replace(made.config, value=config, version=made.config.version + 1)


def _node_down(made: World, at: int) -> None:
    if pod := made.pods.get(f"g1-{at}"):
        made.nodes[pod.node] = Node(pod.node, ready=False)
        made.pods[pod.name] = replace(pod, ready=False, phase=PodPhase.UNKNOWN, waiting="Lost")


_TROUBLE: Final[dict[str, Callable[[World, int], object]]] = {
    "nothing": lambda w, n: None,
    "kill": _kill,
    "break": _break,
    "heal": lambda w, n: w.broken.discard(f"g1-{n}"),
    "silent": lambda w, n: w.silent.add(f"g1-{n}"),
    "talk": lambda w, n: w.silent.clear(),
    "zookeeper away": lambda w, n: setattr(w, "zookeeper_away", True),
    "zookeeper back": lambda w, n: setattr(w, "zookeeper_away", False),
    "cordon": _cordoned,
    "node down": _node_down,
    "upgrade": lambda w, n: w.spec(image=f"v:{n}"),
    "bad image": lambda w, n: w.spec(image="bad:1"),
    "scale": lambda w, n: w.spec(replicas=2 + n % 3),
    "hibernate": lambda w, n: w.spec(hibernated=True),
    "wake": lambda w, n: w.spec(hibernated=False),
    "pause": lambda w, n: w.spec(paused=n % 2 == 0),
    "restart": lambda w, n: w.annotate(RESTART, str(n)),
    "switchover": lambda w, n: w.annotate(SWITCHOVER, f"g1-{n}" if n else "any"),
    "declare": lambda w, n: w.spec(switchover={"to": f"g1-{n % 2}"}),
    "fence": lambda w, n: w.annotate(FENCE, f"g1-{n}"),
    "unfence": lambda w, n: w.body["metadata"]["annotations"].pop(FENCE, None),
    "grow": lambda w, n: w.spec(storage={"size": f"{10 + n}Gi"}),
    "wish": _wish,
    "wish, lost": lambda w, n: _wish(w, n, lost=True),
    "older brokers": lambda w, n: setattr(w, "moves", False),
    "newer brokers": lambda w, n: setattr(w, "moves", True),
    "term stays closed": lambda w, n: setattr(w, "opens", False),
    "term opens": lambda w, n: setattr(w, "opens", True),
    "operator killed": lambda w, n: w.round(killed_after=n),
    "a minute": lambda w, n: setattr(w, "now_ms", w.now_ms + 60_000),
    "promote": lambda w, n: w.spec(promotion={"policy": "after", "afterSeconds": 30}),
}

_UNKNOWN: Final[dict[str, dict[str, Any]]] = {
    "zookeeper": {"zookeeper": None},
    "pods": {"pods": None},
    "children": {"children": None},
    "claims": {"claims": None},
    "answers": {"answers": {}},
    "nodes": {"nodes": {}},
}

EVENTS = st.lists(
    st.tuples(st.sampled_from(sorted(_TROUBLE)), st.integers(0, 3), st.integers(0, 3)),
    max_size=12,
)


@given(
    moves=st.booleans(),
    replicas=st.integers(2, 4),
    how_many=st.sampled_from(["none", "one", "majority", "all"]),
    events=EVENTS,
)
@settings(
    max_examples=int(os.environ.get("FMQ_EXAMPLES", "15")),
    derandomize="FMQ_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    # Shrinking takes minutes, and the printed events are few enough to read.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_any_trouble_then_calm(
    moves: bool, replicas: int, how_many: str, events: list[tuple[str, int, int]]
) -> None:
    made = running(moves, replicas=replicas, policy={"howMany": how_many})
    made.bad_images.add("bad:1")
    for what, which, turns in events:
        _TROUBLE[what](made, which)
        for _ in range(turns + 1):
            _look(made)
            made.turn()
    _heal(made)
    for _ in range(30):
        _look(made)
        made.turn()
    made.run()
    wanted = made.body["spec"]["replicas"]
    assert made.state.mode is Mode.MASTER
    assert len(made.pods) == wanted
    assert len(made.state.isr) == wanted - 1
    assert made.body["status"]["phase"] == "Running", made.sentence()
    assert not facts.outdated(made.seen())


def _look(made: World) -> None:
    """Run a round, and check the plans with each part of the observation unknown in turn."""
    seen = made.seen()
    parts = list(_UNKNOWN.values())
    less = replace(seen, **parts[(made.now_ms // 1000) % len(parts)])
    check(less)
    status(less)
    check(seen)
    made.round()


def _heal(made: World) -> None:
    """End the trouble and all special requests."""
    made.broken.clear()
    made.bad_images.clear()
    made.silent.clear()
    made.zookeeper_away = False
    made.opens = True
    made.nodes = {f"n{at}": Node(f"n{at}", zone=f"z{at}") for at in range(3)}
    made.body["spec"].pop("switchover", None)
    made.body["metadata"]["annotations"] = {}
    master = made.state.master or "g1-0"
    least = int(master.rpartition("-")[2]) + 1
    made.spec(hibernated=False, paused=False, replicas=max(least, 2))
    for name, pod in made.pods.items():
        if pod.phase is PodPhase.UNKNOWN:
            made.pods[name] = replace(pod, phase=PodPhase.PENDING)
