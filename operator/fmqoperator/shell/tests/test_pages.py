"""The operator's pages for probes and Prometheus."""

from types import SimpleNamespace
from typing import cast

from prometheus_client.parser import text_string_to_metric_families

from fmqoperator.shell.keeper import Keeper
from fmqoperator.shell.pages import BLIND_S, STALLED_S, Pages
from fmqport.tests.promtool import complaints

GROUP = {
    "metadata": {"name": "g1", "namespace": "shop"},
    "spec": {"replicas": 2},
    "status": {"epoch": 1, "access": "READ", "readyReplicas": 1},
}
JOB = {
    "metadata": {"name": "j1", "namespace": "shop"},
    "spec": {"type": "check"},
    "status": {"phase": "Running"},
}


def pages(stalled_s: float = 0.5, blind_s: float = 2.5) -> Pages:
    keeper = SimpleNamespace(
        counts=SimpleNamespace(rounds=3, failed=1, status_writes=2, longest_ms=20),
        kube=SimpleNamespace(writes=4),
        count={"BrokerGroup": 5, "BrokerJob": 6, "Topic": 7}.__getitem__,
        stalled_s=lambda: stalled_s,
        bodies={"BrokerGroup": [GROUP], "BrokerJob": [JOB], "Topic": []}.__getitem__,
        neglected={"BrokerGroup": [(GROUP, 31.5)]}.__getitem__,
    )
    return Pages(cast(Keeper, keeper), lambda: blind_s)


async def metrics(replica: Pages) -> str:
    body = (await replica.all()["/metrics"]()).body
    assert isinstance(body, bytes)
    return body.decode()


async def test_healthz_fails_once_a_group_waited_too_long() -> None:
    assert (await pages(STALLED_S).all()["/healthz"]()).status == 200
    page = await pages(STALLED_S + 1).all()["/healthz"]()
    assert (page.status, page.body) == (503, "a group has waited for 121 s to be reconciled\n")


async def test_standby_operator_is_ready_and_reports_standby() -> None:
    replica = pages()
    ready = replica.all()["/readyz"]
    assert (await ready()).body == "stands by\n"
    replica.works = True
    assert (await ready()).body == "works\n"


async def test_operator_without_read_rights_is_unready_and_reports_it() -> None:
    replica = pages(blind_s=BLIND_S + 1)
    page = await replica.all()["/readyz"]()
    body = "lists or watches have failed for 16 s: see the operator's log\n"
    assert (page.status, page.body) == (503, body)
    assert (await pages(blind_s=BLIND_S).all()["/readyz"]()).status == 200


async def test_its_metrics() -> None:
    text = await metrics(pages())
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert {name: value for name, value in found.items() if name.startswith("fmq_")} == {
        "fmq_operator_reconciles_total": 3,
        "fmq_operator_failed_reconciles_total": 1,
        "fmq_operator_writes_total": 4,
        "fmq_operator_status_writes_total": 2,
        "fmq_operator_lease_held": 0,
        "fmq_operator_groups": 5,
        "fmq_operator_jobs": 6,
        "fmq_operator_topics": 7,
        "fmq_operator_stalled_seconds": 0.5,
        "fmq_operator_longest_reconcile_seconds": 0.02,
        "fmq_operator_watch_failing_seconds": 2.5,
    }
    assert complaints(text) == ""


async def test_only_the_active_operator_serves_group_and_job_metrics() -> None:
    replica = pages()
    assert "fmq_operator_group_" not in await metrics(replica)
    replica.works = True
    text = await metrics(replica)
    for line in (
        'fmq_operator_group_brokers{cluster="shop",group="g1"} 2.0',
        'fmq_operator_group_ready_brokers{cluster="shop",group="g1"} 1.0',
        'fmq_operator_group_serves{cluster="shop",group="g1",operation="read"} 1.0',
        'fmq_operator_group_serves{cluster="shop",group="g1",operation="write"} 0.0',
        'fmq_operator_group_unreconciled_seconds{cluster="shop",group="g1"} 31.5',
        'fmq_operator_jobs_in_phase{phase="Running",type="check"} 1.0',
        'fmq_operator_jobs_in_phase{phase="Failed",type="archive"} 0.0',
    ):
        assert line in text.splitlines(), text
    assert complaints(text) == ""
