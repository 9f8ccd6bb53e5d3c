"""What a plan reports, as long as the status does not have it, and when it is made again."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core import switchovers
from fmqoperator.core.actions import EmitEvent, RemoveAnnotation, Requeue
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan import BUSY_MS, CALM_MS, plan
from fmqoperator.core.plan_types import Hold
from fmqoperator.tests.world import running, world


def reported(seen: Observation) -> list[str]:
    return [action.reason for action in plan(seen) if isinstance(action, EmitEvent)]


def test_hold_is_reported_until_the_status_has_it() -> None:
    made = running(False)
    made.annotate(SWITCHOVER, "g1-1")
    assert reported(made.seen()) == ["MoveUnsupported"]
    made.round()
    assert reported(made.seen()) == []


def test_failed_resize_is_reported_until_the_status_has_it() -> None:
    made = running(storage={"size": "20Gi"})
    made.claims["data-g1-1"] = replace(
        made.claims["data-g1-1"], capacity="10Gi", resize="no room in the pool"
    )
    assert reported(made.seen()) == ["ResizeFails"]
    made.round()
    assert reported(made.seen()) == []


def test_zookeeper_of_a_new_group_is_reported_after_a_while() -> None:
    made = world()
    made.zookeeper_away = True
    assert reported(made.seen()) == []
    made.round()
    assert reported(made.seen()) == []
    made.now_ms += 3_600_000
    assert reported(made.seen()) == ["ZooKeeperUnreachable"]


def test_switchover_is_done_when_the_wanted_master_serves() -> None:
    made = running(True)
    made.annotate(SWITCHOVER, "g1-0")
    serving, done = made.state, RemoveAnnotation(SWITCHOVER, "g1-0")
    assert done in plan(made.seen())
    reader = BrokerId("g1-1")
    made.state = replace(serving, mode=Mode.SLAVE_CONSUME, reader=reader)
    assert done not in plan(made.seen())
    made.state = replace(serving, required_epoch=serving.epoch)
    assert done not in plan(made.seen())


def test_plan_is_made_again_soon_while_a_move_waits() -> None:
    for moves, due_ms in ((True, BUSY_MS), (False, CALM_MS)):  # False: it waits for a person
        made = running(moves)
        made.annotate(SWITCHOVER, "g1-1")
        made.pods["g1-0"] = replace(made.pods["g1-0"], ready=False)
        made.round()
        assert plan(made.seen()) == [Requeue(due_ms)]


@pytest.mark.parametrize(
    ("moves", "reason", "sentence"),
    [
        (True, "MoveWaits", "a switchover was requested: g1-1 is not in sync"),
        (False, "MoveUnsupported", "a switchover was requested: g1-0, g1-1 runs a version"),
    ],
)
def test_switchover_to_any_broker_holds_with_the_reason(
    moves: bool, reason: str, sentence: str
) -> None:
    made = running(moves)
    made.annotate(SWITCHOVER, "any")
    made.state = replace(made.state, isr=frozenset())
    hold = switchovers.asked_for(made.seen())
    assert isinstance(hold, Hold)
    assert hold.reason == reason
    assert hold.message.startswith(sentence)


def test_no_successor_is_chosen_while_a_broker_is_not_ready() -> None:
    made = running(True)
    made.annotate(SWITCHOVER, "any")
    assert switchovers.chosen(made.seen()) == "g1-1"
    made.pods["g1-0"] = replace(made.pods["g1-0"], ready=False)
    assert switchovers.chosen(made.seen()) == ""


def test_broker_of_an_unknown_configuration_is_barred() -> None:
    made = running(True)
    assert switchovers.barred(made.seen(), "g1-1") == ""
    made.config = None
    assert switchovers.barred(made.seen(), "g1-1") == "g1-1 is not a broker of this group"


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_drain_waits_only_where_there_is_another_broker(moves: bool, replicas: int) -> None:
    made = running(moves, replicas=replicas)
    node = made.pods["g1-0"].node
    made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")
    made.state = replace(made.state, isr=frozenset())
    hold = switchovers.drain(made.seen())
    assert (hold is not None) == (replicas == 2)
    assert hold is None or (isinstance(hold, Hold) and hold.reason == "DrainWaits")
