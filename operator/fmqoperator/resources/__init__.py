"""The custom resources of `fmq.io/v1alpha1` as typed values: the one source of their schemas."""

from fmqoperator.resources.base import (
    API_VERSION,
    GROUP,
    VERSION,
    Condition,
    Json,
    Metadata,
    Part,
)
from fmqoperator.resources.group import (
    FENCE,
    RESTART,
    SWITCHOVER,
    BrokerGroup,
    BrokerGroupSpec,
    read_group,
)
from fmqoperator.resources.job import BrokerJob, BrokerJobSpec, BrokerJobStatus
from fmqoperator.resources.status import (
    Access,
    BrokerGroupStatus,
    BrokerStatus,
    LastTransition,
    Phase,
)
from fmqoperator.resources.topic import Topic, TopicSpec, TopicStatus

__all__ = [
    "API_VERSION",
    "FENCE",
    "GROUP",
    "RESTART",
    "SWITCHOVER",
    "VERSION",
    "Access",
    "BrokerGroup",
    "BrokerGroupSpec",
    "BrokerGroupStatus",
    "BrokerJob",
    "BrokerJobSpec",
    "BrokerJobStatus",
    "BrokerStatus",
    "Condition",
    "Json",
    "LastTransition",
    "Metadata",
    "Part",
    "Phase",
    "Topic",
    "TopicSpec",
    "TopicStatus",
    "read_group",
]
