"""Names, labels and addresses of a group's children. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from fmqcore.version import VERSION
from fmqoperator.api.base import API_VERSION, Json
from fmqoperator.api.group import BrokerGroup
from fmqoperator.core.observation import HASH, Defaults

CLIENT_PORT: Final = 9876
HTTP_PORT: Final = 9870
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
GROUP_LABEL: Final = "fmq.io/group"
CLUSTER_LABEL: Final = "fmq.io/cluster"
CLIENT_LABEL: Final = "fmq.io/client"
JOB_LABEL: Final = "fmq.io/job"
"""Label of all that belongs to a BrokerJob: its name, which a rule keeps short enough."""
PART_OF: Final = "app.kubernetes.io/part-of=fmq"
"""Selects all that is made for groups and for jobs."""
LAST_WORDS: Final = {"name": "FMQ_LAST_WORDS", "value": "/dev/termination-log"}
"""Where a job writes its message for the status.

Kubernetes takes the end of a log only of a container that failed, and of a pod that Spark makes not
even that.
"""
SETTINGS_HASH: Final = "fmq.io/settings-hash"
APP: Final = "fmq-broker"
OPERATOR_LABELS: Final = {
    "app.kubernetes.io/name": "fmq",
    "app.kubernetes.io/component": "operator",
}
"""Labels of the operator's own pods, whatever the release of the chart."""


def headless(group: str) -> str:
    """Return the Service that gives each pod its name."""
    return f"{group}-brokers"


def writes(group: str) -> str:
    """Return the Service of the broker that takes writes."""
    return f"{group}-rw"


def reads(group: str) -> str:
    """Return the Service of the broker that serves reads."""
    return f"{group}-ro"


def config_map(group: str, settings_hash: str) -> str:
    """Return the ConfigMap with those settings: other settings have another ConfigMap.

    A container that restarts has what its pod was made with, whatever was declared since.
    """
    return f"{group}-config-{settings_hash}"


def account(group: str) -> str:
    """Return the brokers' ServiceAccount. It has no role: a broker asks nothing of Kubernetes."""
    return f"{group}-broker"


def claim(broker: str) -> str:
    """Return a broker's PersistentVolumeClaim."""
    return f"data-{broker}"


def ordinal(broker: str) -> int:
    """Return the broker's number; -1 if the name is none of a StatefulSet's."""
    tail = broker.rpartition("-")[2]
    return int(tail) if tail.isascii() and tail.isdigit() else -1


def is_broker(group: str, pod: str) -> bool:
    """Whether the name is that of a broker of the group: `<group>-<number>`."""
    return pod.rpartition("-")[0] == group and ordinal(pod) >= 0


def address(group: BrokerGroup, broker: str, defaults: Defaults) -> str:
    """Return the host:port at which brokers and clients reach it, whatever its pod's IP."""
    domain = f".{defaults.cluster_domain}" if defaults.cluster_domain else ""
    space = group.metadata.namespace
    return f"{broker}.{headless(group.name)}.{space}.svc{domain}:{CLIENT_PORT}"


def seeds(group: str) -> str:
    """Return the URL with which clients in the group's namespace find its brokers.

    The Services of serving brokers are as new as the operator's last look; behind the headless one
    is every broker that has a pod, with or without an operator.
    """
    services = (writes(group), reads(group), headless(group))
    return "fmq://" + ",".join(f"{service}:{CLIENT_PORT}" for service in services)


def selector(group: str) -> dict[str, str]:
    """Return labels that every pod of the group has, and no other pod."""
    return {"app.kubernetes.io/name": APP, GROUP_LABEL: group}


def labels(group: BrokerGroup) -> dict[str, str]:
    """Return labels of every child, and of pods: none that another version changes."""
    return selector(group.name) | {
        "app.kubernetes.io/instance": group.name,
        "app.kubernetes.io/managed-by": "fmq-operator",
        "app.kubernetes.io/part-of": "fmq",
        "app.kubernetes.io/component": "broker",
        CLUSTER_LABEL: group.cluster,
    }


def brokers_of(cluster: str) -> dict[str, str]:
    """Return labels that every broker of the cluster has, and no other pod."""
    return {"app.kubernetes.io/name": APP, CLUSTER_LABEL: cluster}


def owner(group: BrokerGroup) -> Json:
    """Return the owner reference of an object that goes with the group."""
    return {
        "apiVersion": API_VERSION,
        "kind": "BrokerGroup",
        "name": group.name,
        "uid": group.metadata.uid,
        "blockOwnerDeletion": False,  # no deletion waits for it
    }


def child(
    group: BrokerGroup,
    api_version: str,
    kind: str,
    name: str,
    rest: Json,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """Return an object of the group: owner, labels, and a hash of all that was asked for."""
    metadata: Json = {
        "name": name,
        "namespace": group.metadata.namespace,
        "labels": labels(group) | {"app.kubernetes.io/version": VERSION},
        "annotations": dict(annotations or {}),
        "ownerReferences": [owner(group) | {"controller": True}],
    }
    made = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
    metadata["annotations"][HASH] = digest(made)
    return made


def digest(value: Json) -> str:
    """Return the digest of a JSON value; equal values have equal digests."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
