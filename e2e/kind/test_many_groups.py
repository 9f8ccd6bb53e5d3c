"""Two hundred groups and one operator: how soon a restart has seen all, and that it writes nothing.

Without a cluster: a real API server and a real ZooKeeper, the operator as a process, no pods.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kind.tools import ROOT, until
from e2e.seeing.chart import eager_rules
from e2e.seeing.prometheus import Target, available, prometheus
from fmqoperator.tests.apiserver import ApiServer, Refused, api_server, programs
from fmqport.free_ports import free_port

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

GROUPS = 200
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ALL = "/apis/fmq.io/v1alpha1/namespaces/default/brokergroups"
KINDS = (
    ALL,
    "/apis/apps/v1/namespaces/default/statefulsets",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/configmaps",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
)


class Operator:
    """One process of it."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.log = folder / f"operator-{time.time_ns()}.log"
        self.address = f"127.0.0.1:{free_port()}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(config),
            "FMQ_LISTEN": self.address,
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fmqoperator"], env=environment, stdout=output, stderr=output
            )

    def figure(self, name: str, group: str = "") -> float:
        """One of its metrics; -1 while it does not answer."""
        labels = rf"{{.*group=\"{group}\".*}}" if group else ""
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as a:
                found = re.search(rf"^{name}{labels} (\S+)$", a.read().decode(), re.M)
        except OSError:
            return -1
        return float(found[1]) if found else -1

    def looked_at_all(self) -> bool:
        """A round of every group is over."""
        rounds = self.figure("fmq_operator_rounds_total")
        return rounds >= GROUPS and self.figure("fmq_operator_stalled_seconds") == 0

    def stop(self) -> int:
        """In order; its status."""
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def operator(folder: Path, config: Path) -> Iterator[Operator]:
    found = Operator(folder, config)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def kubeconfig(api: ApiServer, path: Path) -> Path:
    cluster = {"server": api._url, "insecure-skip-tls-verify": True}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "t",
                "clusters": [{"name": "t", "cluster": cluster}],
                "users": [{"name": "t", "user": {"token": "test"}}],
                "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            }
        )
    )
    return path


def install(api: ApiServer) -> None:
    for file in sorted((ROOT / "charts" / "fmq" / "files" / "crds").glob("*.yaml")):
        where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.call("POST", where, yaml.safe_load(file.read_text()))
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "fmq-system"}})
    until(lambda: served(api), "the resources are served")


def served(api: ApiServer) -> bool:
    try:
        return "items" in api.call("GET", ALL) and bool(
            api.call("GET", "/api/v1/namespaces/default")
        )
    except Refused:
        return False


def versions(api: ApiServer) -> dict[str, str]:
    """Of all that the operator may have written."""
    found = {}
    for path in KINDS:
        for item in api.call("GET", path)["items"]:
            found[f"{path}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
    return found


def made(api: ApiServer) -> bool:
    groups: list[dict[str, Any]] = api.call("GET", ALL)["items"]
    told = sum("phase" in group.get("status", {}) for group in groups)
    return told == GROUPS == len(api.call("GET", KINDS[1])["items"])


def test_two_hundred_groups(tmp_path: Path, zookeeper: str, report: dict[str, str]) -> None:
    if programs() is None:
        pytest.skip("no etcd and kube-apiserver on the PATH")
    with api_server(tmp_path) as api:
        install(api)
        for n in range(GROUPS):
            api.call(
                "POST",
                ALL,
                {
                    "apiVersion": "fmq.io/v1alpha1",
                    "kind": "BrokerGroup",
                    "metadata": {"name": f"g{n:03}"},
                    "spec": {"replicas": 2, "zookeeper": {"connect": zookeeper}},
                },
            )
        config = kubeconfig(api, tmp_path / "kubeconfig")
        with operator(tmp_path, config) as first:
            begun_s = time.monotonic()
            until(lambda: made(api), "every group has its objects", 400)
            report[f"{GROUPS} groups made"] = f"{time.monotonic() - begun_s:.1f} s"
            until(first.looked_at_all, "all is calm", 120)
            before = versions(api)
            until(lambda: (seen := before) == before_again(api, seen), "nothing is written")
            assert first.stop() == 0
        before = versions(api)
        with operator(tmp_path, config) as second:
            begun_s = time.monotonic()
            until(second.looked_at_all, "all are looked at", 120)
            took_s = time.monotonic() - begun_s
            report[f"{GROUPS} groups looked at after a restart"] = f"{took_s:.1f} s"
            memory = second.figure("process_resident_memory_bytes") / 1024 / 1024
            report["memory of the operator then"] = f"{memory:.0f} MiB"
            assert versions(api) == before, "a restart writes nothing"
            assert "round_" not in second.log.read_text()
            assert memory < 256, "the chart's limit"
            assert second.figure("fmq_operator_group_brokers", group="g007") == 2
            _stalls(second, api, tmp_path)


def _stalls(works: Operator, api: ApiServer, folder: Path) -> None:
    """What it writes hangs in a webhook that never answers, and everybody wants something.

    (Its Lease does not.) The alert holds its breath for a moment only.
    """
    if not available():
        return
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        where = f"https://127.0.0.1:{deaf.getsockname()[1]}/"
        api.call("POST", WEBHOOKS, webhook(where))
        targets, rules = [Target("operator", works.address)], eager_rules(folder / "r.yaml", 5)
        with prometheus(folder, targets, rules) as found:
            until(lambda: found.up() == {"operator"}, "it is scraped")
            assert "FmqOperatorStalls" not in found.alerts()
            for n in range(GROUPS):
                more = {"spec": {"replicas": 3}}
                api.call("PATCH", f"{ALL}/g{n:03}", more, kind="merge-patch+json")
            until(lambda: "FmqOperatorStalls" in found.alerts(), "it is seen to stall", 300)


def webhook(url: str) -> dict[str, Any]:
    """That is asked about everything which the operator writes of a group."""
    wheres = (
        ("apps", "v1", "statefulsets"),
        ("", "v1", "services"),
        ("", "v1", "configmaps"),
        ("policy", "v1", "poddisruptionbudgets"),
        ("fmq.io", "v1alpha1", "brokergroups/status"),
    )
    asked = [
        {"apiGroups": [g], "apiVersions": [v], "resources": [r], "operations": ["*"]}
        for g, v, r in wheres
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "deaf"},
        "webhooks": [
            {
                "name": "deaf.fmq.io",
                "clientConfig": {"url": url},
                "rules": asked,
                "timeoutSeconds": 30,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def before_again(api: ApiServer, seen: dict[str, str]) -> dict[str, str]:
    """As it is a little later; `seen` is brought up to that."""
    time.sleep(3)
    now = versions(api)
    changed = now != seen
    seen.clear()
    seen.update(now)
    return {} if changed else now
