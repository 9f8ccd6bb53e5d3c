"""Every rule of the resources, on a real API server: what it accepts and refuses, with what
message.

Needs etcd and kube-apiserver on PATH (or $FMQ_KIND_CACHE/bin); the scenarios on kind have both.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqcore.ids import BrokerId
from fmqoperator import crd
from fmqoperator.api.job import BrokerJob
from fmqoperator.api.topic import Topic
from fmqoperator.core.children.drift import drifted
from fmqoperator.core.children.group import children
from fmqoperator.core.event_dedup import old_definition
from fmqoperator.core.jobs.objects import job_object
from fmqoperator.core.status.group import patch
from fmqoperator.core.topics.plan import TopicSeen, topic_status
from fmqoperator.tests.apiserver import ApiServer, Refused, api_server, programs
from fmqoperator.tests.chain_samples import G1, G2, SENDER, chain, opened, seen, unknown
from fmqoperator.tests.crd_cases import CASES, OVER_TWO, Case, body
from fmqoperator.tests.plan_kit import lose_master
from fmqoperator.tests.samples import DEFAULTS, group
from fmqoperator.tests.test_chart import CHART
from fmqoperator.tests.world import running

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(programs() is None, reason="no etcd and kube-apiserver on PATH"),
]

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmission"
_PLURALS = {kind.model.__name__: kind.plural for kind in crd.KINDS}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder: Path = tmp_path_factory.mktemp("api")
    with api_server(folder) as server:
        for kind in crd.KINDS:
            server.call("POST", _CRDS, crd.definition(kind))
        for kind in crd.KINDS:
            _established(server, kind.plural)
        yield server


def _established(api: ApiServer, plural: str) -> None:
    """Wait until the server serves the new kind, and has no complaint about the schema."""
    for _ in range(1000):
        conditions = api.call("GET", f"{_CRDS}/{plural}.fmq.io").get("status", {}).get("conditions")
        found = {c["type"]: (c["status"], c["message"]) for c in conditions or ()}
        assert "NonStructuralSchema" not in found, found
        try:
            if found.get("Established", ("",))[0] == "True":
                api.call("GET", _path(plural))
                return
        except Refused:
            pass
    raise AssertionError(f"{plural} are not served")


def _path(plural: str, name: str = "", sub: str = "") -> str:
    tail = (f"/{name}" if name else "") + (f"/{sub}" if sub else "")
    return f"/apis/fmq.io/v1alpha1/namespaces/default/{plural}{tail}"


def _create(api: ApiServer, made: dict[str, Any]) -> Any:
    return api.call("POST", f"{_path(_PLURALS[made['kind']])}?fieldValidation=Strict", made)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.kind}-{c.name}".replace(" ", "_"))
def test_resource_is_accepted_or_refused_with_a_reason(api: ApiServer, case: Case) -> None:
    plural, wanted = _PLURALS[case.kind], body(case.kind, case.change)
    name = wanted["metadata"]["name"]
    try:
        if case.first is not None:
            made = _create(api, body(case.kind, case.first))
            wanted["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
            path = f"{_path(plural, name)}?fieldValidation=Strict"
            answer = _refusal(lambda: api.call("PUT", path, wanted))
        else:
            answer = _refusal(lambda: _create(api, wanted))
    finally:
        _refusal(lambda: api.call("DELETE", _path(plural, name)))
    if case.refused:
        assert case.refused in answer
    else:
        assert answer == ""


def _refusal(call: Any) -> str:
    try:
        call()
    except Refused as error:
        return str(error)
    return ""


def test_status_and_scale_are_written_through_subresources(api: ApiServer) -> None:
    made = _create(api, body("BrokerGroup", {"metadata.name": "sub"}))
    try:
        made["status"] = {
            "phase": "Running",
            "replicas": 2,
            "selector": "fmq.io/group=sub",
            "brokers": [{"broker": "sub-0", "role": "master", "permission": "FULL"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Serving"}],
        }
        api.call("PUT", _path("brokergroups", "sub", "status"), made)
        scale = api.call("GET", _path("brokergroups", "sub", "scale"))
        assert scale["status"] == {"replicas": 2, "selector": "fmq.io/group=sub"}
        scale["spec"]["replicas"] = 3
        api.call("PUT", _path("brokergroups", "sub", "scale"), scale)
        now = api.call("GET", _path("brokergroups", "sub"))
        assert now["spec"]["replicas"] == 3
        assert now["status"]["brokers"][0]["permission"] == "FULL"
        assert now["metadata"]["generation"] == 2
    finally:
        api.call("DELETE", _path("brokergroups", "sub"))


@pytest.mark.parametrize(
    ("size", "taken"), [("20Gi", True), ("15Gi", True), ("12Gi", True), ("11Gi", False)]
)
def test_larger_volume_request_may_be_reverted(api: ApiServer, size: str, taken: bool) -> None:
    """As long as no volume was grown: only the status knows that."""
    made = _create(api, body("BrokerGroup", {"metadata.name": "size", "spec.storage.size": "20Gi"}))
    try:
        made["status"] = {"volumeSize": "12Gi"}
        made = api.call("PUT", _path("brokergroups", "size", "status"), made)
        made["spec"]["storage"]["size"], made["status"]["volumeSize"] = size, "1Gi"
        answer = _refusal(lambda: api.call("PUT", _path("brokergroups", "size"), made))
        assert ("storage.size cannot shrink" in answer) is not taken, answer
        assert (answer == "") is taken
    finally:
        api.call("DELETE", _path("brokergroups", "size"))


def test_a_status_comes_back_whole(api: ApiServer) -> None:
    """Or every group would be reported to have an older definition."""
    made = running(True, replicas=3, promotion={"policy": "after", "afterSeconds": 30})
    _create(api, body("BrokerGroup", {}))
    try:
        path: str = _path("brokergroups", "g1", "status")
        before: dict[str, Any] = {}
        for happens in (lambda w: None, lose_master, lambda w: setattr(w, "zookeeper_away", True)):
            happens(made)
            for _ in range(3):
                made.round()
                made.turn()
            written = made.body["status"]
            sent = patch(before, written)
            answer = api.call("PATCH", path, {"status": sent}, kind="merge-patch+json")
            before = answer["status"]
            assert old_definition("BrokerGroup", sent, before) == ()
            assert patch(written, before) == {}
    finally:
        api.call("DELETE", _path("brokergroups", "g1"))


def test_the_status_of_an_ordered_topic_comes_back_whole(api: ApiServer) -> None:
    made = body("Topic", {"spec.groups": None, "spec.ordered": OVER_TWO})
    _create(api, made)
    try:
        path = _path("topics", "orders", "status")
        before: dict[str, Any] = {}
        for found in (seen(chain()), seen(opened(unknown(chain(G2, G1)), G2), SENDER)):
            look = TopicSeen(Topic.model_validate(made), 1_800_000_000_000, chain=found)
            sent = patch(before, topic_status(look))
            answer = api.call("PATCH", path, {"status": sent}, kind="merge-patch+json")
            before = answer["status"]
            assert old_definition("Topic", sent, before) == ()
        assert before["ordered"]["unknownEnds"] == [2]
    finally:
        api.call("DELETE", _path("topics", "orders"))


def test_defaults_are_those_of_the_models(api: ApiServer) -> None:
    for kind in crd.KINDS:
        name = kind.model.__name__
        made = _create(api, body(name, {"metadata.name": "defaults"}))
        try:
            ours = kind.model.model_validate(body(name, {"metadata.name": "defaults"})).as_json()
            theirs = kind.model.model_validate(made).as_json()
            assert theirs["spec"] == ours["spec"]
        finally:
            api.call("DELETE", _path(kind.plural, "defaults"))


def test_children_are_accepted_and_read_back_as_sent(api: ApiServer) -> None:
    """Strict validation passes, and no default of the server looks like a manual change."""
    for spec in CHILD_SPECS:
        made = group(metadata={"namespace": "default"}, **spec)
        for child in children(made, DEFAULTS, master=BrokerId("g1-0"), reader=BrokerId("g1-1")):
            api_version, kind = child["apiVersion"], child["kind"]
            root = "/api" if api_version == "v1" else "/apis"
            plural = kind.lower().removesuffix("y") + ("ies" if kind[-1] == "y" else "s")
            path = f"{root}/{api_version}/namespaces/default/{plural}"
            name = child["metadata"]["name"]
            options = "?fieldManager=fmq-operator&force=true&fieldValidation=Strict"
            there = api.call("PATCH", f"{path}/{name}{options}", child, kind="apply-patch+yaml")
            assert drifted(child, there) == "", (kind, spec)
            api.call("DELETE", f"{path}/{name}")


def test_stateful_set_is_applied_to_the_named_version_alone(api: ApiServer) -> None:
    """Also by force: this is how an operator that was replaced meanwhile is refused."""
    made = running(replicas=3).children["StatefulSet", "g1"]
    meta = {k: made["metadata"][k] for k in ("name", "labels", "annotations")}
    wanted = {k: made[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": meta}
    path = "/apis/apps/v1/namespaces/default/statefulsets/g1"
    force = f"{path}?fieldManager=fmq-operator&force=true"

    def apply(replicas: int, version: str = "") -> Any:
        of = {"resourceVersion": version} if version else {}
        sent = wanted | {"metadata": meta | of, "spec": made["spec"] | {"replicas": replicas}}
        return api.call("PATCH", force, sent, "apply-patch+yaml")

    try:
        first = apply(3)["metadata"]["resourceVersion"]
        second = apply(2, first)["metadata"]["resourceVersion"]
        with pytest.raises(Refused, match="the object has been modified"):
            apply(1, first)
        assert api.call("GET", path)["spec"]["replicas"] == 2
        assert apply(1, second)["spec"]["replicas"] == 1
    finally:
        api.call("DELETE", path)


def test_jobs_are_accepted(api: ApiServer) -> None:
    for spec in (
        {},
        {"type": "rebuild-index", "brokers": ["g1-0"]},
        {"type": "archive", "archive": {"topics": ["orders"], "claim": "lake"}},
        {"type": "archive", "archive": {"topics": ["orders"], "claim": "lake", "live": True}},
    ):
        made = body("BrokerJob", {"spec": {"type": "check", "group": "g1"} | spec})
        made["metadata"] |= {"namespace": "default", "uid": "u-1"}
        job = BrokerJob.model_validate(made)
        child = job_object(job, group(), DEFAULTS, "n1", ("g1-0", "g1-1"))
        path = "/apis/batch/v1/namespaces/default/jobs"
        api.call("POST", f"{path}?dryRun=All&fieldValidation=Strict", child)


CHILD_SPECS: tuple[dict[str, Any], ...] = (
    {},
    {
        "replicas": 3,
        "resources": {"requests": {"cpu": "1000m", "memory": "0.5Gi"}, "limits": {"cpu": 2}},
        "scheduling": {
            "acrossNodes": "required",
            "acrossZones": "required",
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "imagePullSecrets": ["pull-secret"],
        "storage": {"size": "1Ti", "storageClassName": "fast", "onDelete": "Delete"},
        "service": {"type": "NodePort", "annotations": {"a": "b"}},
        "networkPolicy": {"clients": "labelled"},
        "pod": {"labels": {"team": "a"}, "annotations": {"b": "c"}},
        "settings": {"retentionMs": 1},
    },
    {"networkPolicy": {"clients": "namespace"}, "replicas": 1, "policy": {"howMany": "none"}},
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": 2}, "writes pause while a slave is away"),
        ({"replicas": 2, "promotion": {"policy": "after"}}, "brings no writes back"),
        ({"replicas": 3, "promotion": {"policy": "after"}}, ""),
        ({"replicas": 2, "policy": {"howMany": "none"}}, ""),
        ({"replicas": 3, "policy": {"howMany": "zones"}}, "writes pause while a slave is away"),
        ({"replicas": 3, "policy": {"howMany": "all", "strict": True}}, "writes pause"),
    ],
)
def test_policy_that_pauses_writes_then_a_warning(
    warned: ApiServer, spec: dict[str, Any], expected: str
) -> None:
    assert expected in _warning(warned, spec)
    assert bool(expected) == bool(_warning(warned, spec))


def _warning(api: ApiServer, spec: dict[str, Any]) -> str:
    """Return the warning to the person who applies such a group; nothing is stored."""
    made = body("BrokerGroup", {})
    made["spec"] |= spec
    api.call("POST", f"{_path('brokergroups')}?dryRun=All", made)
    return "; ".join(api.warnings)


@pytest.fixture(scope="module")
def warned(api: ApiServer) -> ApiServer:
    """Install the chart's admission policy, which the server applies after a moment."""
    _install(api, "write-redundancy")
    _until(lambda: _warning(api, {"replicas": 2}), "the server warns")
    return api


def _install(api: ApiServer, policy: str) -> None:
    path = CHART / "files" / "admission" / f"{policy}.yaml"
    for each in yaml.safe_load_all(path.read_text()):
        kind = "policies" if each["kind"].endswith("Policy") else "policybindings"
        api.call("POST", f"{_ADMISSION}{kind}", each)


def _until(look: Callable[[], Any], what: str) -> None:
    """Look until it is so: the server applies policies, and sees topics, a moment later."""
    if not any(look() for _ in range(1000)):
        raise AssertionError(f"not so: {what}")


# ---- a group that the chain of an ordered topic uses
_KEPT = "/apis/fmq.io/v1alpha1/namespaces/{}/{}"
_USED = {"ordered": {"groups": [{"group": "used"}, {"group": "g2"}]}}
_LEFT = {"ordered": {"groups": [{"group": "g3"}, {"group": "g2"}]}}


@pytest.fixture(scope="module")
def kept(api: ApiServer) -> ApiServer:
    """Install the policy that refuses deletions, and a namespace that is being deleted later."""
    _install(api, "groups-in-use")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "ends"}})
    return api


def _declare(api: ApiServer, namespace: str, resource: str, **spec: Any) -> str:
    """Create a Topic; return its path."""
    path = _KEPT.format(namespace, "topics")
    made = body("Topic", {})
    made["metadata"] = {"name": resource}
    made["spec"] = {"zookeeper": {"connect": "zk:2181"}, **spec}
    api.call("POST", path, made)
    return f"{path}/{resource}"


def _group(api: ApiServer, namespace: str) -> str:
    """Create the group `used`; return its path."""
    path = _KEPT.format(namespace, "brokergroups")
    made = body("BrokerGroup", {})
    made["metadata"] = {"name": "used"}
    api.call("POST", path, made)
    return f"{path}/used"


def _deletion(api: ApiServer, path: str) -> str:
    """Try to delete; return the refusal."""
    return _refusal(lambda: api.call("DELETE", f"{path}?dryRun=All"))


def _holds(api: ApiServer, topic: str, *groups: str) -> None:
    change = {"status": {"ordered": {"phase": "Open", "segmentGroups": groups}}}
    api.call("PATCH", f"{topic}/status", change, kind="merge-patch+json")


def test_group_in_a_chain_then_its_deletion_is_refused(kept: ApiServer) -> None:
    _declare(kept, "default", "elsewhere", **_USED, cluster="another")
    _declare(kept, "default", "ordinary", groups=[{"group": "used", "queues": 1}])
    topic = _declare(kept, "default", "changes", **_USED)
    used = _group(kept, "default")
    _until(lambda: _deletion(kept, used), "it is in the chain")
    refusal = _deletion(kept, used)
    assert "group used belongs to ordered topic changes: take it out of " in refusal
    assert "of Topic changes first, or delete that Topic" in refusal
    assert "elsewhere" not in refusal
    assert "ordinary" not in refusal
    kept.call("DELETE", topic)
    _until(lambda: not _deletion(kept, used), "no chain uses it")
    kept.call("DELETE", used)


def test_group_with_unread_segments_then_its_deletion_waits(kept: ApiServer) -> None:
    topic, used = _declare(kept, "default", "ledger", **_LEFT, name="l"), _group(kept, "default")
    _holds(kept, topic, "used", "g3")
    _until(lambda: _deletion(kept, used), "it holds messages")
    refusal = _deletion(kept, used)
    assert "group used holds messages of ordered topic l that consumers still read" in refusal
    assert "segmentGroups of Topic ledger is without it (fmq ordered status l)" in refusal
    _holds(kept, topic, "g3")
    _until(lambda: not _deletion(kept, used), "all is read")
    kept.call("DELETE", used)


def test_deleted_namespace_takes_a_used_group_along(kept: ApiServer) -> None:
    _declare(kept, "ends", "changes", **_USED)
    used = _group(kept, "ends")
    _until(lambda: _deletion(kept, used), "it is in the chain")
    kept.call("DELETE", "/api/v1/namespaces/ends")
    _until(lambda: not _deletion(kept, used), "its namespace is deleted")
