"""The quick start's ZooKeeper: when it counts as ready, and what restarts it."""

import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqadapters.process.free_ports import free_ports
from fmqadapters.process.java import find_java
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper, find_jars

MANIFEST = Path(__file__).parents[3] / "manifests" / "quickstart" / "zookeeper.yaml"


def _part(kind: str) -> Any:
    parts = yaml.safe_load_all(MANIFEST.read_text())
    [found] = [part for part in parts if part["kind"] == kind]
    return found


def _template() -> Any:
    return _part("StatefulSet")["spec"]["template"]


def _is_ready(port: int) -> bool:
    """Return the readiness probe's verdict on a server at that port of this machine."""
    [container] = _template()["spec"]["containers"]
    probe = container["readinessProbe"]
    command, patience_s = probe["exec"]["command"], probe.get("timeoutSeconds", 1)
    ours = [part.replace("/2181", f"/{port}") for part in command]
    assert ours != command
    try:  # for a silent listener the probe waits without end; Kubernetes does not
        return subprocess.run(ours, capture_output=True, timeout=patience_s).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def test_nothing_in_its_pods_is_of_the_charts_version() -> None:
    """Or each upgrade would restart the ensemble."""
    labels = _template()["metadata"]["labels"]
    assert sorted(labels) == [f"app.kubernetes.io/{n}" for n in ("component", "instance", "name")]


@pytest.mark.processes
def test_zookeeper_is_ready_once_it_serves(zookeeper_server: EmbeddedZooKeeper) -> None:
    assert _is_ready(int(zookeeper_server.address.rpartition(":")[2]))


def test_listening_zookeeper_without_quorum_is_not_ready() -> None:
    """As a server without a quorum does: it closes what it cannot serve."""
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
    assert not _is_ready(port), "no server listens"


@pytest.mark.processes
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_zookeeper_serves_ipv4_and_ipv6(tmp_path: Path) -> None:
    """A cluster may have only IPv6, as brokers and the operator know."""
    start, [port] = _part("ConfigMap")["data"]["start.sh"], free_ports(1)
    options = [o for o in re.findall(r"-[XD]\S+", start) if "configurationFile" not in o]
    assert len(options) > 5
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}/data\nclientPort={port}\n"
                                      "admin.enableServer=false\n")  # fmt: skip
    jars = ":".join(map(str, find_jars()))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = [find_java(), *options, "-cp", jars, main, tmp_path / "zoo.cfg"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not _is_ready(port):
            assert server.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()
    finally:
        server.kill()
        server.wait()
