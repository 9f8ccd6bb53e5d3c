"""A group that has served and is missing in ZooKeeper: another ensemble, or lost data."""

import pytest

from fmqcore.zk.group_state import GroupState
from fmqoperator.core.children.names import POD_NAME_LABEL
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import budget, masters
from fmqoperator.tests.world import running

pytestmark = pytest.mark.parametrize("moves", [False, True], ids=["today", "moves"])


def test_former_master_opens_a_group_missing_in_zookeeper(moves: bool) -> None:
    made = running(moves, replicas=3, switchover={"to": "g1-2"})
    del made.body["spec"]["switchover"]
    made.config, made.state = None, GroupState()
    made.round()
    assert masters(made) == ["g1-2"]


def test_former_master_is_known_after_a_failed_config_write(
    moves: bool,
) -> None:
    """A ZooKeeper that has just lost everything may well not answer the next call."""
    made = running(moves, replicas=3, switchover={"to": "g1-2"})
    del made.body["spec"]["switchover"]
    made.config, made.state = None, GroupState()
    made.body["status"] = status(made.seen())
    made.round()
    assert masters(made) == ["g1-2"]


def test_serving_broker_is_found_when_zookeeper_has_no_group(moves: bool) -> None:
    """For example a wrong address in the resource: its brokers serve on, at their own ensemble."""
    made = running(moves)
    made.config, made.state = None, GroupState()
    for _ in range(3):
        made.round()
    for service in ("g1-rw", "g1-ro"):
        selector = made.children["Service", service]["spec"]["selector"]
        assert selector[POD_NAME_LABEL] == "g1-0"
    assert budget(made) == 1
