"""The labels of a group's objects."""

from fmqcore.version import VERSION
from fmqoperator.tests.test_objects import made, pod


def test_labels_name_component_and_version() -> None:
    """The version is on no pod: it would restart brokers whenever the operator is upgraded."""
    for child in made().values():
        labels = child["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == "broker"
        assert labels["app.kubernetes.io/version"] == VERSION
    assert pod()["metadata"]["labels"]["app.kubernetes.io/component"] == "broker"
    assert "app.kubernetes.io/version" not in pod()["metadata"]["labels"]
