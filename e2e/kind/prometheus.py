"""A real Prometheus on this machine that scrapes the cluster's pods through the API server."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.kind.tools import ROOT, until
from fmqport.free_ports import free_port

FILES = ROOT / "charts" / "fmq" / "files"
VARIABLES = {"$__rate_interval": "20s", "$cluster": ".*", "$group": ".*"}


def available() -> bool:
    """Is there a prometheus on the PATH?"""
    return shutil.which("prometheus") is not None


def panels() -> Iterator[tuple[str, str]]:
    """Dashboard and panel, and its query with the variables filled in."""
    for path in sorted((FILES / "dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                query = target["expr"]
                for name, value in VARIABLES.items():
                    query = query.replace(name, value)
                yield f"{board['title']}: {panel['title']}", query


def rules() -> Iterator[tuple[str, str]]:
    """Each alert and its expression."""
    for group in yaml.safe_load((FILES / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, text: str) -> list[Any]:
        """The result; raises for what does not parse."""
        found = self._get("query?" + urllib.parse.urlencode({"query": text}))
        assert found["status"] == "success", found
        result: list[Any] = found["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """Names of alerts that are pending or fire."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["data"]["alerts"]}

    def _get(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{what}", timeout=30) as answer:
            return json.loads(answer.read())


@contextmanager
def prometheus(folder: Path, targets: Sequence[tuple[str, str]]) -> Iterator[Prometheus]:
    """Scrape `targets` (namespace, pod:port) every second, with our rules loaded."""
    with kube_proxy() as proxy:
        scrapes = [
            {
                "job_name": f"{namespace}-{pod.replace(':', '-')}",
                "metrics_path": f"/api/v1/namespaces/{namespace}/pods/{pod}/proxy/metrics",
                "static_configs": [{"targets": [proxy], "labels": {"instance": pod, "pod": pod}}],
            }
            for namespace, pod in targets
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FILES / "rules.yaml")],
            "scrape_configs": scrapes,
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = free_port()
        command = ["prometheus", f"--config.file={folder}/prometheus.yml"]
        command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            found = Prometheus(port)
            until(lambda: up(found, len(targets)), "every target is scraped", 60)
            yield found
        finally:
            process.terminate()
            process.wait(30)


def up(found: Prometheus, count: int) -> bool:
    """Are that many targets scraped?"""
    try:
        return len([r for r in found.query("up") if r["value"][1] == "1"]) >= count
    except OSError:
        time.sleep(0.2)
        return False


@contextmanager
def kube_proxy() -> Iterator[str]:
    """`kubectl proxy` on a free port: its host:port."""
    process = subprocess.Popen(
        ["kubectl", "proxy", "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", said)
        assert found, said
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)
