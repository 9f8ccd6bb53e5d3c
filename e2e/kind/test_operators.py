"""Operators: one of two is active, none is needed to serve or delete, uninstalling keeps the data.

The tests build on one another, in their order; the last one deletes the group.
"""

from typing import Any

import pytest

from e2e.history.cluster_events import FaultKind
from e2e.kind.conftest import SYSTEM, install
from e2e.kind.groups import Group
from e2e.kind.hurting import restarts, signal_to
from e2e.kind.story import Report, story
from e2e.kind.tools import get, kubectl, run, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]


def test_only_one_of_two_operators_is_active(pair: Group, report: Report) -> None:
    """The active one hangs: the other takes over, and the first ends itself when it wakes."""
    until(lambda: _holder() in _operators() and len(_operators()) == 2, "one works, one stands by")
    first, epoch = _holder(), pair.status["epoch"]
    pods = {pod["metadata"]["uid"] for pod in pair.pods()}
    before = restarts(SYSTEM, first)
    signal_to(SYSTEM, first, "STOP")
    try:
        until(lambda: _holder() not in ("", first), "the other works", 60)
    finally:
        signal_to(SYSTEM, first, "CONT")
    second = _holder()
    until(lambda: restarts(SYSTEM, first) > before, "the first has ended itself", 60)
    _touch(pair)
    assert _holder() == second, "the first did not take it back"
    assert {pod["metadata"]["uid"] for pod in pair.pods()} == pods
    assert pair.status["epoch"] == epoch


def test_uninstall_leaves_the_data(pair: Group, images: dict[str, str], report: Report) -> None:
    """The chart's ZooKeeper goes with it: the master serves on, and all is there afterwards."""
    servers = get("statefulset", "fmq-zookeeper", "-n", SYSTEM)["spec"]["replicas"]
    with story(pair, report, "uninstalled, installed again", FaultKind.ZOOKEEPER) as recorder:
        recorder.fired("g1-0", "g1-1")
        run("helm", "uninstall", "fmq", "--namespace", SYSTEM, "--wait")
        until(lambda: not _operators(), "no operator is left")
        assert get("crd", "brokergroups.fmq.io") is not None
        assert get("brokergroup", "g1", "-n", pair.namespace) is not None
        assert len(pair.pods()) == 2
        claims = get("pvc", "-n", SYSTEM)["items"]
        assert len(claims) >= servers, "ZooKeeper's volumes stay"
        install(images, servers)
        recorder.healed()
        until(lambda: _holder() in _operators(), "an operator works")
        _touch(pair)


def test_a_group_is_deleted_without_an_operator(pair: Group, report: Report) -> None:
    """Nothing waits for it, volumes stay, and a recreated group has its messages."""
    pair.in_pod("fmq topic create kept --queues 2 && seq 50 | fmq produce kept")
    kubectl("scale", "deployment/fmq-operator", "-n", SYSTEM, "--replicas=0")
    try:
        until(lambda: not _operators(), "no operator is left")
        kubectl("delete", "brokergroup", "g1", "-n", pair.namespace, "--timeout=30s")
        until(lambda: not pair.pods(), "its pods are gone")
        until(lambda: get("service", "g1-rw", "-n", pair.namespace) is None, "so are its Services")
        claims = {claim["metadata"]["name"] for claim in get("pvc", "-n", pair.namespace)["items"]}
        assert claims == {"data-g1-0", "data-g1-1"}
    finally:
        kubectl("scale", "deployment/fmq-operator", "-n", SYSTEM, "--replicas=2")
    pair.apply()
    report["deleted without an operator, made again → Ready"] = f"{pair.wait_ready():.1f} s"
    output = pair.in_pod("fmq consume kept -g later --from earliest -e")
    assert set(range(1, 51)) <= {int(line) for line in output.split() if line.isdigit()}


def _touch(group: Group) -> None:
    """Change the declared group without a restart; the active operator acts on it."""
    before = group.spec.get("promotion", {}).get("afterSeconds", 300)
    group.spec["promotion"] = {"policy": "off", "afterSeconds": before + 1}
    group.apply()
    generation = get("brokergroup", group.name, "-n", group.namespace)["metadata"]["generation"]
    until(lambda: group.status["observedGeneration"] == generation, "it is looked at")


def _operators() -> list[str]:
    found = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")
    items: list[Any] = found["items"]
    return [pod["metadata"]["name"] for pod in items]


def _holder() -> str:
    lease = get("lease", "fmq-operator", "-n", SYSTEM)
    return str((lease or {"spec": {}})["spec"].get("holderIdentity") or "")
