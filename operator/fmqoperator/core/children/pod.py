"""The pod of one broker: restricted, probed, kept apart from its group's other pods. Pure."""

import json
from typing import Final

from fmqoperator.api.base import Json
from fmqoperator.api.group import RESTART, BrokerGroup
from fmqoperator.api.parts import Spread
from fmqoperator.core.children import names
from fmqoperator.core.observation import Defaults

USER: Final = 10001
DATA: Final = "/var/lib/fmq"
_SETTINGS: Final = "/etc/fmq"
_PROBE_S: Final = 5

__all__ = [
    "broker_settings",
    "config_data",
    "config_map",
    "on_node",
    "settings_hash",
    "template",
]


def broker_settings(group: BrokerGroup) -> Json:
    """Return the input of `fmq broker run --config`; the broker's own name comes from its pod."""
    given = {
        "cluster": group.cluster,
        "group": group.name,
        "data_dir": f"{DATA}/journal",
        "zookeeper": group.spec.zookeeper.connect,
        "listen": f"0.0.0.0:{names.CLIENT_PORT}",
        "http_listen": f"0.0.0.0:{names.HTTP_PORT}",
    }
    tuned = group.spec.settings.model_dump(mode="json", exclude_none=True)
    return {**tuned, **given}


def settings_hash(group: BrokerGroup) -> str:
    """Return a hash of the settings as declared."""
    return names.digest(broker_settings(group))


def config_map(group: BrokerGroup) -> str:
    """Return the name of the ConfigMap with these settings."""
    return names.config_map(group.name, settings_hash(group))


def config_data(group: BrokerGroup) -> dict[str, str]:
    """Return the ConfigMap's data."""
    return {"broker.json": json.dumps(broker_settings(group), sort_keys=True, indent=2) + "\n"}


def on_node(name: str) -> Json:
    """Return affinity to that node alone."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    terms = [{"matchFields": [field]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def template(group: BrokerGroup, defaults: Defaults) -> Json:
    """Return the StatefulSet's pod template. A change to it is a reason to restart."""
    spec, pod = group.spec, group.spec.pod
    annotations = {
        **pod.annotations,
        names.SETTINGS_HASH: settings_hash(group),
    }
    if asked := group.metadata.annotations.get(RESTART):
        annotations[RESTART] = asked
    body: Json = {
        "serviceAccountName": names.account(group.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.termination_grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(group, defaults)],
        "volumes": [
            {"name": "settings", "configMap": {"name": config_map(group)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
        **_scheduling(group),
    }
    if spec.image_pull_secrets:
        body["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    return {
        "metadata": {"labels": {**pod.labels, **names.labels(group)}, "annotations": annotations},
        "spec": body,
    }


def _container(group: BrokerGroup, defaults: Defaults) -> Json:
    spec = group.spec
    return {
        "name": "broker",
        "image": spec.image or defaults.broker_image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["broker", "run", "--config", f"{_SETTINGS}/broker.json", "--id", "$(POD_NAME)"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [
            {"name": "fmq", "containerPort": names.CLIENT_PORT, "protocol": "TCP"},
            {"name": "http", "containerPort": names.HTTP_PORT, "protocol": "TCP"},
        ],
        "resources": spec.resources.as_json(),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        },
        # A start may read a long journal: the other probes start once this one has succeeded.
        "startupProbe": _probe("/startupz", _PROBE_S, -(-spec.startup_seconds // _PROBE_S)),
        # A minute without a turn of the event loop: only a restart helps.
        "livenessProbe": _probe("/livez", 10, 6),
        "readinessProbe": _probe("/readyz?serves=reads", 2, 2),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "settings", "mountPath": _SETTINGS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _probe(path: str, period_s: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": _PROBE_S,
        "failureThreshold": failures,
        "successThreshold": 1,
    }


def _scheduling(group: BrokerGroup) -> Json:
    wanted = group.spec.scheduling
    mates = {"matchLabels": names.selector(group.name)}
    out: Json = {}
    term = {"labelSelector": mates, "topologyKey": "kubernetes.io/hostname"}
    if wanted.across_nodes is Spread.REQUIRED:
        rule: Json = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        out["affinity"] = {"podAntiAffinity": rule}
    elif wanted.across_nodes is Spread.PREFERRED:
        weighted = [{"weight": 100, "podAffinityTerm": term}]
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        out["affinity"] = {"podAntiAffinity": rule}
    if wanted.across_zones is not Spread.NONE:
        strict = wanted.across_zones is Spread.REQUIRED
        out["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule" if strict else "ScheduleAnyway",
                "labelSelector": mates,
            }
        ]
    if wanted.node_selector:
        out["nodeSelector"] = dict(wanted.node_selector)
    if wanted.tolerations:
        out["tolerations"] = [t.as_json() for t in wanted.tolerations]
    if wanted.priority_class_name:
        out["priorityClassName"] = wanted.priority_class_name
    return out
