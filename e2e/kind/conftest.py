"""The cluster of a run: made if it is not there, with images and chart; removed at the end."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kind import tools
from e2e.kind.tools import build_image, get, kubectl, run, until

CLUSTER = os.environ.get("KIND_CLUSTER_NAME", "fmq-e2e")
KEEP = bool(os.environ.get("KEEP"))
SYSTEM = "fmq-system"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A kind cluster with the three images in it (their tags), and KUBECONFIG naming it."""
    if lacking := tools.missing():
        pytest.fail(f"the tests on kind need {', '.join(lacking)} on the PATH", pytrace=False)
    ours = CLUSTER not in run("kind", "get", "clusters").split()
    config = tmp_path_factory.mktemp("kind") / "kubeconfig"
    os.environ["KUBECONFIG"] = str(config)
    if ours:
        image = os.environ.get("KIND_NODE_IMAGE")
        chosen = ["--image", image] if image else []
        run("kind", "create", "cluster", "--name", CLUSTER, "--wait", "180s", *chosen)
    else:
        run("kind", "export", "kubeconfig", "--name", CLUSTER)
    try:
        found = {name: build_image(name) for name in ("broker", "operator", "zookeeper")}
        for tag in found.values():
            run("kind", "load", "docker-image", "--name", CLUSTER, tag)
        yield found
    finally:
        if ours and not KEEP:
            run("kind", "delete", "cluster", "--name", CLUSTER)


@pytest.fixture(scope="session")
def installed(images: dict[str, str]) -> Iterator[str]:
    """The chart with the quick start's ZooKeeper; gives where brokers find it."""
    values = [f"image.{name}={tag}" for name, tag in images.items()]
    values += ["quickstart.zookeeper.enabled=true", "quickstart.zookeeper.replicas=1"]
    options = [f"--set={value}" for value in values]
    run(
        "helm", "upgrade", "--install", "fmq", "charts/fmq", "--namespace", SYSTEM,
        "--create-namespace", "--wait", "--timeout", "5m", *options,
    )  # fmt: skip
    until(lambda: get("crd", "brokergroups.fmq.io"), "the CRD is there")
    yield f"fmq-zookeeper-0.fmq-zookeeper.{SYSTEM}.svc:2181"
    if not KEEP:
        kubectl("delete", "brokergroups", "--all", "--all-namespaces", "--wait=false")
        run("helm", "uninstall", "fmq", "--namespace", SYSTEM, "--wait")
        kubectl("delete", "namespace", SYSTEM, "--wait=false")


@pytest.fixture(scope="session")
def report() -> Iterator[dict[str, str]]:
    """What was measured; printed at the end, and left in build/e2e-kind.txt."""
    found: dict[str, str] = {}
    yield found
    text = "".join(f"{name:58} {value:>16}\n" for name, value in found.items())
    path = Path(tools.ROOT) / "build"
    path.mkdir(exist_ok=True)
    (path / "e2e-kind.txt").write_text(text)
    print(f"\n{text}")
