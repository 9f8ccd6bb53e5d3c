"""What a plan reports, as long as the status does not have it, and when it is made again."""

from dataclasses import replace

from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core.actions import EmitEvent, RemoveAnnotation, Requeue
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan import BUSY_MS, CALM_MS, plan
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
