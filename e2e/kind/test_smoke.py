"""A user's way, and a bad day's, on a real cluster: install, traffic, losses, uninstall.

The tests build on one another, in their order.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.dashboards.chart import BOARDS, panels, rules
from e2e.dashboards.prometheus import NEEDED, Prometheus, available
from e2e.kind import prometheus as watching
from e2e.kind.conftest import KEEP, SYSTEM
from e2e.kind.groups import Group, Json
from e2e.kind.tools import Failed, apply, get, kubectl, run, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

Report = dict[str, str]


@pytest.fixture(scope="module")
def group(installed: str, images: dict[str, str]) -> Iterator[Group]:
    """A group not created yet, in a namespace that is removed with this file's tests.

    A node of two cores has no room for its brokers and for those of the next file.
    """
    namespace = f"fmq-e2e-{time.time_ns() // 1_000_000_000 % 100_000}"
    yield Group("g1", namespace, installed, images["broker"])
    if not KEEP:
        kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")


def test_helm_test(installed: str) -> None:
    run("helm", "test", "fmq", "--namespace", SYSTEM, "--timeout", "3m")


def test_the_operator_that_works_is_killed(installed: str, report: Report) -> None:
    """The standby takes over, by its own clock."""
    until(lambda: _works() and len(_operators()) == 2, "one works, one stands by")
    killed = get("lease", "fmq-operator", "-n", SYSTEM)["spec"]["holderIdentity"]
    start_s = time.monotonic()
    kubectl("delete", "pod", killed, "-n", SYSTEM, "--force", "--grace-period=0")

    def taken() -> bool:
        holder = get("lease", "fmq-operator", "-n", SYSTEM)["spec"]["holderIdentity"]
        return holder not in ("", killed)

    until(taken, "another replica works", 60)
    report["operator killed → the other works"] = f"{time.monotonic() - start_s:.1f} s"


def test_a_group_comes_up(group: Group, report: Report) -> None:
    start_s = time.monotonic()
    group.make()
    group.wait_ready()
    report["kubectl apply → Ready"] = f"{time.monotonic() - start_s:.1f} s"
    assert group.status["master"] == "g1-0"
    assert group.status["inSync"] == ["g1-1"]
    row = group.row().split()
    assert row[:5] == ["g1", "g1-0", "FULL", "2/2", "Running"], row
    report["kubectl get bg"] = " ".join(row[1:6])


def test_messages_through_the_services(group: Group) -> None:
    output = group.in_pod(
        "fmq topic create orders --queues 4\n"
        "seq 100 | fmq produce orders\n"
        "FMQ_BROKERS=fmq://g1-ro:9876 fmq consume orders -g billing --from earliest -e\n"
    )
    numbers = sorted(int(line) for line in output.split() if line.isdigit())
    assert set(range(1, 101)) <= set(numbers), output


def test_a_declared_topic(group: Group) -> None:
    topic = _topic(group, "declared")
    apply(topic)
    until(lambda: _topic_status(group).get("id"), "the topic has its number")
    described = group.in_pod("fmq topic describe declared")
    assert "g1" in described, described
    topic["spec"]["groups"][0]["queues"] = 2
    with pytest.raises(Failed, match="queues of a group cannot be removed"):
        apply(topic)
    kubectl("delete", "topic.fmq.io", "declared", "-n", group.namespace, "--timeout=30s")
    listed = "until ! fmq topic list | grep -q declared; do sleep 0.2; done"
    group.in_pod(listed)


def test_a_check_of_the_journals(group: Group, report: Report) -> None:
    """A BrokerJob beside the volumes of running brokers gives a verdict about the data."""
    start_s = time.monotonic()
    apply(
        {
            "apiVersion": "fmq.io/v1alpha1",
            "kind": "BrokerJob",
            "metadata": {"name": "check", "namespace": group.namespace},
            "spec": {"group": "g1", "type": "check", "level": "deep"},
        }
    )

    def ended() -> Json:
        found: Json = (get("brokerjob", "check", "-n", group.namespace) or {}).get("status") or {}
        return found if found.get("phase") in ("Succeeded", "Failed") else {}

    status = until(ended, "the check has ended")
    assert (status["phase"], status["verdict"]) == ("Succeeded", "Clean"), status
    assert "verdict (deep): clean" in status["message"]
    report["a deep check by a BrokerJob"] = f"{time.monotonic() - start_s:.1f} s"
    until(lambda: group.condition("IndexConsistent").get("status") == "True", "it is reported")


def test_every_panel_and_rule_on_a_real_prometheus(group: Group, tmp_path: Path) -> None:
    """Each alert is caused in `test_alerts.py`."""
    if not available():
        pytest.skip(NEEDED)
    apply(_topic(group, "watched"))
    group.start_traffic(30)
    with watching.scraping(tmp_path, [*watching.operators(), *watching.brokers(group)]) as found:
        until(lambda: found.query("rate(fmq_topic_messages_total[20s]) > 0"), "traffic is seen")
        for board in BOARDS:
            for panel in panels(board):
                if panel.title.startswith("Ordered:"):
                    continue  # no ordered topic over one group; `e2e/dashboards/tests` has one
                look = partial(found.query, panel.query)
                until(look, f"{panel.board}: {panel.title} shows something", 60)
        known = {r["metric"]["__name__"] for r in found.query('{__name__=~"fmq_.*"}')}
        for name, query in rules():
            found.query(query)
            named = set(re.findall(r"fmq_\w+", query))
            assert {n for n in named if not n.startswith("fmq_ordered_")} <= known, name
        seen: list[tuple[str, dict[str, str]]] = []

        def is_calm() -> bool:
            seen[:] = _alerts_of(group, found)
            return not seen

        with suppress(Failed):  # a scrape that failed makes an alert pending until the next one
            until(is_calm, "no alert is pending", 30)
        assert seen == [], "nothing is wrong"
    kubectl("delete", "topic.fmq.io", "watched", "-n", group.namespace, "--timeout=30s")
    assert group.verdict()["lost"] == []


def _alerts_of(group: Group, found: Prometheus) -> list[tuple[str, dict[str, str]]]:
    """Return the alerts about the group, or about no group, that fire or are about to."""
    return [
        (name, alert["labels"])
        for name, alerts in found.alerts(pending=True).items()
        for alert in alerts
        if alert["labels"].get("cluster", group.namespace) == group.namespace
    ]


def test_calm_when_nothing_is_to_do(group: Group) -> None:
    """A restarted operator writes nothing and restarts nothing."""
    kubectl("delete", "brokerjob", "check", "-n", group.namespace, "--timeout=30s")
    before = _versions(group)
    kubectl("rollout", "restart", "deployment/fmq-operator", "-n", SYSTEM)
    kubectl("rollout", "status", "deployment/fmq-operator", "-n", SYSTEM, "--timeout=180s")
    until(_works, "a replica of the operator works")
    time.sleep(20)  # longer than a round of all groups: it must change nothing
    assert _versions(group) == before


def test_the_masters_pod_is_killed(group: Group, report: Report) -> None:
    group.start_traffic(40)
    epoch = group.status["epoch"]
    kubectl("delete", "pod", "g1-0", "-n", group.namespace, "--force", "--grace-period=0")
    until(lambda: group.status["epoch"] > epoch, "the group has seen it")
    group.wait_ready()
    verdict = group.verdict()
    assert verdict["lost"] == [] and verdict["acked"] > 100, verdict
    _add_verdict(report, "master's pod killed", verdict)
    assert group.status["epoch"] > epoch
    assert group.status["master"] == "g1-0"
    assert "LeadershipChanged" in group.events() or group.status["lastTransition"], group.events()


def test_the_masters_pod_is_deleted(group: Group, report: Report) -> None:
    """An orderly stop: the reads are handed over, no broker waits for a session to expire."""
    group.start_traffic(40)
    epoch = group.status["epoch"]
    kubectl("delete", "pod", "g1-0", "-n", group.namespace)
    until(lambda: group.status["epoch"] > epoch, "the group has seen it")
    group.wait_ready()
    verdict = group.verdict()
    assert verdict["lost"] == [], verdict
    _add_verdict(report, "master's pod deleted", verdict)


def test_a_switchover(group: Group, report: Report) -> None:
    """There and back: all brokers live on, and no session or lease has to expire."""
    group.start_traffic(40)
    for asked, to in (("g1-1", "g1-1"), ("any", "g1-0")):
        kubectl("annotate", "bg", "g1", "-n", group.namespace, f"fmq.io/switchover={asked}")
        _until_master(group, to)
        group.wait_ready()
    verdict = group.verdict()
    assert verdict["lost"] == [], verdict
    _add_verdict(report, "two planned switchovers", verdict)
    assert "in place of g1-1: a switchover to g1-0" in group.status["lastTransition"]["cause"]


def test_without_the_operator(group: Group, report: Report) -> None:
    """The group fails over by itself, and deletion never waits for the operator."""
    kubectl("scale", "deployment/fmq-operator", "-n", SYSTEM, "--replicas=0")
    until(lambda: not _operators(), "no operator is left")
    try:
        group.start_traffic(40)
        kubectl("delete", "pod", "g1-0", "-n", group.namespace, "--force", "--grace-period=0")
        verdict = group.verdict()
        assert verdict["lost"] == [], verdict
        _add_verdict(report, "the same, operator down", verdict)
        other = Group("g2", group.namespace, group.spec["zookeeper"]["connect"], group.image)
        other.apply()
        kubectl("delete", "brokergroup", "g2", "-n", group.namespace, "--timeout=30s")
    finally:
        kubectl("scale", "deployment/fmq-operator", "-n", SYSTEM, "--replicas=2")
    group.wait_ready()


def test_impossible_values_are_refused(group: Group) -> None:
    group.spec["replicas"] = 1
    with pytest.raises(Failed, match="howMany one needs a slave"):
        group.apply()
    group.spec["replicas"] = 2


def test_wrong_zookeeper_is_reported_and_blocks_no_other_group(group: Group) -> None:
    wrong = Group("lost", group.namespace, "nowhere.invalid:2181", group.image)
    wrong.apply()
    until(
        lambda: wrong.condition("ZooKeeperConnected").get("status") == "False",
        "the condition reports it",
    )
    assert "nowhere.invalid" in wrong.condition("ZooKeeperConnected")["message"]
    assert group.condition("Ready")["status"] == "True"
    kubectl("delete", "brokergroup", "lost", "-n", group.namespace, "--timeout=30s")


def test_foreign_objects_are_left_alone(group: Group) -> None:
    """A foreign Service has the name of one of the group's: it is neither changed nor deleted."""
    name = {"name": "taken-rw", "namespace": group.namespace}
    spec = {"ports": [{"port": 80}], "selector": {"app": "shop"}}
    apply({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": spec})
    taken = Group("taken", group.namespace, group.spec["zookeeper"]["connect"], group.image)
    taken.apply()
    until(lambda: taken.condition("ConfigApplied").get("reason") == "NotOurs", "it is reported")
    assert "Service" in taken.condition("ConfigApplied")["message"]
    kubectl("delete", "brokergroup", "taken", "-n", group.namespace, "--timeout=30s")
    there = get("service", "taken-rw", "-n", group.namespace)
    assert there["spec"]["selector"] == {"app": "shop"}
    assert "ownerReferences" not in there["metadata"]
    kubectl("delete", "service", "taken-rw", "-n", group.namespace)


def test_a_slave_is_added(group: Group, report: Report) -> None:
    group.spec["replicas"] = 3
    group.apply()
    took_s = group.wait_ready(240)
    report["one slave more → Ready"] = f"{took_s:.1f} s"
    until(lambda: group.status["inSync"] == ["g1-1", "g1-2"], "the new slave is in sync")


def test_deletion_keeps_the_volumes(group: Group) -> None:
    kubectl("delete", "brokergroup", "g1", "-n", group.namespace, "--timeout=60s")
    until(lambda: not group.pods(), "its pods are gone", 120)
    claims = get("pvc", "-n", group.namespace)["items"]
    assert {c["metadata"]["name"] for c in claims} >= {"data-g1-0", "data-g1-1"}
    assert get("statefulset", "g1", "-n", group.namespace) is None
    assert get("service", "g1-rw", "-n", group.namespace) is None


def test_recreated_group_has_its_messages(group: Group, report: Report) -> None:
    start_s = time.monotonic()
    group.apply()
    group.wait_ready(240)
    report["the same group created again → Ready"] = f"{time.monotonic() - start_s:.1f} s"
    output = group.in_pod("fmq consume orders -g again --from earliest -e")
    numbers = {int(line) for line in output.split() if line.isdigit()}
    assert set(range(1, 101)) <= numbers


# ---- what they look at


def _topic(group: Group, name: str) -> Json:
    return {
        "apiVersion": "fmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "namespace": group.namespace},
        "spec": {
            "zookeeper": group.spec["zookeeper"],
            "groups": [{"group": "g1", "queues": 3}],
            "onDelete": "Delete",
        },
    }


def _add_verdict(report: Report, what: str, verdict: Json) -> None:
    report[f"{what}: longest without reads"] = f"{verdict['longest_without_message_ms']} ms"
    report[f"{what}: longest without acks"] = f"{verdict['longest_without_ack_ms']} ms"
    report[f"{what}: acknowledged, lost"] = f"{verdict['acked']}, {len(verdict['lost'])}"


def _until_master(group: Group, broker: str) -> None:
    until(lambda: (group.status["master"], group.status["access"]) == (broker, "FULL"), broker)


def _topic_status(group: Group) -> Json:
    found = get("topic.fmq.io", "declared", "-n", group.namespace)
    return (found or {}).get("status") or {}


def _operators() -> list[Any]:
    found = get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")
    items: list[Any] = found["items"]
    return items


def _works() -> bool:
    lease = get("lease", "fmq-operator", "-n", SYSTEM)
    names = {pod["metadata"]["name"] for pod in _operators()}
    return lease is not None and lease["spec"].get("holderIdentity") in names


def _versions(group: Group) -> dict[str, str]:
    """Return the versions of everything that the operator created: any write changes one."""
    found = {}
    for kind in ("statefulset", "service", "configmap", "pdb", "networkpolicy", "pod"):
        for item in get(kind, "-n", group.namespace, "-l", f"fmq.io/group={group.name}")["items"]:
            meta = item["metadata"]
            found[f"{kind}/{meta['name']}"] = f"{meta['uid']} {meta.get('generation', '')}"
    return found
