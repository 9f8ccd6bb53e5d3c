"""The pods of BrokerJobs: rights, users, owners, memory and processors."""

from typing import Any

import pytest

from fmqoperator.core.children.pod import USER
from fmqoperator.core.jobs.spark_application import application_name
from fmqoperator.core.observation import HASH
from fmqoperator.tests import test_spark_application as spark
from fmqoperator.tests.job_kit import container, job, made, seen
from fmqoperator.tests.samples import group


def plain(**of_group: Any) -> Any:
    of = group(status={"master": "g1-1", "epoch": 1}, **of_group)
    (child,) = made(seen(job(), ("n0", "n0"), group=of))
    return child


@pytest.mark.parametrize("kind", ["Job", "SparkApplication"])
def test_objects_go_with_the_job_without_waiting(kind: str) -> None:
    child = plain() if kind == "Job" else spark.made("check")
    (owner,) = child["metadata"]["ownerReferences"]
    assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, False)


def test_pod_of_a_job_has_no_rights() -> None:
    child = plain()
    assert child["metadata"]["annotations"][HASH]
    body, context = child["spec"]["template"]["spec"], container(child)["securityContext"]
    assert (body["automountServiceAccountToken"], body["enableServiceLinks"]) == (False, False)
    assert (context["allowPrivilegeEscalation"], context["privileged"]) == (False, False)
    rules = child["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["values"] == [1, 2, 3, 64, 69]


def test_job_pulls_its_image_as_the_group_does() -> None:
    found = plain(imagePullSecrets=["one"])["spec"]["template"]["spec"]
    assert found["imagePullSecrets"] == [{"name": "one"}]
    assert "imagePullSecrets" not in plain()["spec"]["template"]["spec"]


def test_pods_of_an_application_run_as_brokers_do() -> None:
    """Else they could not read the volumes."""
    driver = spark.made("check")["spec"]["driver"]
    context = driver["podSecurityContext"]
    assert [context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [USER] * 3
    assert context["runAsNonRoot"] is True
    own = driver["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["privileged"]) == (False, False)


@pytest.mark.parametrize(
    ("resources", "cores", "requested", "memory"),
    [
        ({"requests": {}, "limits": {}}, 1, "1", ("614m", "410m")),
        ({"requests": {"cpu": "500m"}, "limits": {}}, 1, "500m", ("614m", "410m")),
        ({"requests": {}, "limits": {"cpu": "3"}}, 3, "3", ("614m", "410m")),
        (  # amounts that the operator does not calculate with
            {"requests": {"cpu": "1e1"}, "limits": {"memory": "1e9"}},
            1,
            "1e1",
            ("512m", "384m"),
        ),
    ],
)
def test_processors_and_memory_of_an_application(
    resources: dict[str, Any], cores: int, requested: str, memory: tuple[str, str]
) -> None:
    driver = spark.built(spark.job(resources=resources), spark.BROKERS)["spec"]["driver"]
    assert (driver["cores"], driver["coreRequest"]) == (cores, requested)
    assert (driver["memory"], driver["memoryOverhead"]) == memory


def test_long_name_of_an_application_is_shortened_to_forty() -> None:
    assert application_name(job(name="a" * 60)).rpartition("-")[0] == "a" * 40
