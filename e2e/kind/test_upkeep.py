"""Manual work on a running group: restart, take out, fence, evict, hibernate.

The tests build on one another, in their order.
"""

import json
import time
from collections.abc import Iterator

import pytest

from e2e.kind import hurting
from e2e.kind.conftest import KEEP
from e2e.kind.groups import Group
from e2e.kind.tools import Failed, get, kubectl, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]

Report = dict[str, str]


@pytest.fixture(scope="module")
def group(installed: str, images: dict[str, str]) -> Iterator[Group]:
    """A master and two slaves, ready."""
    namespace = f"fmq-upkeep-{time.time_ns() // 1_000_000_000 % 100_000}"
    made = Group("g1", namespace, installed, images["broker"])
    made.spec["replicas"] = 3
    made.make()
    made.wait_ready()
    yield made
    if not KEEP:
        kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")


def test_a_restart_that_was_asked_for(group: Group, report: Report) -> None:
    """Slaves first, one at a time, the master last after a switchover; nothing is lost."""
    before, master = _uids(group), group.status["master"]
    group.start_traffic(60)
    start_s = time.monotonic()
    group.apply(**{"fmq.io/restart": "once"})
    until(lambda: not before & _uids(group) and len(_uids(group)) == 3, "all are new", 300)
    group.wait_ready()
    report["three brokers restarted one by one"] = f"{time.monotonic() - start_s:.1f} s"
    made = {p["metadata"]["name"]: p["metadata"]["creationTimestamp"] for p in group.pods()}
    assert made["g1-2"] <= made["g1-1"] <= made["g1-0"], made
    messages = group.messages("Restarting")
    assert [m.partition(":")[0] for m in messages] == ["g1-2", "g1-1", "g1-0"], messages
    assert all("a restart was requested (once)" in message for message in messages), messages
    assert len(group.messages("Switchover")) == 1
    assert group.status["master"] != master, "the old master is a slave when it is restarted"
    verdict = group.verdict()
    assert verdict["lost"] == [] and verdict["acked"] > 100, verdict
    report["rolling restart: longest without reads"] = f"{verdict['longest_without_message_ms']} ms"
    report["rolling restart: longest without acks"] = f"{verdict['longest_without_ack_ms']} ms"


def test_a_mistake_stays_with_the_pods_that_were_made_with_it(group: Group) -> None:
    """A broker that crashes meanwhile returns with its own settings; a revert repairs the group."""
    good = group.spec["zookeeper"]["connect"]
    other = next(b for b in ("g1-2", "g1-1") if b != group.status["master"])
    group.spec["zookeeper"]["connect"] = "nowhere.invalid:2181"
    group.apply()
    until(lambda: group.condition("ZooKeeperConnected").get("status") == "False", "it is reported")
    before = hurting.restarts(group.namespace, other)
    hurting.signal_to(group.namespace, other, "KILL")
    until(lambda: hurting.restarts(group.namespace, other) > before, "its container is another")
    group.spec["zookeeper"]["connect"] = good
    group.apply()
    group.wait_ready(240)
    maps = get("configmap", "-n", group.namespace, "-l", "fmq.io/group=g1")["items"]
    assert len(maps) == 1, [m["metadata"]["name"] for m in maps]


def test_a_slave_is_taken_out(group: Group, report: Report) -> None:
    group.start_traffic(30)
    group.spec["replicas"] = 2
    group.apply(**{"fmq.io/restart": "once"})
    report["one slave less → Ready"] = f"{group.wait_ready():.1f} s"
    until(lambda: len(group.pods()) == 2, "its pod is gone")
    until(lambda: len(group.status["inSync"]) == 1, "it is not in sync any more")
    until(
        lambda: [b["broker"] for b in group.status["brokers"]] == ["g1-0", "g1-1"], "two are left"
    )
    assert get("pvc", "data-g1-2", "-n", group.namespace) is not None
    assert group.verdict()["lost"] == []


def test_a_master_is_not_evicted(group: Group) -> None:
    """Its budget keeps it; a slave may be evicted."""
    master = group.status["master"]
    with pytest.raises(Failed, match="disruption budget"):
        _evict(group, master)
    before = _uids(group)
    _evict(group, next(b for b in ("g1-0", "g1-1") if b != master))
    until(lambda: before != _uids(group) and len(_uids(group)) == 2, "the slave is another one")
    group.wait_ready()


def test_fenced_master_serves_nothing_until_the_fence_is_lifted(group: Group) -> None:
    epoch, master = group.status["epoch"], group.status["master"]
    group.apply(**{"fmq.io/restart": "once", "fmq.io/fence": master})
    until(lambda: group.status["access"] == "NONE", "it serves nothing")
    assert group.condition("Fenced")["status"] == "True"
    group.apply(**{"fmq.io/restart": "once"})
    until(lambda: group.status["access"] == "FULL", "it serves again")
    group.wait_ready()
    assert group.status["epoch"] == epoch, "no slave took over from a broker that lives"


def test_a_hibernated_group_has_its_messages_when_it_wakes(group: Group, report: Report) -> None:
    group.in_pod("fmq topic create nights --queues 2 && seq 50 | fmq produce nights")
    group.spec["hibernated"] = True
    group.apply(**{"fmq.io/restart": "once"})
    until(lambda: group.status["phase"] == "Hibernated", "it sleeps")
    assert group.pods() == []
    group.spec["hibernated"] = False
    group.apply(**{"fmq.io/restart": "once"})
    report["awake again → Ready"] = f"{group.wait_ready():.1f} s"
    output = group.in_pod("fmq consume nights -g morning --from earliest -e")
    numbers = {int(line) for line in output.split() if line.isdigit()}
    assert set(range(1, 51)) <= numbers, output


# ---- what they look at


def _uids(group: Group) -> set[str]:
    return {pod["metadata"]["uid"] for pod in group.pods()}


def _evict(group: Group, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": group.namespace},
    }
    path = f"/api/v1/namespaces/{group.namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))
