"""Actions: each is one call, with the precondition that makes it safe to repeat."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from fmqcore.errors import Unavailable
from fmqcore.ids import Epoch
from fmqoperator.core.actions import (
    Action,
    ApplyChild,
    BeginAgain,
    ChangeAnnotation,
    DeleteChild,
    EmitEvent,
    GrowClaim,
    KeepVolumes,
    OwnClaim,
    PutGroupConfig,
    RemoveAnnotation,
    RestartPod,
)
from fmqoperator.core.observation import HASH
from fmqoperator.core.write_conflicts import MOST
from fmqoperator.shell.apply import Applier, Failed, Outdated
from fmqoperator.shell.kube import CONFLICT, KubeError, Ref, is_ours
from fmqoperator.tests.samples import group
from fmqoperator.tests.world import running

GROUP = group()
BODY = GROUP.as_json()
CONFIG = running().config
assert CONFIG is not None
SERVICE = {"kind": "Service", "metadata": {"name": "g1-rw"}}
MARKED = {"kind": "Service", "metadata": {"name": "g1-rw", "annotations": {HASH: "ours"}}}
_SWITCHOVER = "/metadata/annotations/fmq.io~1switchover"
_TEST = {"op": "test", "path": _SWITCHOVER, "value": "any"}


class Calls:
    """The API server, ZooKeeper and Events at once: records every call, or refuses it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.refusal = refusal

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> None:
            self.made.append((name, *arguments))
            if self.refusal is not None:
                raise self.refusal

        return call


def applier(calls: Calls) -> Applier:
    ensembles = SimpleNamespace(of=lambda _address: calls)
    return Applier(cast(Any, calls), cast(Any, ensembles), cast(Any, calls), cast(Any, calls))


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (ApplyChild(SERVICE, "cause"), ("apply", Ref("Service", "shop", "g1-rw"), SERVICE)),
        (
            DeleteChild("networking.k8s.io/v1", "NetworkPolicy", "g1", "uid-1", "cause"),
            ("delete", Ref("NetworkPolicy", "shop", "g1"), "uid-1"),
        ),
        (RestartPod("g1-1", "uid-7", "cause"), ("delete", Ref("Pod", "shop", "g1-1"), "uid-7")),
        (
            GrowClaim("data-g1-0", "20Gi", "cause"),
            (
                "merge",
                Ref("PersistentVolumeClaim", "shop", "data-g1-0"),
                {"spec": {"resources": {"requests": {"storage": "20Gi"}}}},
            ),
        ),
        (
            KeepVolumes("g1", "uid-9", "cause"),
            (
                "merge",
                Ref("StatefulSet", "shop", "g1"),
                {
                    "metadata": {"uid": "uid-9"},
                    "spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain"}},
                },
            ),
        ),
        (PutGroupConfig(CONFIG.value, 4, "cause"), ("put_config", "shop", CONFIG.value, 4)),
        (BeginAgain(Epoch(7), "cause"), ("begin_again", "shop", "g1", 7)),
        (
            RemoveAnnotation("fmq.io/switchover", "any"),
            (
                "edit",
                Ref("BrokerGroup", "shop", "g1"),
                [_TEST, {"op": "remove", "path": _SWITCHOVER}],
            ),
        ),
        (
            ChangeAnnotation("fmq.io/switchover", "any", "g1-1", "cause"),
            (
                "edit",
                Ref("BrokerGroup", "shop", "g1"),
                [_TEST, {"op": "replace", "value": "g1-1", "path": _SWITCHOVER}],
            ),
        ),
        (
            EmitEvent("Normal", "Starting", "2 brokers"),
            ("emit", BODY, "Normal", "Starting", "2 brokers"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_one_call_each(action: Action, call: tuple[Any, ...]) -> None:
    calls = Calls()
    await applier(calls).do(GROUP, BODY, action)
    looked = [("get", call[1])] if isinstance(action, ApplyChild) else []
    assert calls.made == [*looked, call]


CLAIM = Ref("PersistentVolumeClaim", "shop", "data-g1-0")
UID = GROUP.metadata.uid
_OURS = {
    "apiVersion": "fmq.io/v1alpha1",
    "kind": "BrokerGroup",
    "name": "g1",
    "uid": UID,
    "blockOwnerDeletion": False,
}
_OF_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "g1", "uid": "set"}


class There(Calls):
    """A claim, and the group as it is now."""

    def __init__(self, group: Any, *owners: Any, uid: str = "claim") -> None:
        super().__init__()
        self.group = group
        self.claim = {"metadata": {"uid": uid, "ownerReferences": list(owners)}}

    async def get(self, ref: Ref) -> Any:
        self.made.append(("get", ref.kind))
        return self.claim if ref == CLAIM else self.group


def as_now(on_delete: str = "Delete", **meta: Any) -> Any:
    """Return the group as the API server has it."""
    return {"metadata": {"uid": UID} | meta, "spec": {"storage": {"onDelete": on_delete}}}


@pytest.mark.parametrize(
    ("goes", "there", "written"),
    [
        pytest.param(True, There(as_now()), [_OURS], id="no owner"),
        pytest.param(True, There(as_now(), _OURS), [], id="it is so already"),
        pytest.param(True, There(as_now(), uid="another"), [], id="it was recreated"),
        pytest.param(True, There(None), [], id="the group is gone"),
        pytest.param(True, There(as_now(uid="another")), [], id="the group was recreated"),
        pytest.param(True, There(as_now(deletionTimestamp="now")), [], id="the group goes"),
        pytest.param(True, There(as_now("Retain")), [], id="it is to be kept by now"),
        pytest.param(
            True,
            There(as_now(), _OF_SET),
            [{"$patch": "delete", "uid": "set"}, _OURS],
            id="a set's",
        ),
        pytest.param(
            False,
            There(None, _OURS, _OF_SET),
            [{"$patch": "delete", "uid": UID}, {"$patch": "delete", "uid": "set"}],
            id="kept, whatever becomes of the group",
        ),
        pytest.param(False, There(None), [], id="kept already"),
    ],
)
async def test_claim_gets_its_owner_only_as_both_are_now(
    goes: bool, there: There, written: list[Any]
) -> None:
    """The observation may be older: after `--cascade=orphan` the claims have just lost their owner,
    and giving it back would make the garbage collector delete them."""
    drops = ("set",) if goes else (UID, "set")
    action = OwnClaim("data-g1-0", "claim", goes, drops, "cause")
    with capture_logs() as logged:
        await applier(there).do(GROUP, BODY, action)
    assert bool(logged) is bool(written), "what was not done is not logged"
    patch = {"metadata": {"uid": "claim", "ownerReferences": written}}
    calls = [call for call in there.made if call[0] != "get"]
    assert calls == ([("mend", CLAIM, patch)] if written else [])
    looks = [call[1] for call in there.made if call[0] == "get"]
    assert looks in (["PersistentVolumeClaim"], ["PersistentVolumeClaim", "BrokerGroup"])


class Fought(Calls):
    """Another writer overwrites every object as soon as it was applied."""

    def __init__(self) -> None:
        super().__init__()
        self.there: Any = {"metadata": {"name": "g1-rw", "annotations": {HASH: "of another"}}}

    async def get(self, _ref: Ref) -> Any:
        return self.there


async def test_two_operators_then_the_conflict_ends_and_is_reported() -> None:
    calls = Fought()
    doing = applier(calls)
    for _ in range(3 * MOST):
        await doing.do(GROUP, BODY, ApplyChild(MARKED, "cause"))
    assert [made[0] for made in calls.made] == ["apply"] * (MOST + 1) + ["emit"] * (2 * MOST - 1)
    _, _, kind, reason, message = calls.made[-1]
    assert (kind, reason) == ("Warning", "Contested")
    assert "another FMQ operator" in message


SET: Any = {"kind": "StatefulSet", "metadata": {"name": "g1", "annotations": {HASH: "ours"}}}


def as_stored(generation: int = 3) -> Any:
    """Return the StatefulSet as the API server has it; an operator before made it."""
    meta = {"name": "g1", "annotations": {HASH: "old"}, "generation": generation}
    return {"metadata": meta | {"resourceVersion": "77"}}


async def test_stateful_set_is_applied_to_the_version_looked_at() -> None:
    calls = Fought()
    calls.there = as_stored()
    await applier(calls).do(GROUP, BODY, ApplyChild(SET, "cause", 3))
    ((_, _, sent),) = calls.made
    assert sent["metadata"] == SET["metadata"] | {"resourceVersion": "77"}
    assert "resourceVersion" not in SET["metadata"]


async def test_stateful_set_changed_since_the_look_is_left_alone() -> None:
    """The wish may be withdrawn by now: the next operator has taken over, and acted on that."""
    calls = Fought()
    calls.there = as_stored(generation=4)
    with pytest.raises(Outdated):
        await applier(calls).do(GROUP, BODY, ApplyChild(SET, "cause", 3))
    assert calls.made == []
    calls.there, calls.refusal = as_stored(), KubeError(409, CONFLICT, "has been modified")
    with pytest.raises(Outdated):
        await applier(calls).do(GROUP, BODY, ApplyChild(SET, "cause", 3))
    calls.refusal = KubeError(409, "NotOurs", "it is of somebody else")
    with pytest.raises(Failed):
        await applier(calls).do(GROUP, BODY, ApplyChild(SET, "cause", 3))


async def test_refused_child_is_not_counted_as_a_conflict() -> None:
    """Each try is refused with the same message."""
    calls = Fought()
    calls.refusal = KubeError(409, "NotOurs", "it is of somebody else")
    doing = applier(calls)
    for _ in range(3 * MOST):
        with pytest.raises(Failed):
            await doing.do(GROUP, BODY, ApplyChild(MARKED, "cause"))
    assert {made[0] for made in calls.made} == {"apply"}


async def test_child_already_as_desired_is_not_applied_again() -> None:
    """The watch is late: there is nothing to do, and no conflict."""
    calls = Fought()
    calls.there = MARKED
    doing = applier(calls)
    for _ in range(3 * MOST):
        await doing.do(GROUP, BODY, ApplyChild(MARKED, "cause"))
    assert calls.made == []


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (KubeError(403, "Forbidden", "you may not"), "Forbidden", "you may not"),
        (Unavailable("somebody was quicker"), "Unavailable", "somebody was quicker"),
        (TimeoutError(), "NoAnswer", "no answer in time"),
    ],
)
async def test_refused_action_then_failure_names_the_object(
    error: Exception, reason: str, message: str
) -> None:
    with pytest.raises(Failed) as raised:
        await applier(Calls(error)).do(GROUP, BODY, ApplyChild(SERVICE, "cause"))
    failure = raised.value.failure
    assert (failure.what, failure.reason, failure.message) == ("Service g1-rw", reason, message)


@pytest.mark.parametrize(("status", "fails"), [(404, False), (422, False), (403, True), (0, True)])
async def test_annotation_changed_meanwhile_is_left_alone(status: int, fails: bool) -> None:
    calls = Calls(KubeError(status, "no", "no"))
    action = RemoveAnnotation("fmq.io/switchover", "any")
    if fails:
        with pytest.raises(Failed):
            await applier(calls).do(GROUP, BODY, action)
    else:
        await applier(calls).do(GROUP, BODY, action)


OWNED: dict[str, Any] = {
    "metadata": {
        "name": "g1-rw",
        "labels": {"app.kubernetes.io/managed-by": "fmq-operator", "fmq.io/group": "g1"},
        "ownerReferences": [{"kind": "BrokerGroup", "name": "g1", "uid": "u-2"}],
    }
}


@pytest.mark.parametrize(
    ("there", "ours"),
    [
        ({}, False),
        ({"labels": {"fmq.io/group": "g1"}}, False),
        ({"labels": {"app.kubernetes.io/managed-by": "fmq-operator"}}, False),
        ({"ownerReferences": [{"uid": "u-9"}]}, False),
        ({"ownerReferences": [{"uid": "u-9"}, {"uid": "u-2"}]}, True),
        # Created by the operator for the group of that name that was just deleted:
        ({"ownerReferences": [{"uid": "u-1"}], "labels": OWNED["metadata"]["labels"]}, True),
    ],
)
def test_existing_object_then_its_owner_is_recognised(there: dict[str, Any], ours: bool) -> None:
    assert is_ours({"metadata": there}, OWNED) is ours
