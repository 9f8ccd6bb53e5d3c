"""The labels, the hash and the names of a group's objects."""

from pathlib import Path

import pytest

from fmqcore.address import DEFAULT_PORT
from fmqcore.version import VERSION
from fmqoperator.core.children import names
from fmqoperator.core.observation import HASH
from fmqoperator.tests.test_objects import made, pod


def test_labels_name_component_and_version() -> None:
    """The version is on no pod: it would restart brokers whenever the operator is upgraded."""
    for child in made().values():
        labels = child["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == "broker"
        assert labels["app.kubernetes.io/version"] == VERSION
    assert pod()["metadata"]["labels"]["app.kubernetes.io/component"] == "broker"
    assert "app.kubernetes.io/version" not in pod()["metadata"]["labels"]


def test_other_declaration_then_another_hash() -> None:
    one, other = made(), made(image="new:2", service={"annotations": {"a": "b"}})
    hashes = {key: child["metadata"]["annotations"][HASH] for key, child in one.items()}
    changed = {k for k, c in other.items() if c["metadata"]["annotations"][HASH] != hashes[k]}
    assert changed == {("StatefulSet", "g1"), ("Service", "g1-rw"), ("Service", "g1-ro")}
    assert other["Service", "g1-ro"]["metadata"]["annotations"]["a"] == "b"
    assert names.digest({"a": 1, "b": 2}) == names.digest({"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("pod_name", "is_broker"),
    [("g1-0", True), ("g1-12", True), ("g2-0", False), ("g1-x", False), ("g1", False)],
)
def test_name_shows_whether_a_pod_is_a_broker(pod_name: str, is_broker: bool) -> None:
    assert names.is_broker("g1", pod_name) is is_broker


def test_number_in_another_script_is_no_ordinal() -> None:
    assert names.ordinal("g1-\N{SUPERSCRIPT TWO}") == -1


def test_ports_are_those_that_people_know() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations" / "metrics.md").read_text()
    (client, http) = [p["port"] for p in made()["Service", "g1-brokers"]["spec"]["ports"]]
    assert f"http_listen=0.0.0.0:{http}`" in page
    assert client == DEFAULT_PORT
