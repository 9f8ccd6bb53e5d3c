"""Volumes: their conditions, which ones grow, when they are deleted; one table each."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import GroupState
from fmqoperator.core.actions import EmitEvent, GrowClaim, Requeue, RestartPod
from fmqoperator.core.children import volumes
from fmqoperator.core.children.group import children
from fmqoperator.core.observation import Claim, Observation
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import event_reasons, restarts
from fmqoperator.tests.samples import DEFAULTS, group
from fmqoperator.tests.world import World, running

SMALL = Claim("data-g1-1", "10Gi", "10Gi")
REFUSED = "its StorageClass does not grow volumes"


def seen(claim: Claim, **spec: Any) -> Observation:
    """Two brokers; the first has what is declared (20Gi), the second this."""
    made = running(storage={"size": "20Gi"}, **spec)
    made.claims["data-g1-1"] = claim
    return made.seen()


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({}, "Growing", "claim data-g1-1 grows to 20Gi"),
        ({"requested": "20Gi"}, "Growing", "claim data-g1-1 grows to 20Gi"),
        (
            {"requested": "20Gi", "waits": "restart a pod"},
            "Growing",
            "claim data-g1-1 grows to 20Gi: restart a pod",
        ),
        (
            {"requested": "20Gi", "resize": "no room"},
            "ResizeFails",
            "claim data-g1-1 cannot grow to 20Gi: no room",
        ),
        (
            {"expandable": False},
            "CannotGrow",
            f"claim data-g1-1 cannot grow: {REFUSED}: set allowVolumeExpansion",
        ),
        (
            {"requested": "20Gi", "expandable": False},
            "Growing",
            "claim data-g1-1 grows to 20Gi",
        ),
        ({"requested": "20Gi", "capacity": "20Gi"}, "Bound", ""),
        ({"capacity": "21474836480", "expandable": False}, "Bound", ""),
        ({"capacity": "20Gi", "resize": "no room"}, "Bound", ""),
        ({"capacity": ""}, "NotBound", "claim data-g1-1 has no volume yet"),
        ({"deleting": True, "resize": "no room"}, "VolumeGoes", "claim data-g1-1 is being"),
        ({"lost": True, "deleting": True}, "VolumeLost", "delete claim data-g1-1 and pod g1-1"),
    ],
)
def test_volume_then_its_condition_and_message(
    change: dict[str, Any], reason: str, message: str
) -> None:
    found = volumes.verdict(seen(replace(SMALL, **change)))
    assert (found.status, found.reason) == ("True" if reason == "Bound" else "False", reason)
    assert message in found.message


def test_worst_volume_is_reported_whichever_broker_has_it() -> None:
    made = running()
    made.spec(storage={"size": "20Gi"})
    assert volumes.verdict(made.seen()).reason == "Growing"
    made.claims["data-g1-1"] = replace(made.claims["data-g1-1"], lost=True)
    assert volumes.verdict(made.seen()).reason == "VolumeLost"
    del made.claims["data-g1-0"]
    made.claims["data-g1-1"] = replace(made.claims["data-g1-1"], lost=False)
    assert volumes.verdict(made.seen()).reason == "NoVolume"


@pytest.mark.parametrize(
    ("change", "grows"),
    [
        ({}, True),
        ({"expandable": True}, True),
        ({"expandable": False}, False),
        ({"requested": "20Gi"}, False),  # on its way
        ({"requested": "30Gi", "capacity": "10Gi"}, False),  # never less
        ({"capacity": "20Gi"}, False),  # it was created larger than requested
        ({"capacity": ""}, False),  # the API server changes none without a volume
        ({"deleting": True}, False),
        ({"lost": True}, False),
    ],
)
def test_volumes_to_grow_are_selected(change: dict[str, Any], grows: bool) -> None:
    found = [a for a in plan(seen(replace(SMALL, **change))) if isinstance(a, GrowClaim)]
    assert [(a.claim, a.size) for a in found] == ([("data-g1-1", "20Gi")] if grows else [])


def test_left_over_volume_is_ignored_until_scaled_up_again() -> None:
    made = running(replicas=3)
    made.spec(replicas=2)
    made.run()
    assert "data-g1-2" in made.claims
    made.claims["data-g1-2"] = replace(made.claims["data-g1-2"], lost=True)
    made.spec(storage={"size": "20Gi"})
    made.run()
    assert made.claims["data-g1-2"].requested == "10Gi"
    assert made.condition("StorageReady")["reason"] == "Bound"
    assert made.body["status"]["phase"] == "Running"
    made.claims["data-g1-2"] = replace(made.claims["data-g1-2"], lost=False)
    made.spec(replicas=3)
    made.run()
    assert made.claims["data-g1-2"].requested == "20Gi"


def test_volume_growth_is_the_last_action() -> None:
    """A failure ends the round: growing comes last, after restarts and reports."""
    made = running()
    claims = dict(made.claims)
    made.spec(storage={"size": "20Gi"}, image="new:2")
    made.round()
    made.claims = claims  # it was refused
    kinds = [type(a) for a in plan(made.seen()) if not isinstance(a, EmitEvent | Requeue)]
    assert kinds == [RestartPod, GrowClaim, GrowClaim]


def test_fixed_size_class_is_reported_once_and_can_be_reverted() -> None:
    made = running()
    made.claims = {k: replace(c, expandable=False) for k, c in made.claims.items()}
    made.spec(storage={"size": "20Gi"})
    for _ in range(3):
        made.round()
    assert event_reasons(made) == ["CannotGrow"]
    assert "or set storage.size back to 10Gi" in made.events[0].message
    assert made.body["status"]["volumeSize"] == "10Gi", "the API server lets it go back so far"
    made.spec(storage={"size": "10Gi"})
    made.run()
    assert made.condition("StorageReady")["status"] == "True"
    assert made.body["status"]["phase"] == "Running"
    assert not [a for a in made.done if isinstance(a, GrowClaim)]


def test_failed_resize_is_reported() -> None:
    made = running()
    made.spec(storage={"size": "20Gi"})
    made.round()
    for name, claim in made.claims.items():
        made.claims[name] = replace(claim, capacity="10Gi")
    made.round()
    assert made.condition("StorageReady")["reason"] == "Growing"
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], resize="no room in the pool")
    for _ in range(3):
        made.round()
    assert event_reasons(made) == ["VolumeGrows", "VolumeGrows", "ResizeFails"]
    assert "no room in the pool" in made.events[-1].message


@pytest.mark.parametrize(
    ("sizes", "largest"),
    [
        ((), ""),
        (("10Gi", "9Gi"), "10Gi"),
        (("9Gi", "0.5Ti"), "0.5Ti"),
        (("", "1Gi"), "1Gi"),
        (("1e10",), ""),  # an amount that the operator cannot compare
    ],
)
def test_the_largest_volume(sizes: tuple[str, ...], largest: str) -> None:
    made = running(replicas=3)
    made.claims = {f"data-g1-{at}": Claim(f"data-g1-{at}", s, s) for at, s in enumerate(sizes)}
    assert volumes.largest(made.seen()) == largest
    assert status(made.seen()).get("volumeSize", "") == largest
    before = made.body["status"]["volumeSize"]
    assert volumes.largest(replace(made.seen(), claims=None)) == before == "10Gi"


def test_unlisted_volumes_are_unknown_and_nothing_is_stopped() -> None:
    """A volume that is being deleted may hold the last copy of the data."""
    made = running(replicas=1, policy={"howMany": "none"})
    made.spec(image="new:2", storage={"size": "20Gi"})
    made.round()
    made.turn()
    assert any(isinstance(a, RestartPod) for a in plan(made.seen()))
    unlisted = replace(made.seen(), claims=None)
    assert not [a for a in plan(unlisted) if isinstance(a, RestartPod | GrowClaim)]
    found = volumes.verdict(unlisted)
    assert (found.status, found.reason) == ("Unknown", "NotListed")


def test_hibernated_group_lacks_no_volume() -> None:
    made = running(hibernated=True)
    assert made.claims == {}
    assert volumes.verdict(made.seen()).status == "True"


@pytest.mark.parametrize("on_delete", ["Retain", "Delete"])
@pytest.mark.parametrize("on_scale_down", ["Retain", "Delete"])
@pytest.mark.parametrize("hibernated", [False, True])
@pytest.mark.parametrize("leaves", [False, True])
def test_claim_retention_policy_follows_the_spec(
    on_delete: str, on_scale_down: str, hibernated: bool, leaves: bool
) -> None:
    """The StatefulSet's controller follows it, with the operator or without. A hibernated group is
    scaled to 0 and no broker leaves; nor does a broker that was stopped by hand."""
    storage = {"onDelete": on_delete, "onScaleDown": on_scale_down}
    made = group(storage=storage, hibernated=hibernated)
    one = BrokerId("g1-0")
    for count in (0, None) if hibernated else (None,):  # asleep, and while it falls asleep
        asked = children(made, DEFAULTS, master=one, reader=one, replicas=count, leaves=leaves)
        stateful_set = asked[-1]
        assert stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain",  # they go with the group, not with the StatefulSet
            "whenScaled": on_scale_down if leaves and not hibernated else "Retain",
        }


def test_volumes_stay_while_fewer_brokers_run_than_declared() -> None:
    """Some were stopped by hand: they come back, and the policy would take their volumes, too."""
    made, one = group(replicas=3, storage={"onScaleDown": "Delete"}), BrokerId("g1-0")
    for count, kept in ((2, "Retain"), (3, "Delete")):
        asked = children(made, DEFAULTS, master=one, reader=one, replicas=count, leaves=True)
        rule = asked[-1]["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert rule["whenScaled"] == kept


def test_a_group_sleeps_and_wakes_with_its_volumes() -> None:
    """At no moment are fewer replicas wanted and volumes of leaving brokers not kept."""
    made = running(replicas=3, storage={"onScaleDown": "Delete"})
    rule = "persistentVolumeClaimRetentionPolicy"

    def kept(world: World) -> str:
        spec = world.children["StatefulSet", "g1"]["spec"]
        assert spec["replicas"] == 3 or spec[rule]["whenScaled"] == "Retain"
        return str(spec[rule]["whenScaled"])

    made.spec(hibernated=True)
    made.run(lambda w: kept(w) == "Retain" and not w.pods)
    made.spec(hibernated=False)
    made.run(lambda w: kept(w) == "Retain" and len(w.pods) == 3)
    made.run()
    assert restarts(made) == []
    assert len(made.claims) == 3


@pytest.mark.parametrize("paused", [False, True])
def test_manually_scaled_stateful_set_keeps_its_volumes(paused: bool) -> None:
    """The group is paused, or its operator away: nothing would scale it back in time."""
    made = running(replicas=3, storage={"onScaleDown": "Delete"})
    made.spec(paused=paused)
    made.children["StatefulSet", "g1"]["spec"]["replicas"] = 0
    for _ in range(3):
        made.turn()
    assert (len(made.pods), len(made.claims)) == (0, 3)
    made.spec(paused=False)
    made.run()
    assert len(made.pods) == 3


@pytest.mark.parametrize("on_scale_down", ["Retain", "Delete"])
def test_only_a_leaving_brokers_volume_is_deleted(on_scale_down: str) -> None:
    made = running(True, replicas=3, storage={"onScaleDown": on_scale_down})
    made.spec(replicas=2)
    made.round()
    made.zookeeper_away = True  # the pod is still stopping
    made.round()
    made.zookeeper_away = False
    made.run()
    gone = {"data-g1-2"} if on_scale_down == "Delete" else set()
    assert set(made.claims) == {"data-g1-0", "data-g1-1", "data-g1-2"} - gone
    rule = made.children["StatefulSet", "g1"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert rule["whenScaled"] == "Retain"


@pytest.mark.parametrize(
    "asked", [{"hibernated": True}, {"image": "new:2"}, {"settings": {"retentionMs": 5}}], ids=str
)
def test_broker_with_the_last_copy_runs_on_despite_its_claim(asked: Any) -> None:
    """Kubernetes keeps a volume as long as its pod exists, and the operator would end that."""
    made = running(replicas=1, policy={"howMany": "none"})
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], deleting=True)
    made.spec(**asked)
    for _ in range(5):
        made.round()
        made.turn()
    assert not made.pods["g1-0"].deleting
    assert "no other broker holds its data" in made.condition("Progressing")["message"]
    assert "no other broker holds its data" in made.sentence()
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], deleting=False)
    made.run()
    assert restarts(made) == ([] if "hibernated" in asked else ["g1-0"])


@pytest.mark.parametrize(
    ("stopped", "deleted", "in_sync", "lost"),
    [
        ([0], [0], [1], False),
        ([0, 1], [0], [1], False),  # the slave has a copy
        ([0, 1], [0, 1], [1], True),
        ([0, 1], [0], [], True),
        ([1], [1], [], False),  # the master has a copy
        ([0, 1], [], [], False),
    ],
)
def test_brokers_to_stop_while_claims_are_being_deleted(
    stopped: list[int], deleted: list[int], in_sync: list[int], lost: bool
) -> None:
    made = running()
    made.state = replace(made.state, isr=frozenset(BrokerId(f"g1-{at}") for at in in_sync))
    for at in deleted:
        made.claims[f"data-g1-{at}"] = replace(made.claims[f"data-g1-{at}"], deleting=True)
    brokers = [f"g1-{at}" for at in stopped]
    assert bool(volumes.last_copy_goes(made.seen(), brokers)) is lost


def test_broker_without_data_may_be_stopped() -> None:
    """Its volume is lost already, or the group has never served."""
    made = running(replicas=1, policy={"howMany": "none"})
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], deleting=True, lost=True)
    assert volumes.last_copy_goes(made.seen(), ["g1-0"]) == ""
    made.claims["data-g1-0"] = replace(made.claims["data-g1-0"], lost=False)
    assert volumes.last_copy_goes(made.seen(), ["g1-0"]) != ""
    made.state = GroupState()
    assert volumes.last_copy_goes(made.seen(), ["g1-0"]) == ""


@pytest.mark.parametrize("meanwhile", ["paused", "zookeeper away"])
def test_broker_stopped_by_hand_keeps_its_volume(meanwhile: str) -> None:
    """Nothing else acts on the policy that the StatefulSet got when that broker left."""
    made = running(True, replicas=3, storage={"onScaleDown": "Delete"})
    made.spec(replicas=2)
    made.round()
    made.turn()
    assert made.pods["g1-2"].deleting
    if meanwhile == "paused":
        made.spec(paused=True, image="not:yet")
    else:
        made.zookeeper_away = True
    spec = made.children["StatefulSet", "g1"]["spec"]
    template, rule = spec["template"], "persistentVolumeClaimRetentionPolicy"
    made.round()
    assert made.children["StatefulSet", "g1"]["spec"][rule]["whenScaled"] == "Delete"
    made.turn()
    assert sorted(made.claims) == ["data-g1-0", "data-g1-1"], "as it was declared"
    made.round()
    spec = made.children["StatefulSet", "g1"]["spec"]
    assert (spec[rule]["whenScaled"], spec["template"]) == ("Retain", template)
    spec["replicas"] = 0
    made.turn()
    made.turn()
    assert not made.pods
    assert sorted(made.claims) == ["data-g1-0", "data-g1-1"]
