"""Every alert about what the operator reports: caused on the cluster, seen by a real Prometheus.

Alerts about brokers: `e2e/dashboards/tests/test_live.py`. A stalled operator:
`test_many_groups.py`. An operator without rights: `test_operator_rights.py`. Alerts wait for
`FOR_S` here.
"""

from functools import partial
from pathlib import Path

import pytest

from e2e.dashboards.alert_causes import causes
from e2e.dashboards.chart import eager_rules
from e2e.dashboards.prometheus import NEEDED, Prometheus, available
from e2e.kind.conftest import SYSTEM
from e2e.kind.groups import Group
from e2e.kind.jobs import deep_check, fill, job, plant_damage
from e2e.kind.prometheus import brokers, operators, scraping
from e2e.kind.story import Report
from e2e.kind.tools import apply, cordoned, kubectl, until

pytestmark = [
    pytest.mark.kind,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not available(), reason=NEEDED),
]

FOR_S = 5


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return eager_rules(tmp_path / "rules.yaml", FOR_S)


def fires(found: Prometheus, name: str) -> bool:
    return any(a["labels"].get("group", "g1") == "g1" for a in found.alerts().get(name, ()))


def awaited(found: Prometheus, *names: str) -> None:
    for name in names:
        until(partial(fires, found, name), f"{name} fires")


def silent(found: Prometheus, *names: str) -> None:
    until(lambda: not any(fires(found, name) for name in names), f"{names} are silent")


@causes("FmqBrokersNotScraped")
def test_unscraped_brokers_then_the_alert_fires(pair: Group, rules: Path, tmp_path: Path) -> None:
    with scraping(tmp_path / "p", operators(), rules) as found:
        awaited(found, "FmqBrokersNotScraped")
        assert not fires(found, "FmqGroupUnseen"), "it serves, as the operator says"


@causes("FmqGroupUnseen", "FmqGroupNotReady")
def test_all_brokers_deleted_then_the_alert_fires(pair: Group, rules: Path, tmp_path: Path) -> None:
    with scraping(tmp_path / "p", [*operators(), *brokers(pair)], rules) as found:
        silent(found, "FmqGroupUnseen", "FmqGroupNotReady", "FmqBrokersNotScraped")
        with cordoned():
            names = [pod["metadata"]["name"] for pod in pair.pods()]
            kubectl("delete", "pod", *names, "-n", pair.namespace)
            awaited(found, "FmqGroupUnseen", "FmqGroupNotReady")
            assert not fires(found, "FmqBrokersNotScraped")
        pair.wait_ready()
        silent(found, "FmqGroupUnseen", "FmqGroupNotReady")


@causes("FmqDamageFound")
def test_a_check_finds_damage(pair: Group, rules: Path, tmp_path: Path, report: Report) -> None:
    """And the runbook's steps for a slave's damage repair it."""
    fill(pair)
    slave = "g1-1"
    assert pair.status["master"] != slave
    with scraping(tmp_path / "p", operators(), rules) as found:
        silent(found, "FmqDamageFound")
        report["damage planted in"] = plant_damage(pair, slave).rpartition("/")[2]
        deep_check(pair, "before")
        awaited(found, "FmqDamageFound")
        kubectl("delete", "pvc", f"data-{slave}", "-n", pair.namespace, "--wait=false")
        kubectl("delete", "pod", slave, "-n", pair.namespace)
        until(lambda: pair.condition("ReplicationHealthy").get("status") == "False", "it is away")
        pair.wait_ready()
        deep_check(pair, "after")
        silent(found, "FmqDamageFound")


IN_MISSING_GROUP = {"groups": [{"group": "missing", "queues": 2}]}


@causes("FmqTopicNotReady", "FmqJobFailed")
def test_impossible_topic_and_job_then_alerts_fire(
    pair: Group, rules: Path, tmp_path: Path
) -> None:
    """A topic in a missing group; an archive into a missing claim."""
    name = {"name": "astray", "namespace": pair.namespace}
    kinds = {"apiVersion": "fmq.io/v1alpha1", "metadata": name}
    with scraping(tmp_path / "p", operators(), rules) as found:
        silent(found, "FmqTopicNotReady", "FmqJobFailed")
        spec = IN_MISSING_GROUP | {"zookeeper": pair.spec["zookeeper"]}
        apply(kinds | {"kind": "Topic", "spec": spec})
        archive = {"topics": ["orders"], "claim": "nowhere", "live": True}
        failed = job(pair, "astray", type="archive", archive=archive, timeoutSeconds=60)
        assert failed["phase"] == "Failed"
        until(lambda: found.alerts().get("FmqTopicNotReady"), "the topic's alert fires")
        awaited(found, "FmqJobFailed")
        kubectl("delete", "topic/astray", "brokerjob/astray", "-n", pair.namespace)
        until(lambda: not found.alerts().get("FmqTopicNotReady"), "it is silent")
        silent(found, "FmqJobFailed")


@causes("FmqOperatorAway")
def test_no_operator_works(pair: Group, rules: Path, tmp_path: Path) -> None:
    with scraping(tmp_path / "p", operators(), rules) as found:
        silent(found, "FmqOperatorAway")
        scale = ("scale", "deployment/fmq-operator", "-n", SYSTEM)
        kubectl(*scale, "--replicas=0")
        try:
            awaited(found, "FmqOperatorAway")
        finally:
            kubectl(*scale, "--replicas=2")
            kubectl("rollout", "status", "deployment/fmq-operator", "-n", SYSTEM, "--timeout=180s")
    with scraping(tmp_path / "p2", operators(), rules) as found:
        silent(found, "FmqOperatorAway")
