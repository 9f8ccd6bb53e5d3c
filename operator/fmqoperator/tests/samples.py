"""Groups and their observations, for tests."""

from typing import Any

from fmqoperator.api.group import BrokerGroup
from fmqoperator.core.observation import Defaults

DEFAULTS = Defaults(broker_image="fmq-broker:test")


def group(name: str = "g1", status: Any = None, **spec: Any) -> BrokerGroup:
    """Return a group as the API server gives it."""
    annotations = spec.pop("annotations", {})
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": "3d3b6f2e-0000-0000-0000-000000000001",
        "generation": 3,
        "annotations": annotations,
    } | spec.pop("metadata", {})
    body = {
        "metadata": metadata,
        "spec": {"zookeeper": {"connect": "zk:2181"}} | spec,
    }
    if status is not None:
        body["status"] = status
    return BrokerGroup.model_validate(body)
