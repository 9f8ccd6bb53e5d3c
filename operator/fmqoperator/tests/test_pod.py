"""A broker's pod: its user, its mounts, its probes, and where it may run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fmqoperator.core.children.pod import USER, config_data
from fmqoperator.tests.samples import group
from fmqoperator.tests.test_objects import container, pod


def test_user_is_that_of_the_image_and_of_the_volume() -> None:
    image = (Path(__file__).parents[3] / "Dockerfile.broker").read_text()
    assert re.findall(r"^USER (\d+):(\d+)$", image, re.M) == [(str(USER), str(USER))]
    context = pod()["spec"]["securityContext"]
    assert [context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [USER] * 3


def test_broker_gets_nothing_of_the_cluster_and_no_privilege() -> None:
    spec = pod()["spec"]
    assert spec["enableServiceLinks"] is False
    assert container()["securityContext"]["privileged"] is False
    mounts = {m["name"]: m.get("readOnly", False) for m in container()["volumeMounts"]}
    assert mounts == {"data": False, "settings": True, "tmp": False}


def test_text_of_the_settings_is_the_same_in_each_version() -> None:
    """Their ConfigMap is immutable and named by their values: an upgrade may not write another."""
    text = config_data(group())["broker.json"]
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"


@pytest.mark.parametrize(("seconds", "failures"), [(60, 12), (61, 13), (64, 13), (7200, 1440)])
def test_start_may_take_as_long_as_declared(seconds: int, failures: int) -> None:
    probe = container(startupSeconds=seconds)["startupProbe"]
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (5, failures)


@pytest.mark.parametrize(
    ("name", "period_s", "failures"), [("liveness", 10, 6), ("readiness", 2, 2)]
)
def test_probes_have_their_periods(name: str, period_s: int, failures: int) -> None:
    """One answer in time is enough; a slow one is no failure before 5 s are over."""
    probe = container()[f"{name}Probe"]
    found = [probe[f"{key}Seconds"] for key in ("period", "timeout")]
    assert found == [period_s, 5]
    assert [probe[f"{key}Threshold"] for key in ("failure", "success")] == [failures, 1]


def test_restart_that_was_requested_is_in_the_template() -> None:
    restart = {"fmq.io/restart": "now"}
    assert restart.items() <= pod(annotations=restart)["metadata"]["annotations"].items()
    assert not restart.keys() & pod()["metadata"]["annotations"].keys()


ASKED: list[tuple[dict[str, Any], str, Any]] = [
    ({"imagePullSecrets": ["one"]}, "imagePullSecrets", [{"name": "one"}]),
    ({"scheduling": {"nodeSelector": {"disk": "fast"}}}, "nodeSelector", {"disk": "fast"}),
    (
        {"scheduling": {"tolerations": [{"key": "fmq", "operator": "Exists"}]}},
        "tolerations",
        [{"key": "fmq", "operator": "Exists"}],
    ),
    ({"scheduling": {"priorityClassName": "high"}}, "priorityClassName", "high"),
]


@pytest.mark.parametrize(("spec", "field", "wanted"), ASKED, ids=[a[1] for a in ASKED])
def test_field_is_there_if_it_is_declared(spec: Any, field: str, wanted: Any) -> None:
    assert pod(**spec)["spec"][field] == wanted
    assert field not in pod()["spec"]


@pytest.mark.parametrize(
    ("zones", "rule"),
    [("preferred", "ScheduleAnyway"), ("required", "DoNotSchedule")],
)
def test_brokers_are_spread_over_zones(zones: str, rule: str) -> None:
    (found,) = pod(scheduling={"acrossZones": zones})["spec"]["topologySpreadConstraints"]
    assert (found["maxSkew"], found["whenUnsatisfiable"]) == (1, rule)
    assert found["labelSelector"]["matchLabels"]["fmq.io/group"] == "g1"
