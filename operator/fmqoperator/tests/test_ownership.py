"""Ownership of volumes: by the group, by a broker that leaves for good, or by nothing."""

from dataclasses import replace
from typing import Any

import pytest

from fmqoperator.core.actions import ApplyChild, OwnClaim
from fmqoperator.core.children.ownership import changes
from fmqoperator.core.observation import Claim
from fmqoperator.core.outlook import outlook
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.world import World, running

DELETE = {"onDelete": "Delete"}


def of_group(made: World) -> tuple[str, str]:
    return ("BrokerGroup", made.group.metadata.uid)


def going(made: World) -> list[str]:
    """Return the claims that are deleted with the group alone."""
    return [n for n, c in sorted(made.claims.items()) if c.owners == {of_group(made)}]


def delete_set(made: World) -> None:
    """Delete the StatefulSet; the garbage collector removes what has no other owner."""
    gone = made.children.pop(("StatefulSet", "g1"))
    rule = gone["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"]
    made.pods.clear()
    if rule == "Delete":
        made.claims = {n: c for n, c in made.claims.items() if of_group(made) in c.owners}


@pytest.mark.parametrize("paused", [False, True])
def test_deleting_the_stateful_set_deletes_no_volume(paused: bool) -> None:
    made = running(storage=DELETE)
    made.spec(paused=paused)
    made.round()
    delete_set(made)
    assert len(made.claims) == 2
    made.spec(paused=False)
    made.run()
    assert len(made.pods) == 2


def test_volumes_go_with_the_group_as_long_as_it_is_declared_so() -> None:
    made = running(replicas=3)
    assert going(made) == []
    made.spec(storage=DELETE)
    made.round()
    assert going(made) == ["data-g1-0", "data-g1-1", "data-g1-2"]
    made.run()
    made.spec(replicas=2)
    made.run()
    assert "data-g1-2" in going(made), "who left is of the group no more; its volume was"
    made.spec(storage={"onDelete": "Retain"})
    made.round()
    assert going(made) == []
    assert len(made.claims) == 3


def test_recreated_claim_is_deleted_with_the_group_too() -> None:
    made = running(storage=DELETE)
    made.claims["data-g1-1"] = Claim("data-g1-1", "10Gi", "10Gi", uid="another")
    made.round()
    assert going(made) == ["data-g1-0", "data-g1-1"]


def test_claim_already_owned_is_not_written_again() -> None:
    made = running(storage=DELETE)
    made.run()
    assert [a for a in made.done if isinstance(a, OwnClaim)] == []


def test_unowned_claims_then_config_applied_is_false() -> None:
    made = running()
    made.spec(storage=DELETE)
    applied = next(c for c in status(made.seen())["conditions"] if c["type"] == "ConfigApplied")
    assert (applied["status"], applied["reason"]) == ("False", "Applying")
    assert applied["message"].endswith("PersistentVolumeClaim data-g1-1")
    made.run()
    assert made.condition("ConfigApplied")["status"] == "True"


def test_removed_brokers_volume_is_deleted_with_it() -> None:
    """If the group owned its claim, too, the garbage collector would keep it."""
    made = running(True, replicas=3, storage=DELETE | {"onScaleDown": "Delete"})
    made.spec(replicas=2)
    actions = plan(made.seen())
    own, sets = [
        next(at for at, action in enumerate(actions) if found(action))
        for found in (
            lambda a: isinstance(a, OwnClaim) and a.claim == "data-g1-2",
            lambda a: isinstance(a, ApplyChild) and a.manifest["kind"] == "StatefulSet",
        )
    ]
    assert own < sets
    made.run()
    assert going(made) == sorted(made.claims) == ["data-g1-0", "data-g1-1"]


def test_broker_that_cannot_leave_keeps_its_volume() -> None:
    made = running(True, replicas=3, storage=DELETE | {"onScaleDown": "Delete"})
    made.silent.add("g1-0")  # the master: nothing is settled
    made.spec(replicas=2)
    made.round()
    assert len(going(made)) == 3


Owners = frozenset[tuple[str, str]]
SET: Owners = frozenset({("StatefulSet", "uid-StatefulSet")})
POD: Owners = frozenset({("Pod", "uid-2")})


@pytest.mark.parametrize(
    ("name", "owners", "change", "goes"),
    [
        ("data-g1-1", frozenset(), {}, True),
        ("data-g1-1", frozenset(), {"deleting": True}, False),
        ("data-g1-1", POD, {}, False),  # it goes with its pod
        ("data-g1-7", frozenset(), {}, False),  # left over from when volumes were kept
        ("data-g1-7", SET, {}, True),  # left over from an older operator that deleted volumes
        ("archive", frozenset(), {}, False),  # a foreign claim
        ("data-g1-x", frozenset(), {}, False),
        ("data-g2-1", frozenset(), {}, False),
        ("data-g2-1", SET, {}, False),
        ("archive", SET, {}, False),
        ("g1-1", SET, {}, False),  # a foreign claim with a broker's name
    ],
)
def test_claims_to_delete_with_the_group_are_selected(
    name: str, owners: Owners, change: dict[str, Any], goes: bool
) -> None:
    made = running(storage=DELETE)
    made.claims[name] = replace(Claim(name, "10Gi", "10Gi", uid="claim", owners=owners), **change)
    found = [c for c in outlook(made.seen()).owners if c.claim.name == name]
    assert [c.goes for c in found] == ([True] if goes else [])


@pytest.mark.parametrize(
    "lacks", [{"zookeeper_away": True}, {"children": {}}, {"claims": None}], ids=str
)
def test_group_refused_by_the_operator_deletes_no_claim(lacks: dict[str, Any]) -> None:
    """Its name is taken, or its ZooKeeper: whoever deletes it to repair that keeps the volumes of
    another group of that name, which may have been declared to be kept."""
    made = running()
    made.spec(storage=DELETE)
    assert outlook(made.seen()).owners
    for name, value in lacks.items():
        setattr(made, name, value)
    assert outlook(made.seen()).owners == ()


@pytest.mark.parametrize("on_delete", ["Retain", "Delete"])
def test_claim_owners_left_by_an_older_operator_are_corrected(on_delete: str) -> None:
    """The StatefulSet's controller removes its own mark, but not from a claim without a pod: when a
    hibernated group is deleted, all its volumes would go although they are to be kept."""
    made = running(storage={"onDelete": on_delete})
    made.spec(hibernated=True)
    made.run(lambda w: not w.pods)
    rule = made.children["StatefulSet", "g1"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    rule["whenDeleted"] = "Delete"
    made.claims = {n: replace(c, owners=c.owners | SET) for n, c in made.claims.items()}
    made.run()
    asked = frozenset({of_group(made)} if on_delete == "Delete" else ())
    assert {c.owners for c in made.claims.values()} == {asked}


PAST: list[tuple[str, Any, bool]] = [
    ("no pod", {}, True),
    ("pod runs", {"keep_pods": True}, False),
    ("pods not listed", {"pods_unknown": True}, False),
    ("no StatefulSet", {"children": {}}, False),
    ("volumes go with the StatefulSet", {"rule": "Delete"}, False),
]


@pytest.mark.parametrize(("change", "dropped"), [p[1:] for p in PAST], ids=[p[0] for p in PAST])
def test_mark_is_dropped_where_the_controller_would_drop_it(
    change: dict[str, Any], dropped: bool
) -> None:
    made = running()
    made.claims = {n: replace(c, owners=c.owners | SET) for n, c in made.claims.items()}
    rule = made.children["StatefulSet", "g1"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    rule["whenDeleted"] = change.pop("rule", "Retain")
    if not change.pop("keep_pods", False):
        made.pods = {}
    for name, value in change.items():
        setattr(made, name, value)
    found = changes(made.seen(), (), ours=True)
    assert [c.drops for c in found] == ([("uid-StatefulSet",)] * 2 if dropped else [])


@pytest.mark.parametrize(
    ("on_delete", "leaving", "cause"),
    [
        ("Retain", (), "storage.onDelete is Retain"),
        ("Delete", ("g1-0", "g1-1"), "it goes with its broker alone"),
        ("Delete", (), "it stays when the StatefulSet goes"),
    ],
)
def test_change_of_owners_has_its_cause(on_delete: str, leaving: Any, cause: str) -> None:
    made = running(storage={"onDelete": on_delete})
    both = {of_group(made)} | SET
    made.claims = {n: replace(c, owners=frozenset(both)) for n, c in made.claims.items()}
    made.pods = {}
    found = changes(made.seen(), leaving, ours=True)
    assert [(c.goes, c.cause) for c in found] == [(False, cause)] * 2
