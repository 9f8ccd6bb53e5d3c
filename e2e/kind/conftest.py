"""The cluster of a run: created if missing, with images and chart; removed at the end."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.kind import hurting, tools
from e2e.kind.groups import Group
from e2e.kind.tools import Failed, build_image, get, kubectl, load_image, run, until

CLUSTER = os.environ.get("KIND_CLUSTER_NAME", "fmq-e2e")
WORKERS = int(os.environ.get("KIND_WORKERS", "0"))
KEEP = bool(os.environ.get("KEEP"))
SYSTEM = "fmq-system"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A kind cluster with the three images loaded (yields their tags); KUBECONFIG names it."""
    if lacking := tools.missing():
        pytest.fail(f"the tests on kind need {', '.join(lacking)} on the PATH", pytrace=False)
    ours = CLUSTER not in run("kind", "get", "clusters").split()
    config = tmp_path_factory.mktemp("kind") / "kubeconfig"
    os.environ["KUBECONFIG"] = str(config)
    if ours:
        nodes = "".join(f"- role: {role}\n" for role in ("control-plane", *["worker"] * WORKERS))
        shape = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n" + nodes
        image = os.environ.get("KIND_NODE_IMAGE")
        chosen = ["--image", image] if image else []
        command = ("kind", "create", "cluster", "--name", CLUSTER, "--wait", "180s", *chosen)
        run(*command, "--config", "-", given=shape)
    else:
        run("kind", "export", "kubeconfig", "--name", CLUSTER)
    try:
        found = {name: build_image(name) for name in ("broker", "operator", "zookeeper")}
        for tag in found.values():
            load_image(tag, CLUSTER)
        yield found
    finally:
        if ours and not KEEP:
            run("kind", "delete", "cluster", "--name", CLUSTER)


@pytest.fixture(scope="session")
def installed(images: dict[str, str]) -> Iterator[str]:
    """The chart with the quick start's ZooKeeper; yields the address for brokers."""
    count = zookeepers()
    if count > 1:
        taint = "node-role.kubernetes.io/control-plane:NoSchedule-"
        with suppress(Failed):  # no node has the taint
            kubectl("taint", "nodes", "--all", taint)
    install(images, count)
    names = (f"fmq-zookeeper-{n}.fmq-zookeeper.{SYSTEM}.svc:2181" for n in range(count))
    yield ",".join(names)
    if not KEEP:
        kubectl("delete", "brokergroups", "--all", "--all-namespaces", "--wait=false")
        run("helm", "uninstall", "fmq", "--namespace", SYSTEM, "--wait")
        kubectl("delete", "namespace", SYSTEM, "--wait=false")


def zookeepers() -> int:
    """Return the quick start's server count: three where each has its own node, else one."""
    return 3 if len(hurting.workers()) >= 2 else 1


def install(images: dict[str, str], zookeepers: int) -> None:
    """Install the chart, or upgrade it."""
    values = [f"image.{name}={tag}" for name, tag in images.items()]
    values += ["quickstart.zookeeper.enabled=true", f"quickstart.zookeeper.replicas={zookeepers}"]
    options = [f"--set={value}" for value in values]
    run(
        "helm", "upgrade", "--install", "fmq", "charts/fmq", "--namespace", SYSTEM,
        "--create-namespace", "--wait", "--timeout", "5m", *options,
    )  # fmt: skip
    until(lambda: get("crd", "brokergroups.fmq.io"), "the CRD is there")


@pytest.fixture(scope="module")
def pair(installed: str, images: dict[str, str]) -> Iterator[Group]:
    """A master and a slave, each on its own worker if there are two; ready."""
    namespace = f"fmq-pair-{time.time_ns() // 1_000_000_000 % 100_000}"
    made = Group("g1", namespace, installed, images["broker"])
    made.spec["settings"] = {"segmentBytes": 4 << 20}  # so a short run rolls segments
    if len(found := hurting.workers()) >= 2:
        for node in found:
            kubectl("label", "node", node, "fmq-e2e=broker", "--overwrite")
        apart = {"acrossNodes": "required", "nodeSelector": {"fmq-e2e": "broker"}}
        made.spec["scheduling"] = apart
    made.make()
    made.wait_ready()
    yield made
    if not KEEP:
        kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--timeout=120s")


@pytest.fixture(scope="session")
def report() -> Iterator[dict[str, str]]:
    """The measurements; printed at the end, and left in build/e2e-kind.txt."""
    found: dict[str, str] = {}
    yield found
    text = "".join(f"{name:58} {value:>16}\n" for name, value in found.items())
    path = Path(tools.ROOT) / "build"
    path.mkdir(exist_ok=True)
    (path / "e2e-kind.txt").write_text(text)
    print(f"\n{text}")
