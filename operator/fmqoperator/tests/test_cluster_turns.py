"""Groups of one cluster are restarted one after another; how a waiting group looks."""

import pytest

from fmqoperator.api.base import Json
from fmqoperator.api.group import RESTART
from fmqoperator.core.restart_turns import is_same_cluster, place_of
from fmqoperator.tests.plan_kit import restarts
from fmqoperator.tests.world import running


def test_group_waiting_for_its_cluster_names_the_group_ahead() -> None:
    world = running(moves=True)
    world.rolling = ("shop/g9",)
    world.annotate(RESTART, "now")
    for _ in range(5):
        world.round()
        world.turn()
    assert restarts(world) == []
    assert (
        "shop/g9 first: groups of one cluster are restarted one after another" in world.sentence()
    )
    assert world.condition("Ready")["status"] == "False", "what was asked for is not done yet"
    world.rolling = ()
    world.run()
    assert restarts(world) == ["g1-1", "g1-0"]
    assert not world.body["status"].get("memory", {}).get("restartTurn")


def test_broken_group_is_repaired_while_another_has_the_turn() -> None:
    """Its slave runs nothing: restarting it takes nothing away, and waits for no group."""
    world = running(moves=True)
    world.bad_images.add("bad")
    world.spec(image="bad")
    for _ in range(8):
        world.round()
        world.turn()
    world.rolling, world.done = ("shop/g9",), []
    world.body["status"]["memory"].pop("restartTurn")
    world.spec(image="fmq-broker:test")
    for _ in range(2):  # the template, then the pod
        world.round()
    assert restarts(world) == ["g1-1"]


@pytest.mark.parametrize(
    ("cluster", "connect", "same"),
    [
        (None, "zk-0:2181,zk-1:2181", True),
        ("shop", "zk-1:2181", True),
        (None, "zk-0:2181,zk-1:2181/", True),
        (None, "zk-0:2181/fmq", False),
        (None, "other:2181", False),
        ("prod", "zk-0:2181", False),
    ],
)
def test_groups_of_one_cluster_are_known(cluster: str | None, connect: str, same: bool) -> None:
    def body(connect: str, cluster: str | None) -> Json:
        own = {} if cluster is None else {"cluster": cluster}
        return {
            "metadata": {"namespace": "shop"},
            "spec": {"zookeeper": {"connect": connect}, **own},
        }

    one = body("zk-0:2181,zk-1:2181", None)
    assert is_same_cluster(one, body(connect, cluster)) is same


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": {"zookeeper": None}}])
def test_group_without_spec_has_its_namespace_as_cluster(spec: Json) -> None:
    assert place_of({"metadata": {"namespace": "shop"}} | spec) == ("shop", frozenset({""}), "")
