"""What every resource is made of: names on the wire, quantities, conditions. Pure.

Fields are snake_case here and camelCase in Kubernetes. A field that is not known is ignored: a
newer schema in the cluster does not stop an older operator. What is refused, and with which words,
stands beside each field (its bounds) and in `rules` (CEL, `x-kubernetes-validations`).
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

GROUP: Final = "fmq.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "fmq.io/v1alpha1"

MAX_BROKERS: Final = 9

Json = dict[str, Any]


class Part(BaseModel):
    """A part of a resource."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    def as_json(self) -> Json:
        """As Kubernetes shows it; what was not given is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rules(*pairs: tuple[str, str]) -> ConfigDict:
    """CEL rules of a part, each with a message that names the remedy."""
    found: list[Any] = [{"rule": rule, "message": message} for rule, message in pairs]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": found})


def list_map(*keys: str) -> Json:
    """A list in which some fields name each element."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


NO_TWICE: Final[Json] = {"x-kubernetes-list-type": "set"}
"""Of a list that names each thing once: a pod that has one twice cannot be made."""

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
QUANTITY: Final = r"^([0-9]+|[0-9]*\.[0-9]+)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

DnsLabel = Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
ObjectName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)
]
BrokerName = Annotated[str, Field(pattern=DNS_LABEL, min_length=1, max_length=63)]
Words = Annotated[str, Field(max_length=1024)]
Quantity = Annotated[
    str | int,
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]
ShortText = Annotated[str, Field(max_length=253)]
StringMap = Annotated[dict[str, ShortText], Field(max_length=32)]


class Metadata(Part):
    """Of a resource's metadata, what the operator reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Condition(Part):
    """One statement about the resource that is true, false or not known."""

    type: Annotated[str, Field(max_length=64, description="The condition's name, e.g. Ready.")]
    status: Literal["True", "False", "Unknown"] = Field(
        description="Whether the condition is true, false or not known."
    )
    reason: Annotated[
        str, Field(max_length=128, description="Reason of the status, one word for programs.")
    ]
    message: Annotated[
        str,
        Field(max_length=2048, description="Reason of the status, and what to do, for people."),
    ] = ""
    observed_generation: Annotated[
        int, Field(description="The generation of the resource that the condition describes.")
    ] = 0
    last_transition_time: Annotated[
        str, Field(max_length=32, description="When the condition's status last changed.")
    ] = ""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        max_length=32,
        description="Conditions of the resource; each names the generation that it describes.",
        json_schema_extra=list_map("type"),
    ),
]
