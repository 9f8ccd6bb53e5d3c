"""What follows from one look: restarts asked for, owners of claims, Services, and objects."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState
from fmqoperator.api.group import RESTART
from fmqoperator.core.actions import DeleteChild
from fmqoperator.core.outlook import child_of, outlook, replicas, serving
from fmqoperator.core.plan import plan
from fmqoperator.tests.world import World, running, world

DELETE = {"onDelete": "Delete", "onScaleDown": "Delete"}
RULE = "persistentVolumeClaimRetentionPolicy"


def restart_of(made: World) -> str:
    """Return the restart in the StatefulSet that is to be applied; "" = it is as it should be."""
    for child, _ in outlook(made.seen()).children:
        if child["kind"] == "StatefulSet":
            notes: dict[str, str] = child["spec"]["template"]["metadata"]["annotations"]
            return notes[RESTART]
    return ""


def test_restart_asked_for_stays_until_another_is_asked_for() -> None:
    made = running()
    made.annotate(RESTART, "one")
    made.run()
    del made.body["metadata"]["annotations"][RESTART]
    assert restart_of(made) == ""
    made.annotate(RESTART, "two")
    assert restart_of(made) == "two"


def taken(made: World) -> World:
    """Return the world with a group of other brokers under its name in ZooKeeper."""
    assert made.config is not None
    config = made.config.value
    others = tuple(replace(m, address=f"{m.id}.elsewhere:9876") for m in config.members)
    made.config = Versioned(replace(config, members=others), 5)
    return made


def test_group_whose_name_is_taken_gets_no_claims() -> None:
    """Who deletes it, to repair that, would delete the volumes of the other."""
    made = running()
    made.spec(storage=DELETE)
    assert len(outlook(made.seen()).owners) == 2
    found = outlook(taken(made).seen())
    assert (found.owners, found.config) == ((), None)
    assert found.problem is not None


@pytest.mark.parametrize(("on_scale_down", "dropped"), [("Retain", []), ("Delete", ["data-g1-2"])])
def test_claim_of_a_leaving_broker_goes_with_it(on_scale_down: str, dropped: list[str]) -> None:
    made = running(True, replicas=3, storage=DELETE | {"onScaleDown": on_scale_down})
    made.spec(replicas=2)
    owners = outlook(made.seen()).owners
    assert [change.claim.name for change in owners if change.drops] == dropped


def test_volumes_of_brokers_that_leave_one_after_another_go() -> None:
    made = running(True, replicas=4, storage=DELETE)
    made.spec(replicas=2)
    made.run()
    assert sorted(made.claims) == ["data-g1-0", "data-g1-1"]
    assert made.children["StatefulSet", "g1"]["spec"][RULE]["whenScaled"] == "Retain"


SERVED: list[tuple[dict[str, Any], tuple[str, str]]] = [
    ({"master": "g1-1", "reader": "g1-2", "memory": {"lastServed": "g1-0 x"}}, ("g1-1", "g1-2")),
    ({"master": "", "reader": "", "memory": {"lastServed": "g1-0 x"}}, ("", "g1-0")),
    ({}, ("", "")),
]


@pytest.mark.parametrize(("status", "brokers"), SERVED)
def test_without_zookeeper_services_select_who_served_last(
    status: dict[str, Any], brokers: tuple[str, str]
) -> None:
    made = running(replicas=3)
    made.zookeeper_away = True
    made.body["status"] = status
    assert serving(made.seen()) == brokers


def test_service_selects_by_the_state_or_by_who_served_last() -> None:
    made = running(replicas=3)
    made.body["status"] = {"memory": {"lastServed": "g1-1 x"}}
    assert serving(made.seen()) == ("g1-0", "g1-0")
    made.state = GroupState()
    assert serving(made.seen()) == ("g1-1", "g1-1")


def test_without_zookeeper_nothing_is_configured_or_scaled() -> None:
    made = running(replicas=3)
    made.zookeeper_away = True
    made.spec(replicas=5)
    found = outlook(made.seen())
    assert (found.config, found.config_differs) == (None, False)
    assert replicas(made.seen(), None) == 3
    del made.children["StatefulSet", "g1"]
    assert replicas(made.seen(), None) == 5


def test_no_broker_is_started_before_zookeeper_has_its_group() -> None:
    """It would find no configuration and exit."""
    made = world()
    made.zookeeper_away = True
    found = {child["kind"] for child, _ in outlook(made.seen()).children}
    assert "Service" in found
    assert "StatefulSet" not in found
    made.zookeeper_away = False
    assert "StatefulSet" in {child["kind"] for child, _ in outlook(made.seen()).children}


def rule_of(made: World) -> str:
    """Return what becomes of the volumes of stopped brokers, after the look is acted on."""
    found = [c for c, _ in outlook(made.seen()).children if c["kind"] == "StatefulSet"]
    there = found[0] if found else made.children["StatefulSet", "g1"]
    return str(there["spec"][RULE]["whenScaled"])


def test_volumes_of_stopped_brokers_stay_once_the_pod_is_gone() -> None:
    """Its broker may still be in the in-sync set; a pod stopped by hand must keep its volume."""
    made = running(True, replicas=4, storage=DELETE)
    made.spec(replicas=2)
    made.round()
    assert rule_of(made) == "Delete", "its pod is stopping"
    assert outlook(made.seen()).owners == (), "the other's claim stays with the group"
    made.pods_unknown = True
    assert rule_of(made) == "Delete"
    made.pods_unknown = False
    made.silent.add("g1-0")  # the master does not count it out
    del made.pods["g1-3"]
    assert rule_of(made) == "Retain"


@pytest.mark.parametrize(
    ("in_sync", "master", "count"),
    [
        (True, "serves", 2),  # it counts the broker out
        (True, "silent", 2),  # it may serve
        (True, "gone", 3),  # the next master must hear it
        (False, "gone", 2),
    ],
)
def test_stopped_broker_returns_if_the_next_master_needs_it(
    in_sync: bool, master: str, count: int
) -> None:
    made = running(True, replicas=3)
    made.spec(replicas=2)
    made.children["StatefulSet", "g1"]["spec"]["replicas"] = 2
    live = made.live
    del made.pods["g1-2"]
    if master == "gone":
        del made.pods["g1-0"], live[BrokerId("g1-0")]
    if master == "silent":
        made.silent.add("g1-0")
    both = {BrokerId("g1-1"), BrokerId("g1-2")}
    made.state = replace(made.state, isr=frozenset(both if in_sync else {BrokerId("g1-1")}))
    looked = made.seen()
    assert looked.zookeeper is not None
    looked = replace(looked, zookeeper=replace(looked.zookeeper, live=live))
    assert replicas(looked, None) == count


def test_network_policy_that_is_not_wanted_any_more_is_deleted() -> None:
    made = running()
    made.spec(networkPolicy={"enabled": False})
    looked = made.seen()
    found = [a for a in plan(looked) if isinstance(a, DeleteChild)]
    assert [(a.kind, a.name) for a in found] == [("NetworkPolicy", "g1")]
    unlisted = replace(looked, children=None)
    assert not [a for a in plan(unlisted) if isinstance(a, DeleteChild)]
    assert child_of(unlisted, "NetworkPolicy", "g1") is None
