"""A Prometheus on this machine that scrapes the cluster's pods through the API server."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.dashboards.chart import FILES
from e2e.dashboards.prometheus import Prometheus, Target, prometheus
from e2e.kind.conftest import SYSTEM
from e2e.kind.groups import Group
from e2e.kind.tools import get, until

_MONITORED: Final = {SYSTEM: {"job": "fmq-operator", "namespace": SYSTEM}}
"""The labels that the chart's ServiceMonitor gives the operator's replicas."""
Place = tuple[str, str]
"""Namespace, and pod:port."""


def operators() -> list[Place]:
    """Return the operator's replicas."""
    pods = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")["items"]
    return [(SYSTEM, f"{pod['metadata']['name']}:8080") for pod in pods]


def brokers(group: Group) -> list[Place]:
    """Return the group's pods."""
    return [(group.namespace, f"{pod['metadata']['name']}:9870") for pod in group.pods()]


@contextmanager
def scraping(
    folder: Path, places: Iterable[Place], rules: Path = FILES / "rules.yaml"
) -> Iterator[Prometheus]:
    """Run a Prometheus with the chart's rules that has scraped each of these pods."""
    with kube_proxy() as proxy:
        targets = [
            Target(
                f"{namespace}-{pod.replace(':', '-')}",
                proxy,
                f"/api/v1/namespaces/{namespace}/pods/{pod}/proxy/metrics",
                {"instance": pod, "pod": pod, **_MONITORED.get(namespace, {})},
            )
            for namespace, pod in places
        ]
        folder.mkdir(exist_ok=True)
        with prometheus(folder, targets, rules) as found:
            names = {target.name for target in targets}
            until(lambda: found.up() >= names, "every target is scraped", 60)
            yield found


@contextmanager
def kube_proxy() -> Iterator[str]:
    """Run `kubectl proxy` on a free port; yield its host:port."""
    process = subprocess.Popen(
        ["kubectl", "proxy", "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        assert found, line
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)
