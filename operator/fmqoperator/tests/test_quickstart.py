"""The quick start's ZooKeeper: when it counts as ready, and what restarts it."""

import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqport.zk.embedded import EmbeddedZooKeeper

MANIFEST = Path(__file__).parents[3] / "manifests" / "quickstart" / "zookeeper.yaml"


def _template() -> Any:
    parts = yaml.safe_load_all(MANIFEST.read_text())
    [found] = [part for part in parts if part["kind"] == "StatefulSet"]
    return found["spec"]["template"]


def _is_ready(port: int) -> bool:
    """What the readiness probe says of whoever listens at that port of this machine."""
    [container] = _template()["spec"]["containers"]
    probe = container["readinessProbe"]["exec"]["command"]
    ours = [part.replace("/2181", f"/{port}") for part in probe]
    assert ours != probe
    return subprocess.run(ours, capture_output=True).returncode == 0


def test_nothing_in_its_pods_is_of_the_charts_version() -> None:
    """Or each upgrade would restart the ensemble."""
    labels = _template()["metadata"]["labels"]
    assert sorted(labels) == [f"app.kubernetes.io/{n}" for n in ("component", "instance", "name")]


@pytest.mark.processes
def test_it_is_ready_once_it_serves(zookeeper_server: EmbeddedZooKeeper) -> None:
    assert _is_ready(int(zookeeper_server.address.rpartition(":")[2]))


def test_it_is_not_ready_for_listening() -> None:
    """As a server does that has found no quorum: it closes what it cannot serve."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(9)
                connection.sendall(b"This ZooKeeper instance is not currently serving requests\n")

        answering = threading.Thread(target=answer)
        answering.start()
        assert not _is_ready(port)
        answering.join()
    assert not _is_ready(port), "nobody listens"
