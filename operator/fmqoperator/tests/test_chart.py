"""The chart renders with every combination of switches, to objects that Kubernetes accepts."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqoperator.api.group import BrokerGroup
from fmqoperator.shell.process import Options

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "fmq"
KUBE = ("--kube-version", "1.34.0")
SWITCHES = {
    "crds.install": ("true", "false"),
    "operator.watchNamespaces": ("null", "{a,fmq-system}"),
    "quickstart.zookeeper.enabled": ("false", "true"),
    "quickstart.group.enabled": ("false", "true"),
    "monitoring": ("false", "true"),
}

KEPT = ("CustomResourceDefinition", "ValidatingAdmissionPolicy")
"""How the kinds begin whose objects are the whole cluster's, and outlive the release."""

helm = pytest.mark.skipif(shutil.which("helm") is None, reason="there is no helm here")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["helm", *arguments], capture_output=True, text=True)


def render(release: str = "fmq", /, **values: str) -> list[dict[str, Any]]:
    given: list[str] = []
    for name, value in values.items():
        if value == "null":
            continue
        if name == "monitoring":
            for part in ("serviceMonitor", "podMonitor", "rules", "dashboards"):
                given += ["--set", f"monitoring.{part}={value}"]
        else:
            given += ["--set", f"{name}={value}"]
    done = run("template", release, str(CHART), "-n", "fmq-system", *KUBE, *given)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def combinations() -> list[dict[str, str]]:
    return [
        dict(zip(SWITCHES, values, strict=True)) for values in itertools.product(*SWITCHES.values())
    ]


@helm
def test_each_object_names_its_component() -> None:
    """A Service of one component selects no pod of another."""
    found = render(**{name: values[1] for name, values in SWITCHES.items() if name[:4] != "crds"})
    own = [o for o in found if not o["kind"].startswith((*KEPT, "BrokerGroup"))]
    components = {o["metadata"]["labels"]["app.kubernetes.io/component"] for o in own}
    assert components == {"operator", "quickstart-zookeeper", "monitoring", "test"}
    for pod in (o for o in own if o["kind"] == "Pod"):
        for service in (o for o in own if o["kind"] == "Service"):
            selector = service["spec"]["selector"]
            assert not selector.items() <= pod["metadata"]["labels"].items()


@helm
def test_lint() -> None:
    done = run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@helm
@pytest.mark.parametrize("values", combinations(), ids=lambda v: "-".join(v.values()))
def test_every_combination(values: dict[str, str]) -> None:
    if values["quickstart.group.enabled"] == "true" != values["quickstart.zookeeper.enabled"]:
        values = {**values, "quickstart.group.zookeeper": "zk:2181"}
    found = render(**values)
    names = [(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in found]
    assert len(set(names)) == len(names), "each object once"
    kinds = [o["kind"] for o in found]
    assert kinds.count("CustomResourceDefinition") == (3 if values["crds.install"] == "true" else 0)
    assert kinds.count("BrokerGroup") == (values["quickstart.group.enabled"] == "true")
    monitored = {"ServiceMonitor", "PodMonitor", "PrometheusRule"} & set(kinds)
    assert len(monitored) == (3 if values["monitoring"] == "true" else 0)
    policies = sum(kind.startswith("ValidatingAdmissionPolicy") for kind in kinds)
    assert policies == (4 if values["crds.install"] == "true" else 0)
    for o in found:
        if o["kind"].startswith(KEPT):
            assert o["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        check_pod(o)


def check_pod(o: dict[str, Any]) -> None:
    """Check restricted pod security and limits, for whatever creates pods."""
    spec = (
        o.get("spec", {})
        if o["kind"] == "Pod"
        else o.get("spec", {}).get("template", {}).get("spec")
    )
    if not spec or "containers" not in spec:
        return
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert not container["image"].endswith(":latest")


@helm
def test_every_pod_that_pulls_an_image_has_the_pull_secrets() -> None:
    """The first group's brokers, too: their image is from the same registry."""
    switches = {f"quickstart.{part}.enabled": "true" for part in ("zookeeper", "group")}
    found = {o["kind"]: o["spec"] for o in render(**switches, **{"image.pullSecrets": "{a,b}"})
             if "spec" in o}  # fmt: skip
    named = [{"name": "a"}, {"name": "b"}]
    for pods in (found["Deployment"], found["StatefulSet"]):
        assert pods["template"]["spec"]["imagePullSecrets"] == named
    assert found["Pod"]["imagePullSecrets"] == named
    first = {"metadata": {"name": "g1", "namespace": "n"}, "spec": found["BrokerGroup"]}
    assert BrokerGroup.model_validate(first).spec.image_pull_secrets == ("a", "b")


@helm
def test_brokers_cluster_label_is_kept_by_prometheus() -> None:
    """Many a Prometheus sets a label of that name on all targets: two groups would be one."""
    found = {o["kind"]: o["spec"] for o in render(monitoring="true") if "spec" in o}
    for kind, field in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        assert [end["honorLabels"] for end in found[kind][field]] == [True]


@helm
def test_files_of_dashboards_have_the_name_of_the_product() -> None:
    """Grafana's sidecar puts all into one folder: another product's overview.json is one file."""
    found = [o for o in render(monitoring="true") if o["kind"] == "ConfigMap"]
    files = [name for o in found for name in o["data"]]
    assert len(set(files)) == len(files) > 0
    assert [name for name in files if not name.startswith("fmq-")] == []


@helm
def test_one_replica_may_be_evicted() -> None:
    for replicas, budgets in (("1", 0), ("2", 1)):
        found = render(**{"operator.replicas": replicas})
        assert sum(o["kind"] == "PodDisruptionBudget" for o in found) == budgets


@helm
def test_a_namespace_that_is_not_watched_gets_no_rights() -> None:
    found = render(**{"operator.watchNamespaces": "{a,b}"})
    bound = [o for o in found if o["kind"] == "ClusterRoleBinding"]
    assert [o["metadata"]["name"] for o in bound] == ["fmq-fmq-system-watch"]
    assert sorted(
        o["metadata"]["namespace"] for o in found
        if o["kind"] == "RoleBinding" and o["metadata"]["name"] == "fmq-fmq-system-groups"
    ) == ["a", "b"]  # fmt: skip


@helm
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("operator.replicas=0", "replicas"),
        ("operator.replica=2", "replica"),
        ("quickstart.zookeeper.replicas=2", "replicas"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("operator.plannedMoves=off", "plannedMoves"),
        ("operator.updatesAtOnce=-1", "updatesAtOnce"),
        ("operator.watchNamespaces={a,a}", "watchNamespaces"),
        # The API server would refuse it with half of the chart installed.
        ("operator.podAnnotations.x=1", "podAnnotations"),
        ("operator.nodeSelector.x=true", "nodeSelector"),
        ("monitoring.labels.x=1", "labels"),
        ("operator.resources.limits.memory=1GB", "memory"),
        ("quickstart.zookeeper.resources.requests.cpu=-1", "cpu"),
        ("quickstart.group.name=1st", "name"),  # the API server would refuse it, after the rest
        ("quickstart.group.storage=10K", "storage"),
        ("quickstart.group.zookeeper=zk", "zookeeper"),
        ("operator.sparkServiceAccount=", "sparkServiceAccount"),
        ("operator.logLevel=loud", "logLevel"),
        ("operator.priorityClassName=High Class", "priorityClassName"),
        ("operator.env[0].name=FMQ_LISTEN", "env"),  # the chart sets it: one of two would count
        # Names under which no broker would be found.
        ("operator.clusterDomain=.cluster.local", "clusterDomain"),
        ("operator.clusterDomain=svc.cluster.local", "clusterDomain"),
        ("quickstart.group.enabled=true", "needs a ZooKeeper"),
        # No operator would ever watch it.
        (
            "quickstart.zookeeper.enabled=true,quickstart.group.enabled=true,"
            "operator.watchNamespaces={orders}",
            "the group would be created in default",
        ),
    ],
)
def test_a_wrong_value_is_refused(value: str, says: str) -> None:
    done = run("template", "fmq", str(CHART), *KUBE, "--set", value)
    assert done.returncode != 0
    assert says in done.stderr


@helm
@pytest.mark.parametrize(
    ("watched", "where"), [("null", "fmq-system"), ("{a,fmq-system}", "fmq-system"), ("{a}", "a")]
)
def test_the_notes_make_a_group_where_the_operator_looks(
    watched: str, where: str, tmp_path: Path
) -> None:
    """Elsewhere the group would exist, and no operator would act on it."""
    commands = notes(tmp_path, f"operator.watchNamespaces={watched}")
    assert re.findall(r"kubectl -n (\S+)", commands) == [where] * 3


@helm
def test_the_notes_group_is_made_when_it_is_pasted(tmp_path: Path) -> None:
    """And its image is pulled: the operator's secrets are of no use to brokers."""
    notes_text = notes(tmp_path, "image.pullSecrets={a,b}")
    pasted = "kubectl() { cat; }\n" + notes_text.partition("slave:\n")[2].partition("  2. Watch")[0]
    done = subprocess.run(["sh", "-c", pasted], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    made = BrokerGroup.model_validate(yaml.safe_load(done.stdout))
    assert made.spec.image_pull_secrets == ("a", "b")


@helm
@pytest.mark.parametrize("upgrade", [False, True], ids=["install", "upgrade"])
@pytest.mark.parametrize("values", combinations(), ids=lambda v: "-".join(v.values()))
def test_notes_render_for_install_and_for_upgrade(
    values: dict[str, str], upgrade: bool, tmp_path: Path
) -> None:
    """A helper returns a string, also where a template needs a bool: only rendering shows it."""
    given = [f"{name}={value}" for name, value in values.items()
             if value != "null" and name != "monitoring"]  # fmt: skip
    if values["quickstart.zookeeper.enabled"] == "false":
        given.append("quickstart.group.zookeeper=zk:2181")
    text = notes(tmp_path, ",".join(given), *(["--is-upgrade"] if upgrade else []))
    made = not upgrade and values["quickstart.group.enabled"] == "true"
    assert ("helm -n fmq-system test fmq" in text) is made
    assert ("kind: BrokerGroup" in text) is not made


def test_no_helpers_text_is_taken_for_a_bool() -> None:
    """Without helm: the arguments of `ternary` come from values and comparisons only."""
    text = (CHART / "templates" / "NOTES.txt").read_text()
    assigned = dict(re.findall(r"\{\{- (\$\w+) := (.*?) \}\}", text))
    chosen = re.findall(r"(\$\w+) \| ternary", text)
    assert chosen
    for name in chosen:
        compared = re.sub(r"\((eq|ne|empty) \(include [^()]*\)[^()]*\)", "", assigned[name])
        assert "include" not in compared, f"{name} := {assigned[name]}"


def notes(folder: Path, value: str, *options: str) -> str:
    """Return the notes for a person, where there is no cluster to show them."""
    chart = folder / "fmq"
    shutil.copytree(CHART, chart)
    shutil.copy(chart / "templates" / "NOTES.txt", chart / "NOTES")
    text = 'notes: |\n{{ tpl (.Files.Get "NOTES") . | indent 2 }}\n'
    (chart / "templates" / "probe.yaml").write_text(text)
    given = ["--set", value, "--show-only", "templates/probe.yaml", *options]
    done = run("template", "fmq", str(chart), "-n", "fmq-system", *KUBE, *given)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["notes"].partition("The next three commands:")[2])


def environment(**values: str) -> dict[str, str]:
    """Return the operator container's environment, as far as the chart states it directly."""
    (deployment,) = [o for o in render(**values) if o["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


@helm
def test_pods_of_the_operator_take_what_a_cluster_asks_for() -> None:
    values = {
        "operator.priorityClassName": "high",
        "operator.logLevel": "warning",
        "operator.env[0].name": "HTTPS_PROXY",
        "operator.env[0].value": "http://proxy:3128",
    }
    (deployment,) = [o for o in render(**values) if o["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["priorityClassName"] == "high"
    given = environment(**values)
    assert given["HTTPS_PROXY"] == "http://proxy:3128"
    assert Options.read(given).log_level == "warning"


@helm
@pytest.mark.parametrize(("value", "moves"), [("null", True), ("true", True), ("false", False)])
def test_planned_moves_are_switched_by_a_value(value: str, moves: bool) -> None:
    given = environment(**{"operator.plannedMoves": value})
    assert Options.read(given).defaults.planned_moves is moves


@helm
@pytest.mark.parametrize(("value", "most"), [("null", 1), ("0", 0), ("20", 20)])
def test_number_of_concurrent_updates_is_a_chart_value(value: str, most: int) -> None:
    given = environment(**{"operator.updatesAtOnce": value})
    assert Options.read(given).defaults.updates_at_once == most


@helm
@pytest.mark.parametrize(
    ("release", "lease"),
    [("fmq", "fmq-operator"), ("a", "a-fmq-operator"), ("b", "b-fmq-operator")],
)
def test_each_release_of_a_namespace_has_its_own_lease(release: str, lease: str) -> None:
    """With one Lease for both, one of two operators stands by for ever, and its groups with it."""
    found = render(release)
    (role,) = [o for o in found if o["metadata"]["name"].endswith("lease") and "rules" in o]
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, [lease]]
    (deployment,) = [o for o in found if o["kind"] == "Deployment"]
    (test,) = [o for o in found if o["kind"] == "Pod"]
    for pod in (deployment["spec"]["template"], test):
        (container,) = pod["spec"]["containers"]
        given = {e["name"]: e["value"] for e in container["env"] if "value" in e}
        assert Options.read(given).lease == lease


@helm
def test_two_releases_share_only_what_is_of_the_whole_cluster() -> None:
    values = {name: values[1] for name, values in SWITCHES.items() if "group" not in name}
    first, second = (
        {
            (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])
            for o in render(release, **values)
            if not o["kind"].startswith(KEPT)
        }
        for release in ("a", "b")
    )
    assert first
    assert first & second == set()


def test_chart_sets_every_variable_that_the_operator_reads() -> None:
    """And nothing that it does not; without helm, the manifests show what it sets."""
    read = Recorded()
    Options.read(read)
    file = ROOT / "manifests" / "operator" / "operator.yaml"
    found = [o for o in yaml.safe_load_all(file.read_text()) if o and o["kind"] == "Deployment"]
    (container,) = found[0]["spec"]["template"]["spec"]["containers"]
    assert {e["name"] for e in container["env"]} == read.asked


class Recorded(dict[str, str]):
    """An empty environment that records what is read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return default


def test_the_operator_may_write_no_roles() -> None:
    """An account that may write roles can grant itself any right, in every namespace."""
    file = ROOT / "manifests" / "operator" / "operator.yaml"
    found = [o for o in yaml.safe_load_all(file.read_text()) if o and "rules" in o]
    groups = {group for o in found for rule in o["rules"] for group in rule["apiGroups"]}
    assert "apps" in groups
    assert "rbac.authorization.k8s.io" not in groups


def test_every_value_is_described() -> None:
    """The schema knows each default, and describes it."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    check_described(values, schema, "")


def check_described(values: Any, schema: dict[str, Any], where: str) -> None:
    assert schema.get("description"), f"{where} is not described"
    if isinstance(values, dict) and "properties" in schema:
        assert set(values) <= set(schema["properties"]), where
        for name, value in values.items():
            check_described(value, schema["properties"][name], f"{where}.{name}")


@helm
def test_manifests_are_what_the_chart_makes() -> None:
    command = [sys.executable, str(ROOT / "tools" / "render_manifests.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@helm
def test_without_crds_install_the_manifests_have_the_rest() -> None:
    """Groups that chains use would be without the guard, and no one would hear about it."""
    folder = ROOT / "manifests" / "crds"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    there = [o for name in listed for o in yaml.safe_load_all((folder / name).read_text())]
    given = {(o["kind"], o["metadata"]["name"]) for o in render()}
    left = given - {(o["kind"], o["metadata"]["name"]) for o in render(**{"crds.install": "false"})}
    assert {(o["kind"], o["metadata"]["name"]) for o in there} == left
    assert any(kind == "ValidatingAdmissionPolicy" for kind, _ in left)


@helm
@pytest.mark.parametrize("install", [False, True])
def test_notes_name_the_manifests_to_apply(install: bool, tmp_path: Path) -> None:
    text = notes(tmp_path, f"crds.install={str(install).lower()}")
    assert ("kubectl apply -k manifests/crds" in text) is not install


def test_sample_is_valid_and_kustomizations_name_existing_files() -> None:
    sample = yaml.safe_load((ROOT / "manifests" / "sample.yaml").read_text())
    BrokerGroup.model_validate(sample)
    found = sorted((ROOT / "manifests").rglob("kustomization.yaml"))
    assert len(found) == 5
    for file in found:
        listed = yaml.safe_load(file.read_text())["resources"]
        assert [name for name in listed if not (file.parent / name).exists()] == []


def test_dashboards_match_their_table() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_dashboards.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_rules_and_dashboards_name_metrics_that_are_documented() -> None:
    known = set(re.findall(r"fmq_\w+", (ROOT / "docs" / "operations" / "metrics.md").read_text()))
    for path in sorted((CHART / "files").glob("**/*")):
        if path.is_file() and path.parent.name != "crds":
            used = set(re.findall(r"\bfmq_\w+", path.read_text()))
            assert used <= known, path.name


def test_every_rule_has_its_runbook() -> None:
    runbooks = (ROOT / "docs" / "operations" / "runbooks.md").read_text()
    for group in yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert f"\n## {rule['alert']}\n" in runbooks
            page = f"docs/operations/runbooks.md#{rule['alert'].lower()}"
            assert rule["annotations"]["runbook"] == page


def test_runbook_commands_have_all_required_arguments() -> None:
    """In a pod no variable names the ensemble; and of several pods kubectl shows ten lines each."""
    text = (ROOT / "docs" / "operations" / "runbooks.md").read_text()
    commands = [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]
    moves = [c for c in commands if "fmq failover " in c]
    logs = [c for c in commands if c.startswith("kubectl logs") and " -l " in c]
    assert moves
    assert [c for c in moves if " -z " not in c or " -c " not in c] == []
    assert logs
    assert [c for c in logs if "--tail=" not in c] == []
