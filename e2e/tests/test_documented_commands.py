"""Every helm and kubectl command of the documents, run as it stands against an API server.

Needs helm, kubectl, etcd and kube-apiserver (PATH or $FMQ_KIND_CACHE/bin). Commands that need a
kubelet (`exec`, `logs`, `helm test`) are only parsed here; the tests on kind run them.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kind.bare import BROKER_GROUPS, kubeconfig
from fmqoperator.tests.apiserver import ApiServer, Refused, api_server, programs

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "operations" / "kubernetes.md",
    ROOT / "docs" / "operations" / "runbooks.md",
    ROOT / "docs" / "how-to" / "move-a-master.md",
    ROOT / "docs" / "how-to" / "upgrade.md",
)
RELEASED = sorted((ROOT / "charts" / "released").glob("*.tgz"))
SYSTEM = "fmq-system"
PARSED_ONLY = ("kubectl exec", "kubectl logs", "kubectl drain", "kubectl wait", "helm test",
               "kubectl run", "kubectl port-forward", "kubectl rollout")  # fmt: skip
"""Commands that need a kubelet or a controller, or wait for one."""
PLACEHOLDERS = {
    "GROUP": "g1",
    "BROKER": "g1-0",
    "READER": "g1-1",
    "NAMESPACE": SYSTEM,
    "NODE": "n1",
    "NAME": "orders",
}


def _path() -> str:
    cache = os.environ.get("FMQ_KIND_CACHE")
    return os.pathsep.join([f"{cache}/bin" if cache else "", os.environ.get("PATH", "")])


LACKING = [name for name in ("helm", "kubectl") if shutil.which(name, path=_path()) is None]
needs_server = pytest.mark.skipif(
    bool(LACKING) or programs() is None,
    reason="needs helm, kubectl, etcd and kube-apiserver on PATH",
)


def documented(text: str) -> list[str]:
    """Return a page's helm and kubectl commands in order, from blocks (`$ ...`) and spans."""
    found: list[tuple[int, str]] = []
    fenced = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)
    for block in fenced.finditer(text):
        joined = block[1].replace("\\\n", " ")
        found += [(block.start(), line[2:]) for line in joined.splitlines() if line[:2] == "$ "]
    prose = fenced.sub(lambda block: " " * len(block[0]), text)
    found += [(span.start(), span[1]) for span in re.finditer(r"`([^`]+)`", prose)]
    commands = [" ".join(command.split()) for _, command in sorted(found, key=lambda f: f[0])]
    return [c for c in commands if re.match(r"(helm|kubectl) \S", c)]


def commands_of(page: Path, program: str) -> list[str]:
    return [c for c in documented(page.read_text()) if c.startswith(program)]


def test_commands_are_found_in_blocks_and_in_spans() -> None:
    block = "```yaml\na: b\n```\n```\n$ helm install x \\\n    --set a=b\nout\n```\n"
    text = f"a `kubectl get bg`\n{block}`kubectl\nget pvc`\n"
    assert documented(text) == ["kubectl get bg", "helm install x --set a=b", "kubectl get pvc"]
    pages = [commands_of(page, "kubectl") for page in PAGES]
    assert min(len(commands_of(page, "")) for page in PAGES) >= 1
    assert sum(map(len, pages)) > 30


def test_each_released_chart_is_kept() -> None:
    versions = re.findall(r"^## \[?v?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    kept = {file.name for file in RELEASED}
    assert {f"fmq-{version}.tgz" for version in versions} <= kept
    assert kept


# ---- against an API server


class Shell:
    """Runs commands as a person would: at the root of the repository, in the chart's namespace."""

    def __init__(self, config: Path) -> None:
        found = {"PATH": _path(), "KUBECONFIG": str(config), "HOME": str(config.parent)}
        self._environment = os.environ | found

    def run(self, command: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", "-c", command], input=given, capture_output=True, text=True, cwd=ROOT,
            env=self._environment, timeout=120,
        )  # fmt: skip

    def ok(self, command: str, given: str = "") -> str:
        done = self.run(command, given)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture(scope="module")
def shell(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    config = kubeconfig(api, tmp_path_factory.mktemp("kubectl") / "config")
    shell = Shell(config)
    shell.ok(f"kubectl config set-context --current --namespace={SYSTEM}")
    return shell


@pytest.fixture
def emptied(shell: Shell, api: ApiServer) -> Iterator[Shell]:
    """A shell on a server without a release of the chart and without groups, before and after."""
    yield shell
    shell.run(f"helm uninstall fmq -n {SYSTEM}")
    try:
        for name in [o["metadata"]["name"] for o in groups(api)]:
            api.call("DELETE", f"{BROKER_GROUPS % SYSTEM}/{name}")
    except Refused:
        pass  # the CRDs are gone


def groups(api: ApiServer) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = api.call("GET", BROKER_GROUPS % SYSTEM)["items"]
    return found


def policies(api: ApiServer) -> set[str]:
    found = api.call("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
    return {o["metadata"]["name"] for o in found["items"]}


def the_quick_start() -> str:
    (command,) = commands_of(ROOT / "docs" / "operations" / "kubernetes.md", "helm install")
    return command


def upgrades() -> list[str]:
    return commands_of(ROOT / "docs" / "operations" / "kubernetes.md", "helm upgrade")


def revision(shell: Shell) -> tuple[int, str]:
    (release,) = json.loads(shell.ok(f"helm list -n {SYSTEM} -o json"))
    return int(release["revision"]), release["status"]


@needs_server
@pytest.mark.processes
def test_the_documented_quick_start_is_upgraded(emptied: Shell, api: ApiServer) -> None:
    """The first group exists: the notes of an upgrade look for it."""
    emptied.ok(the_quick_start())
    assert [o["metadata"]["name"] for o in groups(api)] == ["g1"]
    assert len(upgrades()) >= 2
    for number, command in enumerate(upgrades(), 2):
        notes = emptied.ok(command)
        assert revision(emptied) == (number, "deployed")
        assert f"helm -n {SYSTEM} test fmq" in notes
    assert [o["metadata"]["name"] for o in groups(api)] == ["g1"]


@needs_server
@pytest.mark.processes
def test_upgrade_without_first_group_prints_how_to_create_it(
    emptied: Shell, api: ApiServer
) -> None:
    """And the API server takes what the notes print."""
    emptied.ok(the_quick_start())
    api.call("DELETE", f"{BROKER_GROUPS % SYSTEM}/g1")
    notes = emptied.ok(upgrades()[0])
    pasted = re.search(r"^kubectl .*?^END$", notes, re.M | re.S)
    assert pasted, notes
    emptied.ok(pasted[0])
    assert [o["metadata"]["name"] for o in groups(api)] == ["g1"]


@needs_server
@pytest.mark.processes
@pytest.mark.parametrize("package", RELEASED, ids=lambda file: file.stem)
@pytest.mark.parametrize("values", ["quick start", "operator alone"])
def test_each_released_chart_is_upgraded(emptied: Shell, package: Path, values: str) -> None:
    """With the release's own values; twice, as the second upgrade changes nothing."""
    command = the_quick_start().replace("charts/fmq", str(package))
    if values == "operator alone":
        command = command.partition("--set")[0]
    emptied.ok(command)
    for number in (2, 3):
        emptied.ok(upgrades()[0])
        assert revision(emptied) == (number, "deployed")


def _make_named_objects(shell: Shell) -> None:
    """Create the objects that the commands name: brokers' pods and volumes, a topic, a job."""
    found: list[tuple[str, str, Any, Any]] = []
    for name in ("g1-0", "g1-1"):
        meta = {"name": name, "labels": {"fmq.io/group": "g1"}}
        container = {"name": "broker", "image": "fmq/broker:0.1.0"}
        found.append(("v1", "Pod", meta, {"containers": [container]}))
        size = {"requests": {"storage": "1Gi"}}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": size}
        found.append(("v1", "PersistentVolumeClaim", {"name": f"data-{name}"}, claim))
    ours, orders = "fmq.io/v1alpha1", {"name": "orders"}
    topic = {"zookeeper": {"connect": "zk:2181"}, "groups": [{"group": "g1", "queues": 1}]}
    found.append((ours, "Topic", orders, topic))
    found.append((ours, "BrokerJob", orders, {"group": "g1", "type": "check"}))
    for version, kind, meta, spec in found:
        made = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
        shell.ok("kubectl apply -f -", json.dumps(made))
    shell.run("kubectl create namespace orders")


def as_typed(command: str) -> str:
    """Fill in the placeholders. A watch ends after its first look, and a deletion is only judged by
    the server: later commands need the object, and some deletions wait for a controller."""
    for word, name in PLACEHOLDERS.items():
        command = re.sub(rf"\b{word}\b", name, command)
    if command.startswith("kubectl delete "):
        command += " --dry-run=server"
    return re.sub(r" -w$", "", command)


def _is_parsed_only(command: str) -> bool:
    plain = re.sub(r" -n \S+", "", command)
    return plain.startswith(PARSED_ONLY)


def _options_known(shell: Shell, command: str) -> "subprocess.CompletedProcess[str]":
    """Run with `--help`: both programs refuse an unknown option before they print it."""
    own = shlex.split(command.partition(" -- ")[0].partition(" | ")[0])
    return shell.run(shlex.join([*own, "--help"]))


@needs_server
@pytest.mark.processes
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "-" + page.stem)
def test_every_documented_command_is_accepted(emptied: Shell, page: Path) -> None:
    emptied.ok(the_quick_start())
    _make_named_objects(emptied)
    refused = []
    for command in commands_of(page, ""):
        typed = as_typed(command)
        if typed.startswith("helm uninstall") or " delete crd" in typed:
            continue  # the end of everything: `test_uninstall_works_as_documented`
        if typed.startswith("helm install"):
            continue  # it was the first
        done = _options_known(emptied, typed) if _is_parsed_only(typed) else emptied.run(typed)
        if done.returncode:
            refused.append(f"{command}: {done.stderr.strip()}")
    assert refused == []


@needs_server
@pytest.mark.processes
def test_uninstall_works_as_documented(emptied: Shell, api: ApiServer) -> None:
    emptied.ok(the_quick_start())
    page = ROOT / "docs" / "operations" / "kubernetes.md"
    (gone,) = commands_of(page, "helm uninstall")
    emptied.ok(gone)
    assert [o["metadata"]["name"] for o in groups(api)] == ["g1"], "groups outlive the chart"
    assert "groups-in-use.fmq.io" in policies(api), "and so does their guard"
    (deleted,) = [c for c in commands_of(page, "kubectl") if " delete crd" in c]
    emptied.ok(deleted)
    with pytest.raises(Refused):
        groups(api)
    assert policies(api) == set(), "another release can bring its own"
