"""All children of one BrokerGroup. Pure, deterministic.

They are listed in the order of application: a broker finds its settings, its account and its name
there before it starts. The master's PodDisruptionBudget comes before the others': while the two
change places, a pod under both could not be evicted at all.
"""

from collections.abc import Iterable, Sequence

from fmqcore.ids import BrokerId
from fmqoperator.api.base import Json
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.parts import Clients, Reclaim
from fmqoperator.core.children import names, pod
from fmqoperator.core.children.names import child
from fmqoperator.core.observation import Defaults


def children(
    group: BrokerGroup,
    defaults: Defaults,
    *,
    master: BrokerId,
    reader: BrokerId,
    replicas: int | None = None,
    claim_size: str | None = None,
    evictable: bool = False,
    held: bool = False,
    leaves: bool = False,
) -> list[Json]:
    """Return every object that a group consists of, with owner reference, labels and hash.

    `master`, `reader`: by the state ("" = none yet: the Services select nothing).
    `replicas`: pods to run, if not what the spec says (hibernation, a scale-down that waits).
    `claim_size`: the size in the existing StatefulSet; it cannot be changed in place.
    `evictable`: a drain may take the master's pod, as another broker can take over at once.
    `held`: it may take no pod yet, as ordered topics need all brokers.
    `leaves`: a broker is being stopped for good.
    """
    count = group.spec.replicas if replicas is None else replicas
    serving = sorted({master, reader} - {""})
    found = [
        child(group, "v1", "ConfigMap", pod.config_map(group), _settings(group)),
        child(
            group,
            "v1",
            "ServiceAccount",
            names.account(group.name),
            {"automountServiceAccountToken": False},
        ),
        *_services(group, master, reader),
        *_disruption(group, serving, count, evictable=evictable, held=held),
    ]
    if group.spec.network_policy.enabled:
        found.append(_network_policy(group, defaults))
    size = claim_size or group.spec.storage.size
    return [*found, stateful_set(group, defaults, count, size, leaves=leaves)]


def stateful_set(
    group: BrokerGroup, defaults: Defaults, replicas: int, claim_size: str, *, leaves: bool
) -> Json:
    """Return the StatefulSet. Only the operator restarts a pod (OnDelete); all start at once."""
    storage = group.spec.storage
    # No broker leaves that only sleeps, or is about to be woken: its volume would go with its pod.
    # Nor does one that is stopped by hand through scaling the StatefulSet: that may be all of them.
    stays = not leaves or group.spec.hibernated or replicas < group.spec.replicas
    claim: Json = {
        "metadata": {"name": "data", "labels": names.selector(group.name)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": claim_size}},
        },
    }
    if storage.storage_class_name is not None:
        claim["spec"]["storageClassName"] = storage.storage_class_name
    spec = {
        "serviceName": names.headless(group.name),
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": names.selector(group.name)},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": Reclaim.RETAIN.value,  # they go with the group alone (`ownership.py`)
            "whenScaled": (Reclaim.RETAIN if stays else storage.on_scale_down).value,
        },
        "template": pod.template(group, defaults),
        "volumeClaimTemplates": [claim],
    }
    return child(group, "apps/v1", "StatefulSet", group.name, {"spec": spec})


def _settings(group: BrokerGroup) -> Json:
    return {"data": pod.config_data(group), "immutable": True}


def _services(group: BrokerGroup, master: str, reader: str) -> list[Json]:
    """Return the Services: for the pods, for the broker that takes writes, and for the reader.

    The last two select one pod by the label that its StatefulSet gave it: the operator labels no
    pods, and an endpoint goes with the pod's readiness also while the operator is down.
    """
    ports = [
        {"name": "fmq", "port": names.CLIENT_PORT, "targetPort": "fmq", "protocol": "TCP"},
        {"name": "http", "port": names.HTTP_PORT, "targetPort": "http", "protocol": "TCP"},
    ]
    headless = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # brokers dial each other before they are ready
        "selector": names.selector(group.name),
        "ports": ports,
    }
    found = [child(group, "v1", "Service", names.headless(group.name), {"spec": headless})]
    wanted = group.spec.service
    for name, broker in ((names.writes(group.name), master), (names.reads(group.name), reader)):
        spec = {
            "type": wanted.type,
            # No broker yet: a name that no pod has.
            "selector": {
                **names.selector(group.name),
                names.POD_NAME_LABEL: broker or f"{group.name}-none",
            },
            "ports": ports[:1],
        }
        found.append(child(group, "v1", "Service", name, {"spec": spec}, wanted.annotations))
    return found


def _disruption(
    group: BrokerGroup, serving: Sequence[str], count: int, *, evictable: bool, held: bool
) -> Iterable[Json]:
    """Keep serving brokers from eviction; allow eviction of the others one at a time.

    The operator moves a serving broker's role first. A group of one broker has none to move to: a
    drain may stop it. Both say how many must stay, not how many may go: that would be counted from
    all pods of the StatefulSet.
    """
    some = list(serving) or [f"{group.name}-none"]
    free = not held and (evictable or group.spec.replicas == 1)
    others = max(0, count - len(serving))
    for name, operator, least in (
        ("master", "In", 0 if free else len(serving)),
        ("others", "NotIn", others if held else max(0, others - 1)),
    ):
        selector = {
            "matchLabels": names.selector(group.name),
            "matchExpressions": [
                {"key": names.POD_NAME_LABEL, "operator": operator, "values": some}
            ],
        }
        spec = {
            "minAvailable": least,
            "selector": selector,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        }
        yield child(
            group, "policy/v1", "PodDisruptionBudget", f"{group.name}-{name}", {"spec": spec}
        )


def _network_policy(group: BrokerGroup, defaults: Defaults) -> Json:
    # Groups of one cluster ask each other about ordered topics, wherever their namespaces are.
    brokers: Json = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": names.brokers_of(group.cluster)},
    }
    # The namespace may hold anything else: only the operator's own pods are let in.
    operator: Json = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": defaults.operator_namespace}
        },
        "podSelector": {"matchLabels": dict(names.OPERATOR_LABELS)},
    }
    match group.spec.network_policy.clients:
        case Clients.ANYWHERE:
            peers: list[Json] = []
        case Clients.NAMESPACE:
            peers = [{"podSelector": {}}, operator, brokers]
        case Clients.LABELLED:
            # A pod has one label of that name, and its topics may be in several groups.
            named = {"key": names.CLIENT_LABEL, "operator": "In"}
            values = list(dict.fromkeys((group.name, group.cluster)))
            labelled: Json = {"matchExpressions": [named | {"values": values}]}
            client: Json = {"namespaceSelector": {}, "podSelector": labelled}
            peers = [client, operator, brokers]
    serve: Json = {"ports": [{"port": names.CLIENT_PORT, "protocol": "TCP"}]}
    if peers:
        serve["from"] = peers
    scrape: Json = {"ports": [{"port": names.HTTP_PORT, "protocol": "TCP"}]}
    spec = {
        "podSelector": {"matchLabels": names.selector(group.name)},
        "policyTypes": ["Ingress"],
        "ingress": [serve, scrape],
    }
    return child(group, "networking.k8s.io/v1", "NetworkPolicy", group.name, {"spec": spec})
