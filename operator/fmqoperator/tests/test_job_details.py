"""A BrokerJob's objects: whose they are, their names, images and memory; and its first status."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from fmqoperator.api.times import as_text
from fmqoperator.core.jobs.objects import brokers_of, is_of, name_of
from fmqoperator.core.jobs.plan import job_status
from fmqoperator.core.jobs.results import end_of_application
from fmqoperator.core.jobs.spark_application import application_name
from fmqoperator.tests import test_spark_application as spark
from fmqoperator.tests.job_kit import SPARKY, container, job, made, seen
from fmqoperator.tests.samples import group


@pytest.mark.parametrize(
    ("owners", "own"),
    [
        (None, False),
        ([], False),
        ([{"uid": "u-9"}], True),
        ([{"uid": "u-8"}], False),
        ([{"uid": "u-8"}, {"uid": "u-9"}], True),
    ],
)
def test_object_belongs_to_the_job_that_owns_it(owners: Any, own: bool) -> None:
    assert is_of({"metadata": {"name": "j1", "ownerReferences": owners}}, job()) is own
    assert not is_of({}, job())


def test_object_without_brokers_has_none() -> None:
    assert brokers_of({"metadata": {}}) == ()
    assert brokers_of({"metadata": {"annotations": {"fmq.io/brokers": "g1-0,g1-1"}}}) == (
        "g1-0",
        "g1-1",
    )


def test_name_is_kept_up_to_sixty_three_characters() -> None:
    fits, long = job(name="j" * 58), job(name="j" * 59)
    assert name_of(fits, "g1-0") == f"{'j' * 58}-g1-0"
    assert name_of(long, "g1-0").startswith(f"{'j' * 46}-")


def test_name_of_an_application_is_the_same_in_each_version() -> None:
    """An upgraded operator finds the one that another made, and makes no second."""
    mark = sha256(b"u-9").hexdigest()[:8]
    assert application_name(job(name="nightly")) == f"nightly-{mark}"


def test_job_runs_in_the_image_of_its_group() -> None:
    of = group(status={"master": "g1-1", "epoch": 1}, image="custom:1")
    (child,) = made(seen(job(), ("n0", "n0"), group=of))
    assert container(child)["image"] == "custom:1"


def test_image_of_the_job_may_have_spark_if_no_other_is_known() -> None:
    what = seen(job(image="sparky:1", engine="spark"), ("n0", "n0"), spark=True)
    assert [(c["kind"], c["spec"]["image"]) for c in made(what)] == [
        ("SparkApplication", "sparky:1")
    ]


@pytest.mark.parametrize("image", ["sparky:1", ""])
def test_auto_takes_spark_for_a_group_without_an_image(image: str) -> None:
    spec = {"image": image} if image else {}
    what = seen(job(**spec), ("n0", "n0"), spark=True, defaults=SPARKY)
    assert [c["kind"] for c in made(what)] == ["SparkApplication"]


def test_application_has_the_default_image_and_its_memory() -> None:
    assert spark.made("check")["spec"]["image"] == "fmq-spark:1"
    asked = spark.job(resources={"requests": {"memory": "2Gi"}, "limits": {}})
    driver = spark.built(asked, spark.BROKERS)["spec"]["driver"]
    whole = sum(int(driver[key].removesuffix("m")) for key in ("memory", "memoryOverhead"))
    assert whole == 2048


@pytest.mark.parametrize(
    ("error", "shown"), [("", "it failed without an exit code"), ("no room", "no room")]
)
def test_application_that_failed_without_a_pod_has_a_message(error: str, shown: str) -> None:
    state = {"applicationState": {"state": "FAILED", "errorMessage": error}}
    end = end_of_application({"metadata": {"name": "a"}, "status": state}, ())
    assert end is not None
    assert (end.exit_code, end.message) == (None, shown)


def test_first_status_has_the_time_of_the_look() -> None:
    what = seen(job())
    (condition,) = job_status(what)["conditions"]
    assert condition["lastTransitionTime"] == as_text(what.now_ms)
    later = replace(what, job=job(status=job_status(what)), now_ms=what.now_ms + 60_000)
    assert job_status(later)["conditions"] == [condition]
