"""The operator without a cluster: its process, and a bare API server that knows FMQ's resources."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.kind.tools import ROOT, until
from fmqadapters.process.free_ports import free_port
from fmqoperator.tests.apiserver import ADMIN, ApiServer, Refused

BROKER_GROUPS = "/apis/fmq.io/v1alpha1/namespaces/%s/brokergroups"


class Operator:
    """One operator process."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.log = folder / f"operator-{time.time_ns()}.log"
        self.address = f"127.0.0.1:{free_port()}"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(folder),
            "KUBECONFIG": str(config),
            "FMQ_LISTEN": self.address,
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fmqoperator"], env=environment, stdout=output, stderr=output
            )

    def figure(self, name: str, group: str = "") -> float:
        """Return the value of a metric; -1 while it does not answer."""
        labels = rf"{{.*group=\"{group}\".*}}" if group else ""
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as a:
                found = re.search(rf"^{name}{labels} (\S+)$", a.read().decode(), re.M)
        except OSError:
            return -1
        return float(found[1]) if found else -1

    def looked_at(self, groups: int) -> bool:
        """Whether a round of every group is over."""
        rounds = self.figure("fmq_operator_reconciles_total")
        return rounds >= groups and self.figure("fmq_operator_stalled_seconds") == 0

    def stop(self) -> int:
        """Stop in order; return the exit status."""
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def operator(folder: Path, config: Path) -> Iterator[Operator]:
    """Run an operator for as long as the context lasts."""
    found = Operator(folder, config)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def kubeconfig(api: ApiServer, path: Path, token: str = ADMIN) -> Path:
    """Write a kubeconfig with that token. Leaves `path`."""
    cluster = {"server": api._url, "insecure-skip-tls-verify": True}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "t",
                "clusters": [{"name": "t", "cluster": cluster}],
                "users": [{"name": "t", "user": {"token": token}}],
                "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            }
        )
    )
    return path


def install(api: ApiServer) -> None:
    """Install the CRDs and the operator's namespace."""
    for file in sorted((ROOT / "charts" / "fmq" / "files" / "crds").glob("*.yaml")):
        where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.call("POST", where, yaml.safe_load(file.read_text()))
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "fmq-system"}})
    until(lambda: _served(api), "the resources are served")


def make_group(api: ApiServer, name: str, zookeeper: str, namespace: str = "default") -> None:
    """Create a group of a master and a slave."""
    api.call(
        "POST",
        BROKER_GROUPS % namespace,
        {
            "apiVersion": "fmq.io/v1alpha1",
            "kind": "BrokerGroup",
            "metadata": {"name": name},
            "spec": {"replicas": 2, "zookeeper": {"connect": zookeeper}},
        },
    )


def _served(api: ApiServer) -> bool:
    try:
        return "items" in api.call("GET", BROKER_GROUPS % "default") and bool(
            api.call("GET", "/api/v1/namespaces/default")
        )
    except Refused:
        return False
