"""The operator's metrics of groups, in each state in which an alert must or must not see them."""

from typing import Any

import pytest

from fmqoperator.api.status import Access
from fmqoperator.core.status.metrics import (
    of_failed_jobs,
    of_groups,
    of_jobs,
    of_neglect,
    of_topics,
)

G1 = ("shop", "g1")


def body(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "g1", "namespace": "shop"},
        "spec": {"replicas": 3, **(spec or {})},
        "status": status,
    }


def gauges(one: dict[str, Any]) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples by the last part of the family's name."""
    start = "fmq_operator_group_"
    return {gauge.name.removeprefix(start): dict(gauge.samples) for gauge in of_groups([one])}


@pytest.mark.parametrize(
    ("access", "read", "write"),
    [
        (Access.FULL, 1, 1),
        (Access.READ, 1, 0),
        (Access.WRITE, 0, 1),
        (Access.NONE, 0, 0),
        (Access.UNKNOWN, 0, 0),
    ],
)
def test_serves_metric_follows_access(access: Access, read: float, write: float) -> None:
    serves = gauges(body(epoch=7, access=access.value))["serves"]
    assert serves == {(*G1, "read"): read, (*G1, "write"): write}


@pytest.mark.parametrize(
    "one",
    [
        body(access="NONE"),
        body(epoch=0, access="NONE"),
        body({"hibernated": True}, epoch=7, access="NONE"),
        body(epoch=7, access="NONE") | {"metadata": {"name": "g1", "namespace": "shop",
                                                     "deletionTimestamp": "now"}},
    ],
    ids=["new", "never opened", "hibernated", "deleted"],
)  # fmt: skip
def test_unopened_or_hibernated_group_has_no_serves_metric(one: dict[str, Any]) -> None:
    assert gauges(one)["serves"] == {}


def test_last_known_access_is_not_exported_as_serving() -> None:
    """Neither ZooKeeper nor a broker answers: ACCESS stays, and no part confirms it."""
    unknown = [{"type": "ReadAvailable", "status": "Unknown", "reason": "LastKnown"}]
    serves = gauges(body(epoch=7, access="FULL", conditions=unknown))["serves"]
    assert serves == {(*G1, "read"): 0, (*G1, "write"): 0}


def test_unreadable_group_is_unready_whatever_its_phase() -> None:
    invalid = [{"type": "Ready", "status": "False", "reason": "Invalid"}]
    assert gauges(body(phase="Paused", conditions=invalid))["condition"] == {(*G1, "Ready"): 0}


def test_the_cluster_is_the_brokers_label() -> None:
    assert set(gauges(body({"cluster": "eu"}, epoch=1, access="FULL"))["brokers"]) == {("eu", "g1")}


def test_desired_and_ready_broker_counts_are_exported() -> None:
    one = gauges(body(readyReplicas=2))
    assert (one["brokers"], one["ready_brokers"]) == ({G1: 3}, {G1: 2})
    one = gauges(body({"hibernated": True}))
    assert (one["brokers"], one["ready_brokers"]) == ({G1: 0}, {G1: 0})


def test_a_resource_that_has_no_status_yet() -> None:
    bare = {"metadata": {"name": "g1", "namespace": "shop"}, "spec": {"replicas": 2}}
    one = gauges(bare)
    assert (one["brokers"], one["serves"], one["condition"]) == ({G1: 2}, {}, {})


def test_conditions_that_are_known() -> None:
    conditions = [
        {"type": "Ready", "status": "False"},
        {"type": "Degraded", "status": "True"},
        {"type": "IndexConsistent", "status": "Unknown"},
    ]
    found = gauges(body(phase="Degraded", conditions=conditions))["condition"]
    assert found == {(*G1, "Ready"): 0, (*G1, "Degraded"): 1}


@pytest.mark.parametrize("phase", ["Paused", "Hibernating", "Hibernated", "Deleting"])
def test_group_down_on_request_is_not_unready(phase: str) -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Fenced", "status": "False"}]
    found = gauges(body(phase=phase, conditions=conditions))["condition"]
    assert found == {(*G1, "Fenced"): 0}


def test_neglect_metric_leaves_out_paused_and_deleted_groups() -> None:
    goes = body()
    goes["metadata"]["deletionTimestamp"] = "now"
    groups = [(body({"cluster": "eu"}), 7.0), (body({"hibernated": True}), 9.0)]
    gauge = of_neglect([*groups, (body({"paused": True}), 600.0), (goes, 600.0)])
    assert gauge.name == "fmq_operator_group_unreconciled_seconds"
    assert gauge.samples == [(("eu", "g1"), 7.0), (G1, 9.0)]


def test_jobs_by_type_and_phase_none_left_out() -> None:
    running = {"spec": {"type": "check"}, "status": {"phase": "Running"}}
    new = {"spec": {"type": "archive"}}
    gauge = of_jobs([running, running, new])
    found = dict(gauge.samples)
    assert found[("check", "Running")] == 2
    assert found[("archive", "Pending")] == 1
    assert (len(found), sum(found.values())) == (12, 3)


def test_jobs_that_failed_by_name_until_they_are_deleted() -> None:
    def job(name: str, **status: str) -> dict[str, Any]:
        meta = {"name": name, "namespace": "shop"}
        return {"metadata": meta, "spec": {"group": "g1"}, "status": status}

    found_damage = job("j2", phase="Succeeded", verdict="Inconsistent")
    gauge = of_failed_jobs([job("j1", phase="Failed"), found_damage, job("j3")])
    found = {of[2]: value for of, value in gauge.samples}
    assert found == {"j1": 1.0, "j2": 0.0, "j3": 0.0}
    assert gauge.samples[0][0] == ("shop", "g1", "j1")


def test_topics_that_are_known_to_be_as_declared_or_not() -> None:
    def topic(ready: str, **spec: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": ready}]
        return {
            "metadata": {"name": "t1", "namespace": "shop"},
            "spec": spec,
            "status": {"conditions": conditions},
        }

    new = {"metadata": {"name": "t2", "namespace": "shop"}}
    gauge = of_topics(
        [topic("True"), topic("False", cluster="eu", name="t.9"), topic("Unknown", name="x"), new]
    )
    assert gauge.samples == [(("shop", "t1"), 1.0), (("eu", "t.9"), 0.0)]


def test_resources_of_one_name_then_one_sample_is_exported() -> None:
    """The refused resource does not hide the one that serves."""
    serves = body({"cluster": "live"}, epoch=7, access="FULL", readyReplicas=3)
    refused = body({"cluster": "live"}, epoch=0, access="UNKNOWN", readyReplicas=0)
    refused["metadata"]["namespace"] = "other"
    of = ("live", "g1")
    for gauge in of_groups([refused, serves]):
        labels = [labels for labels, _ in gauge.samples]
        assert len(labels) == len(set(labels)), gauge.name
        if gauge.name.endswith("ready_brokers"):
            assert gauge.samples == [(of, 3.0)]
    assert of_neglect([(refused, 7.0), (serves, 90.0)]).samples == [(of, 90.0)]
    topics = [
        {
            "metadata": {"name": "orders", "namespace": "live"},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }
        for status in ("True", "False", "Unknown")
    ]
    assert of_topics(topics).samples == [(("live", "orders"), 0.0)]
