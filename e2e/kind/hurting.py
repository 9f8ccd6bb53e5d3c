"""Faults done to pods and nodes from below: a node of kind is a Docker container."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from e2e.kind.groups import Group
from e2e.kind.tools import Failed, get, kubectl, run, until


def node_of(group: Group, broker: str) -> str:
    """Return the node of the pod."""
    pod = get("pod", broker, "-n", group.namespace)
    found: str = pod["spec"]["nodeName"]
    return found


def process_of(namespace: str, pod: str) -> tuple[str, str]:
    """Return the node of a pod, and the PID there of the container's first process."""
    found = get("pod", pod, "-n", namespace)
    node = found["spec"]["nodeName"]
    container = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    rows = run("docker", "exec", node, "ctr", "-n", "k8s.io", "tasks", "ls").splitlines()
    number = next((row.split()[1] for row in rows if row.startswith(container)), "")
    assert number, f"{pod} runs nothing on {node}: {rows}"
    return node, number


def signal_to(namespace: str, pod: str, signal: str) -> None:
    """Send a signal to the first process in its container."""
    node, number = process_of(namespace, pod)
    run("docker", "exec", node, "kill", f"-{signal}", number)


def restarts(namespace: str, pod: str) -> int:
    """Return how often its container was restarted."""
    found = get("pod", pod, "-n", namespace)
    count: int = found["status"]["containerStatuses"][0]["restartCount"]
    return count


def addresses(namespace: str, pods: Sequence[str]) -> list[str]:
    """Return the IPs of these pods."""
    return [get("pod", pod, "-n", namespace)["status"]["podIP"] for pod in pods]


@contextmanager
def cut(namespace: str, pod: str, others: Sequence[str]) -> Iterator[None]:
    """Drop all packets between a pod and these IPs, in both directions."""
    node, number = process_of(namespace, pod)
    inside = ("docker", "exec", node, "nsenter", "-t", number, "-n", "iptables")
    rules = [
        (chain, way, ip) for ip in others for chain, way in (("INPUT", "-s"), ("OUTPUT", "-d"))
    ]
    try:
        for chain, way, ip in rules:
            run(*inside, "-I", chain, way, ip, "-j", "DROP")
        yield
    finally:
        for chain, way, ip in rules:
            with suppress(Failed):  # its network went with the pod
                run(*inside, "-D", chain, way, ip, "-j", "DROP")


@contextmanager
def node_lost(node: str) -> Iterator[None]:
    """The node loses its power; afterwards it is switched on again."""
    run("docker", "kill", node)
    try:
        yield
    finally:
        run("docker", "start", node)
        until(lambda: node_is(node, "True"), f"{node} is back", 240)


@contextmanager
def node_hangs(node: str) -> Iterator[None]:
    """Every process on the node is paused; afterwards all continue."""
    run("docker", "pause", node)
    try:
        yield
    finally:
        run("docker", "unpause", node)


def node_is(node: str, ready: str) -> bool:
    """Whether the node's `Ready` condition has the status: True, False or Unknown."""
    conditions = get("node", node)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == ready for c in conditions)


def workers() -> list[str]:
    """Return the nodes besides the control plane."""
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    role = "node-role.kubernetes.io/control-plane"
    return [n["metadata"]["name"] for n in nodes if role not in n["metadata"]["labels"]]
