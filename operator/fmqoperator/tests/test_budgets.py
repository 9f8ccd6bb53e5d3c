"""The disruption budgets and Services of a group, with the exact numbers and names."""

from typing import Any

import pytest

from fmqcore.ids import BrokerId
from fmqoperator.core.children.group import children
from fmqoperator.tests.samples import DEFAULTS, group
from fmqoperator.tests.test_objects import made


def least(
    master: str = "g1-0", reader: str = "g1-0", count: int = 3, **asked: Any
) -> tuple[int, int]:
    """Return how many pods must stay: of those that serve, and of the others."""
    found = children(
        group(replicas=count), DEFAULTS, master=BrokerId(master), reader=BrokerId(reader), **asked
    )
    budgets = {o["metadata"]["name"]: o["spec"] for o in found if "Disruption" in o["kind"]}
    return budgets["g1-master"]["minAvailable"], budgets["g1-others"]["minAvailable"]


@pytest.mark.parametrize(
    ("asked", "stay"),
    [
        ({}, (1, 1)),
        ({"reader": "g1-1"}, (2, 0)),
        ({"evictable": True}, (0, 1)),
        ({"held": True}, (1, 2)),
        ({"held": True, "evictable": True}, (1, 2)),
        ({"held": True, "count": 1}, (1, 0)),
        ({"count": 1}, (0, 0)),
        ({"count": 2}, (1, 0)),
        ({"replicas": 0}, (1, 0)),
        ({"master": "", "reader": ""}, (0, 2)),
    ],
    ids=str,
)
def test_pods_that_must_stay(asked: dict[str, Any], stay: tuple[int, int]) -> None:
    assert least(**asked) == stay


def test_budget_of_no_broker_names_a_pod_that_is_not_there() -> None:
    """The API server refuses an expression without values."""
    found = made(master="", reader="")
    for name in ("master", "others"):
        selector = found["PodDisruptionBudget", f"g1-{name}"]["spec"]["selector"]
        assert [e["values"] for e in selector["matchExpressions"]] == [["g1-none"]]


def test_serving_brokers_have_the_client_port_alone() -> None:
    found = made()
    ports = {
        name: [port["name"] for port in found["Service", f"g1-{name}"]["spec"]["ports"]]
        for name in ("brokers", "rw", "ro")
    }
    assert ports == {"brokers": ["fmq", "http"], "rw": ["fmq"], "ro": ["fmq"]}
