"""A group made again under its name while the deleted one, with its volumes, still goes."""

from dataclasses import replace

from fmqcore.zk.group_state import GroupState
from fmqoperator.core.actions import Requeue
from fmqoperator.core.plan import BUSY_MS, plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import kinds
from fmqoperator.tests.world import World, running

LEFT = "volumes are there still: data-g1-0"


def made_again() -> World:
    """Return a group without a status, with all that the deleted one has left."""
    made = running(storage={"onDelete": "Delete"})
    made.body.pop("status")
    made.body["metadata"]["uid"] = "another"
    made.spec(image="new:2")
    return made


def test_nothing_of_a_group_in_its_end_is_taken_over() -> None:
    """Not its StatefulSet: the garbage collector is about to delete that, and its volumes."""
    seen = replace(made_again().seen(), predecessor=LEFT)
    assert plan(seen) == [Requeue(BUSY_MS)]
    assert plan(replace(seen, zookeeper=None)) == [Requeue(BUSY_MS)]


def test_group_that_waits_for_a_deleted_one_shows_what_is_left() -> None:
    found = status(replace(made_again().seen(), predecessor=LEFT))
    assert found["phase"] == "Pending"
    assert LEFT in found["message"]
    assert not found.get("epoch"), "that is the deleted group's"
    assert "FormerGroupEnds" in {c["reason"] for c in found["conditions"]}


def test_group_made_again_starts_once_the_deleted_one_is_gone() -> None:
    made = made_again()
    made.children, made.pods, made.claims = {}, {}, {}
    made.config, made.state = None, GroupState()
    actions = made.round()
    assert kinds(actions)[0] == "PutGroupConfig"
    assert [a.manifest["kind"] for a in actions if hasattr(a, "manifest")][-1] == "StatefulSet"
