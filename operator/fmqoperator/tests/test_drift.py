"""The operator's description of a field that it changes."""

import json

from fmqoperator.api.base import Json
from fmqoperator.core.children.drift import drifted
from fmqoperator.core.observation import HASH
from fmqoperator.tests.test_objects import made


def test_drift_names_the_actual_and_the_desired_value() -> None:
    """Down to the field, also in lists and under keys with dots; a long value is shortened."""
    wanted = made()["StatefulSet", "g1"]
    there = json.loads(json.dumps(wanted))
    there["metadata"]["annotations"][HASH] = "other"
    container = there["spec"]["template"]["spec"]["containers"][0]
    image = container["image"]
    container["image"] = "fmq/broker:old"
    path = "spec.template.spec.containers[0].image"
    assert drifted(wanted, there) == f'{path} changes from "fmq/broker:old" to "{image}"'
    container["image"] = image
    del there["metadata"]["labels"]["app.kubernetes.io/instance"]
    field = "metadata.labels.app.kubernetes.io/instance"
    assert drifted(wanted, there) == f'{field} changes from nothing to "g1"'
    container["args"] = ["x" * 500]
    there["metadata"]["labels"]["app.kubernetes.io/instance"] = "g1"
    shown = json.dumps(container["args"])[:120]
    assert f"args changes from {shown}... to" in drifted(wanted, there)


def test_label_that_begins_like_another_is_not_shown_for_it() -> None:
    wanted: Json = {"metadata": {"labels": {"app": "one", "app.kubernetes.io/name": "new"}}}
    labels = {"app": "one", "app.kubernetes.io/name": "old"}
    there: Json = {"metadata": {"labels": labels, "annotations": {HASH: "other"}}}
    path = "metadata.labels.app.kubernetes.io/name"
    assert drifted(wanted, there) == f'{path} changes from "old" to "new"'
