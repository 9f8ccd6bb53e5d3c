"""A BrokerJob as a SparkApplication: Kubeflow's own models accept it, with no unknown field."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqoperator.api.job import BrokerJob
from fmqoperator.core.children.names import GROUP_LABEL
from fmqoperator.core.jobs.spark_application import SPARK_API, application_name, spark_application
from fmqoperator.core.observation import Defaults
from fmqoperator.tests.samples import group

BROKERS = ["g1-0", "g1-1"]


def job(**spec: Any) -> BrokerJob:
    return BrokerJob.model_validate(
        {
            "metadata": {"name": "nightly", "namespace": "mq", "uid": "u-1"},
            "spec": {"type": "check", "group": "g1", **spec},
        }
    )


JOBS = {
    "check": job(level="deep", rateBytesPerS=50_000_000, executors=3, retries=4),
    "archive": job(type="archive", archive={"topics": ["orders", "bills"], "claim": "lake"}),
    "live": job(type="archive", archive={"topics": ["orders"], "claim": "lake", "live": True}),
    "rebuild": job(type="rebuild-index", brokers=["g1-1"], image="custom:1"),
    "limits": job(
        resources={
            "requests": {"cpu": "1500m", "memory": "2Gi"},
            "limits": {"cpu": "2", "memory": "4Gi"},
        },
    ),
    "small": job(resources={"requests": {}, "limits": {"memory": "256Mi"}}),
}


def made(name: str, node: str = "n0") -> dict[str, Any]:
    brokers = ["g1-1"] if name == "rebuild" else BROKERS
    return built(JOBS[name], brokers, node)


def built(given: BrokerJob, brokers: list[str], node: str = "n0", **more: Any) -> dict[str, Any]:
    of = group(**more)
    return spark_application(given, of, brokers, node, image="fmq-spark:1", service_account="a")


def _lacking(given: Any, kept: Any, path: str = "") -> list[str]:
    """Return the paths where `kept` is not all of `given`."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [w for k, v in given.items() for w in _lacking(v, kept.get(k), f"{path}.{k}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [w for i, v in enumerate(given) for w in _lacking(v, kept[i], f"{path}[{i}]")]
    return [] if given == kept else [path]


@pytest.mark.spark
@pytest.mark.parametrize("name", JOBS)
def test_kubeflows_models_accept_the_application(name: str) -> None:
    from kubeflow_spark_api.models import SparkV1beta2SparkApplication

    given = made(name)
    kept = SparkV1beta2SparkApplication.from_dict(given).to_dict()
    assert _lacking(given, kept) == []
    assert _lacking(given | {"spec": given["spec"] | {"novelty": 1}}, kept) == [".spec.novelty"]


@pytest.mark.spark
def test_kubeflows_models_accept_the_example() -> None:
    from kubeflow_spark_api.models import SparkV1beta2SparkApplication

    for name in ("archive-live", "check"):
        given = example(name)
        kept = SparkV1beta2SparkApplication.from_dict(given).to_dict()
        assert _lacking(given, kept) == []


def test_the_examples_options_are_known() -> None:
    from typer.main import get_command

    from fmqspark.cli.main import app

    given = example("archive-live")
    assert given["apiVersion"] == SPARK_API
    spec = given["spec"]
    command: Any = get_command(app)
    job, *options = spec["arguments"]
    known = command.commands[job].make_context(job, options).params
    assert (known["connect"], known["group"]) == (
        "fmq://g1-rw:9876,g1-ro:9876,g1-brokers:9876",
        "g1",
    )


def manifest(name: str) -> list[dict[str, Any]]:
    root = Path(__file__).resolve().parents[3]
    return list(yaml.safe_load_all((root / "manifests" / "spark" / f"{name}.yaml").read_text()))


def example(name: str) -> dict[str, Any]:
    """Return what the operator makes of an example's BrokerJob."""
    given = manifest(name)[-1]
    given["metadata"]["uid"] = "u"
    job = BrokerJob.model_validate(given)
    account = Defaults(broker_image="b:1").spark_account
    return spark_application(job, group(), BROKERS, image="other:1", service_account=account)


def test_the_examples_accounts_and_claims_are_there() -> None:
    account = {d["kind"]: d for d in manifest("account")}
    claim, _ = manifest("archive-live")
    application, check = example("archive-live"), example("check")
    driver = application["spec"]["driver"]
    assert driver["serviceAccount"] == account["ServiceAccount"]["metadata"]["name"]
    (volume,) = application["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert check["spec"]["image"] == application["spec"]["image"] == "fmq/spark:0.1.0"
    assert check["spec"]["arguments"][:2] == ["check", "/var/lib/fmq/g1-0/journal"]


def test_the_options_are_those_of_the_command_line() -> None:
    from fmqspark.cli.main import app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
    assert {"check", "rebuild-index", "archive"} <= commands
    assert made("check")["spec"]["arguments"] == [
        *("check", "/var/lib/fmq/g1-0/journal", "/var/lib/fmq/g1-1/journal"),
        *("--level", "deep", "--out", "/report", "--rate", "50000000"),
        *("--output", "json", "--engine", "spark"),
    ]
    assert made("archive")["spec"]["arguments"][3:] == [
        *("--out", "/archive/g1", "--group", "g1", "--topic", "orders", "--topic", "bills"),
        *("--output", "json", "--engine", "spark"),
    ]
    assert made("live")["spec"]["arguments"] == [
        *("archive", "--connect", "fmq://g1-rw:9876,g1-ro:9876,g1-brokers:9876"),
        *("--out", "/archive/g1", "--group", "g1", "--topic", "orders"),
        *("--output", "json", "--engine", "spark"),
    ]
    assert made("rebuild")["spec"]["arguments"] == [
        *("rebuild-index", "/var/lib/fmq/g1-1/journal", "--output", "json", "--engine", "spark"),
    ]


@pytest.mark.parametrize("name", JOBS)
def test_mounts_have_volumes_and_only_rebuild_writes_journals(name: str) -> None:
    spec = made(name)["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for pod in (spec["driver"], spec["executor"]):
        assert {mount["name"] for mount in pod["volumeMounts"]} == set(volumes)
        for mount in pod["volumeMounts"]:
            if mount["name"].startswith("data-"):
                claim = volumes[mount["name"]]["persistentVolumeClaim"]
                assert claim["claimName"] == f"data-{mount['mountPath'].rpartition('/')[2]}"
                assert mount["readOnly"] == claim["readOnly"] == (name != "rebuild")


def test_pod_gets_the_settings_of_the_job() -> None:
    driver = made("limits")["spec"]["driver"]
    assert (driver["cores"], driver["coreRequest"], driver["coreLimit"]) == (2, "1500m", "2")
    assert (driver["memory"], driver["memoryOverhead"]) == ("2457m", "1639m")
    small = made("small")["spec"]["executor"]
    assert (small["memory"], small["memoryOverhead"]) == ("512m", "384m")
    assert made("rebuild")["spec"]["image"] == "custom:1"
    assert made("check")["spec"]["executor"]["instances"] == 3


def test_its_pods_go_where_the_volumes_are() -> None:
    """As a plain Job's pods; where the nodes are unknown, all together."""
    for pod in ("driver", "executor"):
        terms = made("check")["spec"][pod]["affinity"]["nodeAffinity"]
        (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == ["n0"]
        found = made("rebuild", node="")["spec"][pod]
        (term,) = found["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        fellows = term["labelSelector"]["matchLabels"]
        assert fellows.items() <= found["labels"].items()
        assert "affinity" not in made("live", node="")["spec"][pod]


def test_groups_node_and_image_settings_apply() -> None:
    taint = {"key": "brokers", "operator": "Exists", "effect": "NoSchedule"}
    spec_parts: dict[str, Any] = {
        "scheduling": {"tolerations": [taint]},
        "imagePullSecrets": ["pull-secret"],
    }
    spec = built(JOBS["check"], BROKERS, **spec_parts, imagePullPolicy="Always")["spec"]
    assert (spec["imagePullPolicy"], spec["imagePullSecrets"]) == ("Always", ["pull-secret"])
    assert spec["driver"]["tolerations"] == spec["executor"]["tolerations"] == [taint]


def test_its_pods_are_no_brokers_of_the_group() -> None:
    found = made("check")
    for labels in (found["metadata"]["labels"], found["spec"]["executor"]["labels"]):
        assert labels["fmq.io/job"] == "nightly"
        assert GROUP_LABEL not in labels


def test_driver_writes_the_termination_message() -> None:
    spec = made("check")["spec"]
    assert {e["name"]: e["value"] for e in spec["driver"]["env"]} == {
        "FMQ_LAST_WORDS": "/dev/termination-log"
    }
    assert "env" not in spec["executor"]


def test_a_verdict_is_not_tried_again_but_a_submission_is() -> None:
    policy = made("check")["spec"]["restartPolicy"]
    assert (policy["onFailureRetries"], policy["onSubmissionFailureRetries"]) == (0, 4)


def test_next_application_of_a_job_has_another_name() -> None:
    one, two = job(), job()
    two.metadata.__dict__["uid"] = "u-2"
    assert application_name(one) == application_name(job())
    assert application_name(one) != application_name(two)
    long = BrokerJob.model_validate(
        {
            "metadata": {"name": "a" * 60, "uid": "u"},
            "spec": {"type": "check", "group": "g1"},
        }
    )
    assert len(application_name(long)) <= 50


@pytest.mark.parametrize("name", ["nightly.v1", "2026-01-check", "0", "a.-b", "a" * 39 + ".b"])
def test_a_service_may_be_named_after_it(name: str) -> None:
    made = job()
    made.metadata.__dict__["name"] = name
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", application_name(made)), name
