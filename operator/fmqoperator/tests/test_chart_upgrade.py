"""The chart against what is in the cluster already, as helm finds it there."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fmqoperator.tests.test_chart import CHART, KUBE, helm

_STATEFUL_SETS = "/apis/apps/v1/namespaces/fmq-system/statefulsets"
SIZE = "quickstart.zookeeper.replicas"
_KNOWN: dict[str, Any] = {
    "/apis/apps/v1": {
        "kind": "APIResourceList",
        "groupVersion": "apps/v1",
        "resources": [{"name": "statefulsets", "kind": "StatefulSet", "namespaced": True}],
    }
}


@contextmanager
def cluster(objects: dict[str, Any]) -> Iterator[str]:
    """Run an API server that has these objects, by path; yield its address."""
    known = _KNOWN | objects

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = known.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(missing if found is None else found).encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@helm
@pytest.mark.parametrize(
    ("there", "wanted", "taken"), [(None, 3, True), (3, 3, True), (1, 1, True), (1, 3, False),
                                   (3, 1, False)]
)  # fmt: skip
def test_the_quick_starts_zookeeper_keeps_its_size(
    there: int | None, wanted: int, taken: bool
) -> None:
    """Two new servers are a quorum without the one that holds the state of all groups."""
    name, objects = "fmq-zookeeper", dict[str, Any]()
    if there is not None:
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": there}}
        meta = {"name": name, "namespace": "fmq-system"}
        objects[f"{_STATEFUL_SETS}/{name}"] = body | {"metadata": meta}
    done = against(objects, f"quickstart.zookeeper.enabled=true,{SIZE}={wanted}")
    assert (done.returncode == 0) is taken, done.stderr
    assert ("cannot become" in done.stderr) is not taken


@helm
@pytest.mark.parametrize(
    ("value", "release", "taken"),
    [
        ("image.broker=fmq/broker:0.2.0", "fmq", False),
        ("image.broker=fmq/broker:0.2.0,quickstart.zookeeper.enabled=true", "fmq", True),
        ("image.broker=fmq/broker:0.2.0", "", True),  # created without helm
        ("image.broker=fmq/broker:0.2.0", "another", True),
    ],
)
def test_no_upgrade_takes_the_ensemble_from_under_the_groups(
    value: str, release: str, taken: bool
) -> None:
    """helm forgets all earlier values when it is given any: the switch, too."""
    meta: dict[str, Any] = {"name": "fmq-zookeeper", "namespace": "fmq-system"}
    if release:
        meta["annotations"] = {"meta.helm.sh/release-name": release}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 3}}
    done = against({f"{_STATEFUL_SETS}/fmq-zookeeper": body | {"metadata": meta}}, value)
    assert (done.returncode == 0) is taken, done.stderr
    assert ("--reset-then-reuse-values" in done.stderr) is not taken


def against(objects: dict[str, Any], values: str) -> "subprocess.CompletedProcess[str]":
    """Return the chart as helm renders it with these values beside these objects."""
    with cluster(objects) as address:
        return subprocess.run(
            ["helm", "template", "fmq", str(CHART), "-n", "fmq-system", *KUBE, "--dry-run=server",
             "--is-upgrade", "--kube-apiserver", address, "--set", values],
            capture_output=True, text=True, env=os.environ | {"KUBECONFIG": os.devnull},
        )  # fmt: skip
