"""Sentences of a status that a person acts on: they name what is so, and nothing else."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import FENCE, SWITCHOVER
from fmqoperator.api.times import as_text
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import lose_master
from fmqoperator.tests.world import World, running


def progress(made: World) -> str:
    found = status(made.seen())
    return str(next(c["message"] for c in found["conditions"] if c["type"] == "Progressing"))


def cordon(made: World, *nodes: str) -> None:
    for node in nodes:
        made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")


def test_all_nodes_cordoned_then_slave_in_sync_is_not_denied() -> None:
    made = running(True)
    cordon(made, "n0", "n1", "n2")
    assert "g1-1 is in sync, but its node n1 is cordoned, too" in progress(made)
    assert "no slave" not in progress(made)


def test_cordon_with_lagging_slave_then_each_reason_is_given() -> None:
    made = running(True, replicas=3)
    cordon(made, "n0", "n1")
    made.state = replace(made.state, isr=frozenset({BrokerId("g1-1")}))
    assert "g1-1 is in sync, but its node n1 is cordoned, too" in progress(made)
    assert "g1-2 is not in sync" in progress(made)


def test_switchover_to_any_then_the_reason_names_the_slave() -> None:
    made = running(True)
    made.annotate(FENCE, "g1-1")
    made.round()
    made.annotate(SWITCHOVER, "any")
    assert "g1-1 may not serve FULL" in progress(made)


def test_scale_down_of_master_then_the_reason_names_the_slave() -> None:
    made = running(True, replicas=3, switchover={"to": "g1-2"})
    made.run()
    assert made.state.master == "g1-2"
    cordon(made, "n0", "n1")
    made.spec(replicas=2, switchover=None)
    assert "g1-0 is in sync, but its node n0 is cordoned, too" in progress(made)


def test_master_deleted_in_order_then_it_is_away_not_lost() -> None:
    made = running(True, promotion={"policy": "after"})
    made.pods.pop("g1-0")
    made.state = replace(
        made.state, mode=Mode.SLAVE_CONSUME, reader=BrokerId("g1-1"), reason="g1-1 serves reads"
    )
    for _ in range(2):
        made.body["status"] = status(made.seen())
        assert made.body["status"]["phase"] == "ReadOnly"
        assert "master g1-0 is away: a slave becomes master 300 s after" in made.sentence()
        assert "lost" not in made.sentence()
        made.now_ms += 5_000


def test_master_away_for_the_whole_delay_then_it_is_lost() -> None:
    made = running(True, promotion={"policy": "after", "afterSeconds": 60})
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.round()
    made.now_ms += 61_000
    found = status(made.seen())
    assert found["phase"] == "Promoting" or "master g1-0 is lost" in found["message"]


def without_zookeeper(made: World) -> Observation:
    return replace(made.seen(), zookeeper=None, zookeeper_why="zk:2181 does not answer")


def test_no_broker_serves_then_no_reader_is_named() -> None:
    made = running()
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.round()
    assert made.body["status"]["reader"] == "g1-1"
    made.annotate(FENCE, "g1-1")
    made.round()
    found = status(made.seen())
    assert (found["access"], found.get("reader", "")) == ("NONE", "")


def test_zookeeper_unseen_then_the_reader_reports_itself() -> None:
    """Brokers reach it: a slave took the reads over, which the operator cannot look up."""
    made = running()
    made.round()
    lose_master(made)
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    made.body["status"]["reader"] = "g1-0"
    found = status(without_zookeeper(made))
    assert (found["access"], found["reader"]) == ("READ", "g1-1")


@pytest.mark.parametrize("cause", ["no permission", "no answer"])
def test_no_zookeeper_and_no_broker_serving_then_no_reader(cause: str) -> None:
    made = running()
    made.round()
    seen = without_zookeeper(made)
    silent = {b: replace(a, permission=a.permission & 0) for b, a in seen.answers.items()}
    answers = silent if cause == "no permission" else {}
    found = status(replace(seen, answers=answers))
    expected = {"no permission": ("NONE", ""), "no answer": ("FULL", "g1-0")}
    assert (found["access"], found.get("reader", "")) == expected[cause]


def zookeeper_away(made: World, *, brokers_reach_it: bool, silent: bool = False) -> Observation:
    """The operator cannot reach it."""
    seen = without_zookeeper(made)
    answers = {
        b: replace(answer, zookeeper_connected=brokers_reach_it)
        for b, answer in seen.answers.items()
    }
    return replace(seen, answers={} if silent else answers)


def test_operator_cut_off_alone_then_failover_is_not_denied() -> None:
    made = running()
    made.round()
    seen = zookeeper_away(made, brokers_reach_it=True)
    found = status(seen)
    connected = next(c for c in found["conditions"] if c["type"] == "ZooKeeperConnected")
    assert connected["reason"] == "OperatorCut"
    assert "g1-0, g1-1 can reach it: brokers fail over by themselves" in connected["message"]
    assert connected["message"].endswith("check spec.zookeeper.connect")
    (event,) = [a for a in plan(seen) if isinstance(a, EmitEvent) and a.reason == "ZooKeeperAway"]
    assert "no group fails over" not in event.message


@pytest.mark.parametrize(
    ("silent", "expected"),
    [(False, "no group fails over"), (True, "cannot know whether they reach ZooKeeper")],
)
def test_zookeeper_away_then_status_shows_only_broker_reports(silent: bool, expected: str) -> None:
    made = running()
    made.round()
    seen = zookeeper_away(made, brokers_reach_it=False, silent=silent)
    (event,) = [a for a in plan(seen) if isinstance(a, EmitEvent) and a.reason == "ZooKeeperAway"]
    assert event.message.endswith(expected)


def test_status_shows_when_the_operator_last_observed() -> None:
    made = running()
    made.now_ms += 30_000
    assert status(made.seen())["observedAt"] == as_text(made.now_ms)
