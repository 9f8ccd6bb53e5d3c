"""The meaning of a group's children, not their exact text."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.ids import BrokerId
from fmqoperator.api.group import RESTART
from fmqoperator.core.children import names
from fmqoperator.core.children.drift import drifted
from fmqoperator.core.children.group import children
from fmqoperator.core.children.quantities import amount, bytes_of, equal_quantities
from fmqoperator.core.observation import HASH, Defaults
from fmqoperator.tests.samples import DEFAULTS, group


def made(
    master: str = "g1-0",
    reader: str = "g1-0",
    *,
    run: int | None = None,
    claim_size: str | None = None,
    evictable: bool = False,
    **spec: Any,
) -> dict[tuple[str, str], Any]:
    found = children(
        group(**spec),
        DEFAULTS,
        master=BrokerId(master),
        reader=BrokerId(reader),
        replicas=run,
        claim_size=claim_size,
        evictable=evictable,
    )
    return {(o["kind"], o["metadata"]["name"]): o for o in found}


def pod(**spec: Any) -> Any:
    return made(**spec)["StatefulSet", "g1"]["spec"]["template"]


def container(**spec: Any) -> Any:
    (found,) = pod(**spec)["spec"]["containers"]
    return found


def settings_of(children: Any) -> Any:
    (found,) = [child for (kind, _), child in children.items() if kind == "ConfigMap"]
    return found


def settings_name(**spec: Any) -> str:
    name: str = settings_of(made(**spec))["metadata"]["name"]
    return name


def test_settings_belong_to_the_pods_that_were_made_with_them() -> None:
    """A restarted container finds them again, whatever was declared since."""
    one, other = made(), made(settings={"retentionMs": 5})
    assert settings_name().startswith("g1-config-")
    assert settings_name() != settings_name(settings={"retentionMs": 5})
    for found in (one, other):
        child = settings_of(found)
        assert child["immutable"] is True
        spec = found["StatefulSet", "g1"]["spec"]["template"]["spec"]
        (volume,) = [v for v in spec["volumes"] if v["name"] == "settings"]
        assert volume["configMap"]["name"] == child["metadata"]["name"]


def test_children_come_in_the_order_of_need() -> None:
    assert list(made()) == [
        ("ConfigMap", settings_name()),
        ("ServiceAccount", "g1-broker"),
        ("Service", "g1-brokers"),
        ("Service", "g1-rw"),
        ("Service", "g1-ro"),
        ("PodDisruptionBudget", "g1-master"),
        ("PodDisruptionBudget", "g1-others"),
        ("NetworkPolicy", "g1"),
        ("StatefulSet", "g1"),
    ]


def test_each_is_owned_labelled_and_goes_without_waiting() -> None:
    for child in made().values():
        meta = child["metadata"]
        (owner,) = meta["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("BrokerGroup", "g1", True)
        assert owner["uid"] == group().metadata.uid
        assert owner["blockOwnerDeletion"] is False
        assert meta["labels"]["fmq.io/group"] == "g1"
        assert meta["namespace"] == "shop"
        assert "finalizers" not in meta


def test_equal_groups_make_equal_children() -> None:
    assert json.dumps(list(made().values())) == json.dumps(list(made().values()))


def test_a_broker_understands_its_settings() -> None:
    given = made(settings={"retentionMs": 5, "segmentBytes": 4096 * 100}, cluster="live")
    text = settings_of(given)["data"]["broker.json"]
    settings = BrokerSettings(**json.loads(text), broker="g1-0")
    assert (settings.cluster, settings.group, settings.retention_ms) == ("live", "g1", 5)
    assert settings.data_dir.startswith("/var/lib/fmq/")
    assert settings.listen.endswith(f":{names.CLIENT_PORT}")


def test_user_settings_cannot_override_the_operators() -> None:
    data = settings_of(made(settings={"cluster": "other", "data_dir": "/"}))["data"]
    assert json.loads(data["broker.json"])["cluster"] == "shop"


def test_the_cluster_is_the_namespace_unless_named() -> None:
    data = settings_of(made())["data"]
    assert json.loads(data["broker.json"])["cluster"] == "shop"


def test_the_pod_is_restricted() -> None:
    """The demands of the pod security standard `restricted`."""
    spec = pod()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in spec["containers"]:
        context = one["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    kinds = {k for v in spec["volumes"] for k in v if k != "name"}
    assert kinds <= {"configMap", "emptyDir"}
    assert spec["automountServiceAccountToken"] is False


def test_probes() -> None:
    one = container(startupSeconds=7200)
    startup, live, ready = (one[f"{k}Probe"] for k in ("startup", "liveness", "readiness"))
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 7200
    assert live["periodSeconds"] * live["failureThreshold"] >= 60
    assert ready["periodSeconds"] * ready["failureThreshold"] <= 5
    paths = [p["httpGet"]["path"] for p in (startup, live, ready)]
    assert paths == ["/startupz", "/livez", "/readyz?serves=reads"]


def test_the_broker_is_its_pod() -> None:
    one = container()
    assert one["args"][-2:] == ["--id", "$(POD_NAME)"]
    assert one["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert one["image"] == "fmq-broker:test"
    assert container(image="custom:1")["image"] == "custom:1"


def test_only_the_operator_restarts_and_all_may_start_at_once() -> None:
    spec = made()["StatefulSet", "g1"]["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["serviceName"] == "g1-brokers"


@pytest.mark.parametrize("change", [
    {"settings": {"retentionMs": 1}},
    {"image": "custom:2"},
    {"resources": {"requests": {"cpu": 2}}},
    {"zookeeper": {"connect": "other:2181"}},
    {"annotations": {RESTART: "now"}},
    {"scheduling": {"acrossNodes": "required"}},
])  # fmt: skip
def test_changes_that_restart_a_broker(change: dict[str, Any]) -> None:
    assert pod(**change) != pod()


@pytest.mark.parametrize("change", [
    {"replicas": 3},
    {"policy": {"howMany": "all"}},
    {"storage": {"size": "20Gi"}},
    {"paused": True},
    {"promotion": {"policy": "after"}},
    {"service": {"type": "NodePort"}},
    {"switchover": {"to": "g1-1"}},
])  # fmt: skip
def test_changes_that_restart_no_broker(change: dict[str, Any]) -> None:
    assert pod(**change) == pod()


def test_as_many_pods_as_are_to_run() -> None:
    assert made(replicas=3)["StatefulSet", "g1"]["spec"]["replicas"] == 3
    assert made(replicas=3, run=0)["StatefulSet", "g1"]["spec"]["replicas"] == 0


def test_volumes_are_kept_unless_asked_otherwise() -> None:
    rule = "persistentVolumeClaimRetentionPolicy"
    assert made()["StatefulSet", "g1"]["spec"][rule] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    asked = made(storage={"onDelete": "Delete"})["StatefulSet", "g1"]["spec"][rule]
    assert asked == {"whenDeleted": "Retain", "whenScaled": "Retain"}  # see test_ownership.py


def test_claim_template_keeps_the_size_of_the_existing_set() -> None:
    spec = made(storage={"size": "20Gi"}, claim_size="10Gi")["StatefulSet", "g1"]["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"
    assert claim["metadata"]["name"] == "data"


def test_services_select_who_serves() -> None:
    found = made(master="g1-0", reader="g1-1")
    assert found["Service", "g1-rw"]["spec"]["selector"][names.POD_NAME_LABEL] == "g1-0"
    assert found["Service", "g1-ro"]["spec"]["selector"][names.POD_NAME_LABEL] == "g1-1"
    headless = found["Service", "g1-brokers"]["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert names.POD_NAME_LABEL not in headless["selector"]


def test_services_select_no_broker_while_no_broker_serves() -> None:
    found = made(master="", reader="")
    for name in ("g1-rw", "g1-ro"):
        assert found["Service", name]["spec"]["selector"][names.POD_NAME_LABEL] == "g1-none"


def _covered(budget: Any, broker: str) -> bool:
    (rule,) = budget["spec"]["selector"]["matchExpressions"]
    return bool((broker in rule["values"]) == (rule["operator"] == "In"))


@pytest.mark.parametrize("reader", ["g1-0", "g1-1", ""])
def test_each_pod_has_one_budget_and_the_serving_one_is_kept(reader: str) -> None:
    found = made(reader=reader, replicas=3)
    serving, others = (found["PodDisruptionBudget", f"g1-{n}"] for n in ("master", "others"))
    for broker in ("g1-0", "g1-1", "g1-2"):
        assert _covered(serving, broker) != _covered(others, broker)
        assert _covered(serving, broker) == (broker in ("g1-0", reader))
    both = len({"g1-0", reader} - {""})
    assert serving["spec"]["minAvailable"] == both
    assert others["spec"]["minAvailable"] == 3 - both - 1
    # It would count all pods of the StatefulSet, not only the selected ones.
    assert "maxUnavailable" not in {*serving["spec"], *others["spec"]}


def test_a_drain_may_take_the_master_where_that_is_all_right() -> None:
    alone = made(replicas=1, policy={"howMany": "none"})
    assert alone["PodDisruptionBudget", "g1-master"]["spec"]["minAvailable"] == 0
    opened = made(evictable=True)
    assert opened["PodDisruptionBudget", "g1-master"]["spec"]["minAvailable"] == 0


def test_brokers_have_no_role_and_no_token() -> None:
    found = made()
    assert {kind for kind, _ in found} & {"Role", "RoleBinding"} == set()
    assert found["ServiceAccount", "g1-broker"]["automountServiceAccountToken"] is False
    assert pod()["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("clients", ["namespace", "labelled"])
def test_only_the_operators_pods_of_its_namespace_may_connect(clients: str) -> None:
    """With the labels from the chart: any other pod there is a client like any other."""
    policy = made(networkPolicy={"clients": clients})["NetworkPolicy", "g1"]["spec"]
    namespaced = {"matchLabels": {"kubernetes.io/metadata.name": DEFAULTS.operator_namespace}}
    peers = policy["ingress"][0]["from"]
    (peer,) = [p for p in peers if p.get("namespaceSelector") == namespaced]
    assert not selects(peer["podSelector"], {"app": "anything"})
    file = Path(__file__).parents[3] / "manifests" / "operator" / "operator.yaml"
    found = [o for o in yaml.safe_load_all(file.read_text()) if o["kind"] == "Deployment"]
    assert selects(peer["podSelector"], found[0]["spec"]["template"]["metadata"]["labels"])


@pytest.mark.parametrize(("clients", "peers"), [("anywhere", 0), ("namespace", 3), ("labelled", 3)])
def test_network_policy_lists_the_allowed_peers(clients: str, peers: int) -> None:
    serve, look = made(networkPolicy={"clients": clients})["NetworkPolicy", "g1"]["spec"]["ingress"]
    assert len(serve.get("from", [])) == peers
    assert serve["ports"][0]["port"] == names.CLIENT_PORT
    assert "from" not in look


@pytest.mark.parametrize("clients", ["namespace", "labelled"])
@pytest.mark.parametrize(("cluster", "let_in"), [("east", True), ("west", False)])
def test_brokers_of_other_groups_of_the_cluster_may_connect(
    clients: str, cluster: str, let_in: bool
) -> None:
    """Ordered topics span groups: one asks another's master, and compares its chains' copies."""
    other = made(name="g2", cluster=cluster)["StatefulSet", "g2"]["spec"]["template"]["metadata"]
    policy = made(cluster="east", networkPolicy={"clients": clients})["NetworkPolicy", "g1"]
    found = policy["spec"]["ingress"][0]["from"]
    assert let_in is any(
        p.get("namespaceSelector") == {} and selects(p["podSelector"], other["labels"])
        for p in found
    )


@pytest.mark.parametrize(
    ("label", "let_in"),
    [("east", ["g1", "g2"]), ("g1", ["g1"]), ("g2", ["g2"]), ("west", []), ("shop", [])],
)
def test_a_client_may_be_let_in_to_all_groups_of_a_cluster(label: str, let_in: list[str]) -> None:
    """Its topics span them, and a pod has only one label of each name."""
    found = []
    for name in ("g1", "g2"):
        spec: Any = {"cluster": "east", "networkPolicy": {"clients": "labelled"}}
        policy = made(name=name, **spec)["NetworkPolicy", name]["spec"]
        client, _, _ = policy["ingress"][0]["from"]
        assert client["namespaceSelector"] == {}
        found += [name] if selects(client["podSelector"], {"fmq.io/client": label}) else []
    assert found == let_in


def selects(selector: Any, labels: dict[str, str]) -> bool:
    """Whether the selector matches, as in Kubernetes, for the features in use."""
    named, rules = selector.get("matchLabels", {}), selector.get("matchExpressions", ())
    assert all(rule["operator"] == "In" for rule in rules)
    return named.items() <= labels.items() and all(
        labels.get(r["key"]) in r["values"] for r in rules
    )


def test_no_network_policy_if_not_wanted() -> None:
    assert ("NetworkPolicy", "g1") not in made(networkPolicy={"enabled": False})


def test_kept_apart() -> None:
    loose, strict = (
        pod()["spec"],
        pod(scheduling={"acrossNodes": "required", "acrossZones": "required"})["spec"],
    )
    term = "DuringSchedulingIgnoredDuringExecution"
    assert f"preferred{term}" in loose["affinity"]["podAntiAffinity"]
    assert f"required{term}" in strict["affinity"]["podAntiAffinity"]
    (zones,) = strict["topologySpreadConstraints"]
    assert zones["whenUnsatisfiable"] == "DoNotSchedule"
    free = pod(scheduling={"acrossNodes": "none", "acrossZones": "none"})["spec"]
    assert not {"affinity", "topologySpreadConstraints"} & free.keys()


def test_an_address_is_the_pods_name_not_its_ip() -> None:
    assert names.address(group(), "g1-1", DEFAULTS) == "g1-1.g1-brokers.shop.svc:9876"
    full = Defaults(broker_image="", cluster_domain="cluster.local")
    assert names.address(group(), "g1-1", full).endswith(".svc.cluster.local:9876")


@pytest.mark.parametrize(("broker", "number"), [("g1-0", 0), ("a-b-12", 12), ("g1", -1), ("", -1)])
def test_ordinals(broker: str, number: int) -> None:
    assert names.ordinal(broker) == number


# ---- drift


def test_child_as_desired_has_no_drift() -> None:
    for wanted in made().values():
        there = json.loads(json.dumps(wanted))
        there["metadata"] |= {"resourceVersion": "7", "managedFields": [{}]}
        there["status"] = {"replicas": 2}
        there.setdefault("spec", {})["added"] = "by the server"
        assert drifted(wanted, there) == ""


def test_missing_or_changed_child_has_drift() -> None:
    wanted = made()["StatefulSet", "g1"]
    assert drifted(wanted, None) == "it does not exist"
    there = json.loads(json.dumps(wanted))
    there["spec"]["replicas"] = 7
    assert drifted(wanted, there) == "spec.replicas was changed by another writer"
    there = json.loads(json.dumps(wanted))
    there["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"})
    assert "containers" in drifted(wanted, there)
    there = json.loads(json.dumps(wanted))
    there["metadata"]["annotations"][HASH] = "other"
    assert drifted(wanted, there) == "it has a part that is not declared any more"
    there["spec"]["replicas"] = 7
    assert drifted(wanted, there) == "spec.replicas changes from 7 to 2"


def test_a_quantity_may_be_written_in_another_way() -> None:
    wanted = made(resources={"requests": {"cpu": "1000m"}})["StatefulSet", "g1"]
    there = json.loads(json.dumps(wanted).replace('"1000m"', '"1"'))
    assert drifted(wanted, there) == ""
    there = json.loads(json.dumps(wanted).replace('"1000m"', '"2"'))
    assert "requests.cpu" in drifted(wanted, there)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1Gi", "1024Mi", True),
        ("1", "1000m", True),
        (1, "1", True),
        ("0.5", "500m", True),
        ("1G", "1Gi", False),
        ("100.5m", "101m", True),  # the API server rounds up to a thousandth
        ("0.0001", "1m", True),
        ("1.23456Gi", "1325598706238m", True),
        ("100.5m", "100m", False),
        ("odd", "odd", True),
        ("odd", "1", False),
    ],
)
def test_quantities(one: str | int, other: str | int, equal: bool) -> None:
    assert equal_quantities(one, other) is equal


def test_amounts() -> None:
    assert amount("10Gi") == 10 * 1024**3
    assert amount("-1") is None
    assert str(amount(f"{'9' * 30}P")).startswith("1.0")
    assert [bytes_of(n) for n in (0, 1023, 1536, 300 << 20)] == [
        "0 B", "1023 B", "1.5 KiB", "300 MiB",
    ]  # fmt: skip
