"""BrokerJobs: the objects that are created for them."""

import re
from dataclasses import replace
from typing import Any

import pytest

from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.times import of_text
from fmqoperator.core.actions import EmitEvent, Requeue
from fmqoperator.core.jobs.objects import brokers_of
from fmqoperator.core.jobs.plan import job_status, plan_job
from fmqoperator.core.observation import Pod, PodPhase
from fmqoperator.tests.job_kit import ARCHIVE, SPARKY, arguments, container, job, made, seen
from fmqoperator.tests.samples import group

AWAKE = group(status={"master": "g1-1", "epoch": 1})
ASLEEP = group(status={"master": "g1-1", "epoch": 1}, hibernated=True)

# ---- what is made


def test_one_job_for_each_node_with_volumes() -> None:
    found = made(seen(job()))
    assert [brokers_of(j) for j in found] == [("g1-1",), ("g1-0",)]
    assert [j["metadata"]["name"] for j in found] == ["j1-g1-1", "j1-g1-0"]
    for child, node in zip(found, ("n1", "n0"), strict=True):
        terms = child["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == [node]


def test_replicas_on_one_node_are_compared_the_masters_first() -> None:
    (child,) = made(seen(job(level="deep", rateBytesPerS=5000), nodes=("n0", "n0")))
    assert arguments(child) == (
        "job check /data/g1-1/journal /data/g1-0/journal --level deep --rate 5000"
    )
    mounts = {m["mountPath"]: m.get("readOnly") for m in container(child)["volumeMounts"]}
    assert mounts == {"/data/g1-1": True, "/data/g1-0": True, "/tmp": None}


def test_a_hibernated_groups_index_is_rebuilt() -> None:
    rebuild = job(type="rebuild-index", brokers=["g1-0"])
    (child,) = made(seen(rebuild, nodes=("", ""), group=ASLEEP))
    assert arguments(child) == "job rebuild-index /data/g1-0/journal"
    assert container(child)["volumeMounts"][0]["readOnly"] is False
    assert "affinity" not in child["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("nodes", "of"),
    [
        pytest.param(("n0", "n1"), AWAKE, id="it runs"),
        pytest.param(("", ""), AWAKE, id="its pod is away for a moment"),
        pytest.param(("n0", "n1"), ASLEEP, id="it is being stopped"),
        pytest.param(("", "n1"), ASLEEP, id="its pod may come back until all are stopped"),
    ],
)
def test_a_broker_at_work_is_not_rebuilt(nodes: tuple[str, str], of: BrokerGroup) -> None:
    what = seen(job(type="rebuild-index", brokers=["g1-0"]), nodes=nodes, group=of)
    assert made(what) == []
    assert "set spec.hibernated" in job_status(what)["message"]


def test_an_archive_is_of_the_master() -> None:
    (child,) = made(seen(job(type="archive", archive=ARCHIVE, image="custom:1")))
    assert brokers_of(child) == ("g1-1",)
    assert container(child)["image"] == "custom:1"
    assert arguments(child) == (
        "job archive /data/g1-1/journal --out /archive/g1 --group g1 --topic orders --topic bills"
    )


@pytest.mark.parametrize("spark", [False, True])
def test_archive_gets_the_option_for_moved_files(spark: bool) -> None:
    what = job(type="archive", archive=ARCHIVE | {"live": True, "ignoreMissing": True})
    (child,) = made(seen(what, spark=spark, defaults=SPARKY))
    command = " ".join(child["spec"]["arguments"]) if spark else arguments(child)
    assert "--topic bills --ignore-missing" in command


@pytest.mark.parametrize("more", [{}, {"live": True}])
def test_a_plain_archive_can_run_in_the_image_with_spark(more: dict[str, Any]) -> None:
    """No other FMQ image has pyarrow, and its default command does not know `job ...`."""
    archive = job(type="archive", archive=ARCHIVE | more, engine="local")
    (child,) = made(seen(archive, defaults=SPARKY))
    assert container(child)["image"] == "fmq-spark:test"
    assert container(child)["command"] == ["fmq"]
    (child,) = made(seen(job(), ("n0", "n0"), defaults=SPARKY))
    assert container(child)["image"] == "fmq-broker:test", "a check needs none"
    (child,) = made(seen(archive))
    assert container(child)["image"] == "fmq-broker:test", "none is known"


def test_archive_stays_one_job_when_the_master_moves() -> None:
    what = seen(job(type="archive", archive=ARCHIVE))
    (child,) = made(what)
    children = {("Job", child["metadata"]["name"]): child}
    moved = replace(what, children=children, group=group(status={"master": "g1-0"}))
    assert made(moved) == []
    assert job_status(moved)["phase"] == "Running"


@pytest.mark.parametrize("spark", [False, True])
def test_an_archive_of_live_brokers_mounts_none_of_them(spark: bool) -> None:
    live = job(type="archive", archive=ARCHIVE | {"live": True}, rateBytesPerS=5000)
    what = seen(live, spark=spark, defaults=SPARKY, claims={})
    (child,) = made(what)
    if spark:
        assert child["kind"] == "SparkApplication"
        pod = child["spec"]["driver"]
        (volume,), labels, mounts = child["spec"]["volumes"], pod["labels"], pod["volumeMounts"]
        command = " ".join(child["spec"]["arguments"])
    else:
        template = child["spec"]["template"]
        volume, _ = template["spec"]["volumes"]
        labels, mounts = template["metadata"]["labels"], container(child)["volumeMounts"][:1]
        command = arguments(child)
        assert "affinity" not in template["spec"]
    assert volume["persistentVolumeClaim"]["claimName"] == "lake"
    assert [m["mountPath"] for m in mounts] == ["/archive"]
    assert labels["fmq.io/client"] == "g1"  # a network policy admits it
    assert (
        "archive --connect fmq://g1-rw:9876,g1-ro:9876,g1-brokers:9876 --out /archive/g1 --group g1"
        in command
    )
    assert "--rate 5000" in command
    assert "/journal" not in command
    there = {(child["kind"], child["metadata"]["name"]): child}
    others = {"g1-2": Pod("g1-2", "u-2", PodPhase.RUNNING)}
    assert made(replace(what, children=there, brokers=others)) == []


def test_archive_of_live_brokers_waits_for_a_broker() -> None:
    live = job(type="archive", archive=ARCHIVE | {"live": True})
    what = seen(live, nodes=("", ""))
    assert made(what) == []
    assert "no broker of group g1 runs" in job_status(what)["message"]


def test_pods_are_restricted_and_verdicts_are_not_tried_again() -> None:
    child = made(seen(job(retries=4, timeoutSeconds=60, keepSeconds=90)))[0]
    spec = child["spec"]
    waits = ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    assert [spec[k] for k in waits] == [4, 60, 60 + 90]
    for ever in (2**32 - 60, 2**62):  # the API server keeps only the lower half
        child = made(seen(job(timeoutSeconds=60, keepSeconds=ever)))[0]
        assert child["spec"]["ttlSecondsAfterFinished"] == 2**31 - 1
    codes = spec["podFailurePolicy"]["rules"][0]
    assert codes["action"] == "FailJob"
    assert {1, 2, 3} <= set(codes["onExitCodes"]["values"])
    body = spec["template"]["spec"]
    assert body["securityContext"]["runAsNonRoot"] is True
    assert container(child)["securityContext"]["readOnlyRootFilesystem"] is True
    assert body["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", ["j" * 60, f"{'j' * 45}.{'k' * 17}"])
def test_long_names_stay_names(name: str) -> None:
    """Also shortened at a dot: the API server refuses `j.-0123`."""
    found = made(seen(job(name=name)))
    names = [j["metadata"]["name"] for j in found]
    assert len(set(names)) == 2
    assert max(len(n) for n in names) <= 63
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", n) for n in names)


@pytest.mark.parametrize(
    ("engine", "spark", "nodes", "kinds"),
    [
        ("auto", True, ("n0", "n0"), ["SparkApplication"]),
        ("auto", False, ("n0", "n0"), ["Job"]),
        ("auto", True, ("n0", "n1"), ["Job", "Job"]),
        ("local", True, ("n0", "n0"), ["Job"]),
        ("spark", True, ("n0", "n0"), ["SparkApplication"]),
        ("spark", True, ("n0", "n1"), []),
        ("spark", False, ("n0", "n0"), []),
    ],
)
def test_engines(engine: str, spark: bool, nodes: Any, kinds: list[str]) -> None:
    what = seen(job(engine=engine), nodes, spark=spark, defaults=SPARKY)
    assert [c["kind"] for c in made(what)] == kinds
    if not kinds:
        assert job_status(what)["conditions"][0]["reason"] == "NoSpark"


def test_without_an_image_with_spark_auto_is_local() -> None:
    assert [c["kind"] for c in made(seen(job(), ("n0", "n0"), spark=True))] == ["Job"]


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        ("fmq-broker:test", "Job"),  # the operator's default
        ("fmq-broker@sha256:77", "Job"),
        ("registry:5000/custom:2", "Job"),  # the group's, of another version
        ("registry:5000/custom-with-spark:1", "SparkApplication"),
        ("fmq-spark:test", "SparkApplication"),
        ("elsewhere/fmq-broker", "SparkApplication"),  # an unknown image
    ],
)
def test_the_brokers_image_has_no_spark(image: str, kind: str) -> None:
    of = group(status={"master": "g1-1", "epoch": 1}, image="registry:5000/custom:1")
    what = seen(job(image=image), ("n0", "n0"), spark=True, defaults=SPARKY, group=of)
    assert [c["kind"] for c in made(what)] == [kind]
    asked = replace(what, job=job(image=image, engine="spark"))
    assert [c["kind"] for c in made(asked)] == ["SparkApplication"]


def test_job_waiting_in_vain_is_reported_once_after_a_while() -> None:
    what = replace(seen(job()), group=None)
    created = of_text(what.job.metadata.creation_timestamp)

    def event_reasons(after_s: int, **more: Any) -> list[str]:
        plan = plan_job(replace(what, now_ms=created + after_s * 1000, **more))
        return [a.reason for a in plan if isinstance(a, EmitEvent)]

    assert [event_reasons(s) for s in (3, 29, 61)] == [[], [], []]
    assert [event_reasons(s) for s in (31, 59)] == [["NoSuchGroup"]] * 2
    assert event_reasons(31, group_known=False) == []


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({"group": None}, "NoSuchGroup"),
        ({"group": None, "group_known": False}, "NotKnown"),
        ({"brokers": None}, "NotKnown"),
        ({"claims": {}}, "NoVolume"),
        ({"group": group(status={"master": "g1-1"})}, "NotOpened"),
        ({"children": None}, "NotListed"),
    ],
)
def test_job_on_an_unknown_or_missing_group_then_waits(
    unknown: dict[str, Any], reason: str
) -> None:
    what = replace(seen(job()), **unknown)
    assert [type(a) for a in plan_job(what)] == [Requeue]
    (condition,) = job_status(what)["conditions"]
    assert (condition["status"], condition["reason"]) == ("Unknown", reason)
