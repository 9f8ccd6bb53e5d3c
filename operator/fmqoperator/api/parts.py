"""Parts of a BrokerGroup that describe its pods and volumes. Pure."""

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from fmqoperator.api.base import QUANTITY, ObjectName, Part, Quantities, ShortText, StringMap, rules


class Reclaim(Enum):
    """Whether a volume that is no longer needed is kept or deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class Storage(Part):
    """Each broker's volume."""

    model_config = rules(
        (
            "has(self.storageClassName) == has(oldSelf.storageClassName) && "
            "(!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
            "storage.storageClassName cannot be changed for volumes that exist: create a new "
            "BrokerGroup of that class and move the topics",
        ),
        (
            "quantity(self.size).compareTo(quantity('1Mi')) >= 0",
            "storage.size must be at least 1Mi: a number without a unit counts bytes, e.g. 10Gi",
        ),
    )

    size: str = Field(
        default="10Gi",
        pattern=QUANTITY,
        max_length=32,
        description="Size of each broker's volume. It may grow, never shrink; a size that no "
        "volume has reached yet (see status.volumeSize) may be lowered again.",
    )
    storage_class_name: ObjectName | None = Field(
        default=None, description="Storage class of the volumes; left out: the cluster's default."
    )
    on_delete: Reclaim = Field(
        default=Reclaim.RETAIN,
        description="Whether volumes are kept when this resource is deleted.",
    )
    on_scale_down: Reclaim = Field(
        default=Reclaim.RETAIN,
        description="Whether the volume of a removed broker is kept.",
    )


def _no_more_than_given(what: str, default: str) -> tuple[str, str]:
    asked, most = (f"quantity(string(self.{part}['{what}']))" for part in ("requests", "limits"))
    return (
        f"!('{what}' in self.requests) || !('{what}' in self.limits) || "
        f"{asked}.compareTo({most}) <= 0",
        f"resources.requests.{what} may not be over resources.limits.{what} (left out: {default}): "
        "Kubernetes refuses such a pod; set both",
    )


class Resources(Part):
    """Requests and limits of each broker's container."""

    model_config = rules(
        _no_more_than_given("memory", "512Mi and 1Gi"), _no_more_than_given("cpu", "250m and none")
    )
    requests: Quantities = Field(
        default={"cpu": "250m", "memory": "512Mi"},
        description="Resources that a node must have free for the pod.",
    )
    limits: Quantities = Field(
        default={"memory": "1Gi"},
        description="Limits of the container. A cpu limit makes failovers slower.",
    )


class Toleration(Part):
    """A taint of nodes that brokers bear."""

    key: ShortText | None = Field(
        default=None, description="Key of the tolerated taint; left out: any."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal",
        description="Equal: the taint's value must equal `value`. Exists: any value is tolerated.",
    )
    value: ShortText | None = Field(default=None, description="Value of the tolerated taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the tolerated taint; left out: all effects."
    )
    toleration_seconds: int | None = Field(
        default=None,
        ge=0,
        description="With effect: NoExecute, seconds for which the taint is tolerated.",
    )


class Spread(Enum):
    """How strictly brokers are kept apart."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    NONE = "none"


class Scheduling(Part):
    """Where brokers run."""

    across_nodes: Spread = Field(
        default=Spread.PREFERRED,
        description="Whether each broker of the group must, or should, run on a separate node.",
    )
    across_zones: Spread = Field(
        default=Spread.PREFERRED,
        description="Whether the group's brokers must, or should, be spread evenly over zones.",
    )
    node_selector: StringMap = Field(default={}, description="Labels that a node must have.")
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = Field(
        default=(), description="Taints of nodes that the brokers tolerate."
    )
    priority_class_name: ObjectName | None = Field(
        default=None, description="Priority class of the pods."
    )


class Service(Part):
    """The Services -rw and -ro. Brokers then return their own names in the cluster to clients."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP",
        description="Type of the Services -rw and -ro. NodePort and LoadBalancer serve only "
        "clients that also resolve and reach the brokers' own names in the cluster, which brokers "
        "return to them.",
    )
    annotations: StringMap = Field(
        default={}, description="Annotations of the Services, such as for a load balancer."
    )


class Clients(Enum):
    """Who may connect to the brokers."""

    ANYWHERE = "anywhere"
    NAMESPACE = "namespace"
    LABELLED = "labelled"


class NetworkPolicy(Part):
    """Who may connect, where the cluster's network enforces it."""

    enabled: bool = Field(default=True, description="Whether the operator creates a NetworkPolicy.")
    clients: Clients = Field(
        default=Clients.ANYWHERE,
        description="Who may reach the client port: anywhere, pods of this namespace, or pods of "
        "any namespace with the label fmq.io/client: '<name of the cluster>', for all its groups, "
        "or '<name of the group>'. Brokers of the cluster and the operator always may.",
    )


class PodTemplate(Part):
    """Labels and annotations that pods have beside the operator's."""

    labels: StringMap = Field(default={}, description="Labels of the pods, beside the operator's.")
    annotations: StringMap = Field(default={}, description="Annotations of the pods.")
