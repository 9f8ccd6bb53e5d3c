"""An ordered topic over two groups: brokers killed, a node drained, groups rolled, groups deleted.

One sender sends from beginning to end, and another waits in line; check I13 judges the order. The
report has the longest pause between acks, and the pause at each change of the group.
With two workers (`make e2e`) only one group has a broker on the node that is drained.
"""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from e2e.history.client_events import OrderedStored
from e2e.history.cluster_events import Ending, FaultKind
from e2e.kind.chain import Chain
from e2e.kind.conftest import KEEP
from e2e.kind.groups import Group
from e2e.kind.hurting import node_of, restarts, signal_to, workers
from e2e.kind.story import Report, Story, story
from e2e.kind.test_nodes import drain
from e2e.kind.test_planned_moves import annotate, until_master
from e2e.kind.tools import Failed, get, kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("KILLS", "1"))
TOPIC = "changes"
TROUBLE = (" lacks ", "does not answer", "takes no writes", "no master that takes writes")
"""Words of the reasons to close a segment which no plan has."""


@pytest.fixture(scope="module")
def chain(installed: str, images: dict[str, str]) -> Iterator[Chain]:
    """An ordered topic over g1 and g2. Of three nodes each group has its own, and one is shared."""
    namespace = f"fmq-chain-{time.time_ns() // 1_000_000_000 % 100_000}"
    groups = [Group(name, namespace, installed, images["broker"]) for name in ("g1", "g2")]
    if len(found := workers()) >= 2:
        names = [node["metadata"]["name"] for node in get("nodes")["items"]]
        others = [name for name in names if name not in found[:2]]
        _place(groups[0], found[0], found[1])
        _place(groups[1], found[1], others[0])
    for group in groups:
        group.make()
    for group in groups:
        group.wait_ready()
    made = Chain(TOPIC, groups)
    made.declare()
    made.wait_ready()
    yield made
    if not KEEP:
        kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=180s")


@pytest.mark.parametrize("role", ["slave", "master"])
def test_order_is_kept_when_a_broker_is_killed(chain: Chain, report: Report, role: str) -> None:
    """kill -9 of a broker of the group that takes the sends: they go on in the other group.

    Or in this one: Kubernetes may start a killed master before its session is over.
    """
    title = f"ordered, {role} killed"
    with story(chain.groups[0], report, title, FaultKind.KILL, chain) as recorder:
        for _ in range(KILLS):
            _kill(chain, role, recorder)
        recorder.healed()
    assert chain.events("SegmentOpened"), "each switch is reported"
    assert chain.ordered["unknownEnds"] == []


@pytest.mark.parametrize("role", ["slave", "master"])
def test_order_is_kept_when_a_node_is_drained(chain: Chain, report: Report, role: str) -> None:
    """Sends leave the group that has a broker on the node, and only that one."""
    if len(workers()) < 2:
        pytest.skip("needs two worker nodes: make e2e")
    group, node = chain.groups[0], workers()[0]
    (broker,) = (b for b in group.brokers if node_of(group, b) == node)
    _be(group, broker, role)
    with story(group, report, f"ordered, {role}'s node drained", FaultKind.STOP, chain) as recorder:
        _send_in(chain, group)
        recorder.fired(broker, detail=node)
        try:
            drain(node)
            recorder.down(broker, Ending.STOPPED)
            assert _sends_elsewhere(chain, group), chain.ordered
        finally:
            kubectl("uncordon", node)
        recorder.healed()
    assert chain.ordered["unknownEnds"] == []
    assert _returns(recorder.ordered) == [], "\n".join(chain.events("SegmentClosed"))
    assert "OrderedTopicsLeave" in group.events()
    assert "OrderedTopicsReturn" in group.events()


def test_order_is_kept_in_a_rolling_change(chain: Chain, report: Report) -> None:
    """A changed setting restarts all brokers of both groups; sends are elsewhere each time."""
    masters = {group.status["master"] for group in chain.groups}
    left = {group.name: group.messages("OrderedTopicsLeave") for group in chain.groups}
    closed, title = chain.events("SegmentClosed"), "ordered, both groups rolled"
    with story(chain.groups[0], report, title, FaultKind.OPERATOR, chain) as recorder:
        recorder.fired(*masters, detail="settings")
        for group in chain.groups:
            group.spec["settings"] = {"segmentBytes": 8 << 20}
            group.apply()
        for group in chain.groups:
            group.wait_ready(400)
        recorder.healed()
    assert {group.status["master"] for group in chain.groups}.isdisjoint(masters), "all restarted"
    assert chain.ordered["unknownEnds"] == []
    assert _returns(recorder.ordered) == [], "\n".join(chain.events("SegmentClosed"))
    for group in chain.groups:
        assert len(group.messages("OrderedTopicsLeave")) > len(left[group.name]), group.name
        assert group.messages("OrderedTopicsStay") == []
    unplanned = [m for m in chain.events("SegmentClosed") if any(w in m for w in TROUBLE)]
    assert set(unplanned) <= set(closed), "sends had left each group before its restarts"


def test_groups_of_a_chain_are_changed_and_deleted_safely(chain: Chain, report: Report) -> None:
    """A third group takes the place of the first one, which may be deleted once it is read."""
    first, second = chain.groups
    third = Group("g3", chain.namespace, first.spec["zookeeper"]["connect"], first.image)
    _refused(first, f"group g1 belongs to ordered topic {TOPIC}: take it out of spec.ordered")
    chain.declare("g2", "g3")
    until(lambda: chain.condition("Ready").get("reason") == "NoSuchGroup", "it is reported")
    assert "create it, or remove it from spec.ordered.groups" in chain.status["message"]
    third.spec |= {"replicas": 1, "policy": {"howMany": "none"}}
    third.apply()
    third.wait_ready()
    until(lambda: "group g3 has 1 broker: add a slave" in chain.status["message"], "it is refused")
    third.spec |= {"replicas": 2, "policy": {"howMany": "one"}}
    chain.groups = (first, second, third)
    title = "ordered, a group replaced"
    with story(first, report, title, FaultKind.OPERATOR, chain) as recorder:
        assert chain.sending_group() in (first, second), "the chain is as before"
        recorder.fired(first.status["master"], detail="its group leaves the chain")
        third.apply()
        third.wait_ready()
        chain.wait_ready()
        until(lambda: _sends_elsewhere(chain, first), "sends have left g1", 60)
        recorder.healed()
    until(lambda: "g1" not in chain.ordered.get("segmentGroups", []), "g1 is read to its end", 120)
    until(lambda: _delete(first), "it is not used any more", 30)
    _refused(second, f"group g2 belongs to ordered topic {TOPIC}")


# ---- what they do and look at


def slave_of(group: Group) -> str:
    """Return the broker of two that is not master."""
    return next(b for b in group.brokers if b != group.status["master"])


def _place(group: Group, *nodes: str) -> None:
    """Let the group's brokers run on these nodes, one on each."""
    label = f"fmq-e2e-{group.name}"
    for node in nodes:
        kubectl("label", "node", node, f"{label}=broker", "--overwrite")
    group.spec["scheduling"] = {"acrossNodes": "required", "nodeSelector": {label: "broker"}}


def _kill(chain: Chain, role: str, recorder: Story) -> None:
    """Kill a broker of the group that takes the sends; return when all is whole again."""
    group = chain.sending_group()
    broker = group.status["master"] if role == "master" else slave_of(group)
    before, epoch = restarts(chain.namespace, broker), group.status["epoch"]
    recorder.fired(broker)
    signal_to(chain.namespace, broker, "KILL")
    recorder.down(broker, Ending.KILLED)
    until(lambda: restarts(chain.namespace, broker) > before, "it is started again")

    def is_over() -> bool:
        return _sends_elsewhere(chain, group) or group.status["epoch"] > epoch

    until(is_over, f"sends have left {group.name}, or its master is back", 60)
    group.wait_ready()


def _be(group: Group, broker: str, role: str) -> None:
    """Let the broker have that role."""
    to = broker if role == "master" else next(b for b in group.brokers if b != broker)
    if group.status["master"] != to:
        annotate(group, to)
        until_master(group, to)
        group.wait_ready()


def _send_in(chain: Chain, group: Group) -> None:
    """Let the sends go to that group. The status may be older than a new sender's segment."""
    if (now := chain.sending_group()) is not group:
        group.in_pod(f"fmq ordered switch {chain.name} --off {now.name}")
        until(lambda: chain.ordered.get("sendingGroup") == group.name, "they are there", 60)


def _sends_elsewhere(chain: Chain, group: Group) -> bool:
    return chain.ordered.get("sendingGroup", "") not in ("", group.name)


def _returns(stored: Iterable[OrderedStored]) -> list[str]:
    """Return the segments that a sender got in the group that it was just switched off."""
    acked = sorted(stored, key=lambda event: (event.segment, event.at_ms))
    return [
        f"{one.segment} and {two.segment} in {two.group}"
        for one, two in pairwise(acked)
        if one.segment != two.segment and (one.who, one.group) == (two.who, two.group)
    ]


def _refused(group: Group, sentence: str) -> None:
    with pytest.raises(Failed) as refusal:
        kubectl("delete", "brokergroup", group.name, "-n", group.namespace, "--timeout=30s")
    assert sentence in str(refusal.value)
    assert group.condition("Ready")["status"] == "True", "it is as before"


def _delete(group: Group) -> bool:
    """Delete the group; False: it is refused."""
    try:
        kubectl("delete", "brokergroup", group.name, "-n", group.namespace, "--timeout=60s")
    except Failed:
        return False
    return True
