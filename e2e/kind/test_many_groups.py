"""Two hundred groups, one operator: how soon a restart has observed all, and that it writes
nothing.

Without a cluster: a real API server and a real ZooKeeper, the operator as a process, no pods.
"""

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.dashboards.alert_causes import causes
from e2e.dashboards.chart import eager_rules
from e2e.dashboards.prometheus import Target, available, prometheus
from e2e.kind.bare import BROKER_GROUPS, Operator, install, kubeconfig, make_group, operator
from e2e.kind.tools import until
from fmqoperator.tests.apiserver import ApiServer, api_server, programs

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

GROUPS = 200
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ALL = BROKER_GROUPS % "default"
KINDS = (
    ALL,
    "/apis/apps/v1/namespaces/default/statefulsets",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/configmaps",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
)


def versions(api: ApiServer) -> dict[str, str]:
    """Return the versions of everything that the operator may have written."""
    found = {}
    for path in KINDS:
        for item in api.call("GET", path)["items"]:
            found[f"{path}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
    return found


def made(api: ApiServer) -> bool:
    groups: list[dict[str, Any]] = api.call("GET", ALL)["items"]
    reported = sum("phase" in group.get("status", {}) for group in groups)
    return reported == GROUPS == len(api.call("GET", KINDS[1])["items"])


@causes("FmqOperatorStalls")
def test_two_hundred_groups(tmp_path: Path, zookeeper: str, report: dict[str, str]) -> None:
    if programs() is None:
        pytest.skip("no etcd and kube-apiserver on the PATH")
    with api_server(tmp_path) as api:
        install(api)
        for n in range(GROUPS):
            make_group(api, f"g{n:03}", zookeeper)
        config = kubeconfig(api, tmp_path / "kubeconfig")
        with operator(tmp_path, config) as first:
            start_s = time.monotonic()
            until(lambda: made(api), "every group has its objects", 400)
            report[f"{GROUPS} groups made"] = f"{time.monotonic() - start_s:.1f} s"
            until(lambda: first.looked_at(GROUPS), "all is calm", 120)
            before = versions(api)
            until(lambda: (seen := before) == before_again(api, seen), "nothing is written")
            assert first.stop() == 0
        before = versions(api)
        with operator(tmp_path, config) as second:
            start_s = time.monotonic()
            until(lambda: second.looked_at(GROUPS), "all are looked at", 120)
            took_s = time.monotonic() - start_s
            report[f"{GROUPS} groups looked at after a restart"] = f"{took_s:.1f} s"
            memory = second.figure("process_resident_memory_bytes") / 1024 / 1024
            report["memory of the operator then"] = f"{memory:.0f} MiB"
            assert versions(api) == before, "a restart writes nothing"
            assert "round_" not in second.log.read_text()
            assert memory < 256, "the chart's limit"
            assert second.figure("fmq_operator_group_brokers", group="g007") == 2
            _stalls(second, api, tmp_path)


def _stalls(works: Operator, api: ApiServer, folder: Path) -> None:
    """Its writes hang in a webhook that never answers, while every group needs a change.

    (Its Lease does not hang.) The alert waits for a moment only.
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
    """Return a webhook for everything that the operator writes for a group."""
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
    """Return the versions if they stayed for a while, else {}; updates `seen`."""
    time.sleep(3)
    now = versions(api)
    changed = now != seen
    seen.clear()
    seen.update(now)
    return {} if changed else now
