from fmqproto.v1 import client_pb2 as _client_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Remedy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REMEDY_NONE: _ClassVar[Remedy]
    REMEDY_BEGIN_AGAIN: _ClassVar[Remedy]
REMEDY_NONE: Remedy
REMEDY_BEGIN_AGAIN: Remedy

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "queues", "groups", "if_not_exists", "ordered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    queues: int
    groups: _containers.RepeatedCompositeFieldContainer[_client_pb2.TopicGroup]
    if_not_exists: bool
    ordered: OrderedTopic
    def __init__(self, name: _Optional[str] = ..., queues: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[_client_pb2.TopicGroup, _Mapping]]] = ..., if_not_exists: _Optional[bool] = ..., ordered: _Optional[_Union[OrderedTopic, _Mapping]] = ...) -> None: ...

class OrderedTopic(_message.Message):
    __slots__ = ("groups", "allow_single", "lease_ms")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SINGLE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ChainGroup]
    allow_single: bool
    lease_ms: int
    def __init__(self, groups: _Optional[_Iterable[_Union[ChainGroup, _Mapping]]] = ..., allow_single: _Optional[bool] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class ChainGroup(_message.Message):
    __slots__ = ("group", "weight")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    group: str
    weight: int
    def __init__(self, group: _Optional[str] = ..., weight: _Optional[int] = ...) -> None: ...

class CreateTopicReply(_message.Message):
    __slots__ = ("error", "topic")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    topic: _client_pb2.TopicRoute
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., topic: _Optional[_Union[_client_pb2.TopicRoute, _Mapping]] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "queues", "groups", "all_groups", "chain_groups")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ALL_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHAIN_GROUPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    queues: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupChange]
    all_groups: bool
    chain_groups: _containers.RepeatedCompositeFieldContainer[ChainGroup]
    def __init__(self, name: _Optional[str] = ..., queues: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupChange, _Mapping]]] = ..., all_groups: _Optional[bool] = ..., chain_groups: _Optional[_Iterable[_Union[ChainGroup, _Mapping]]] = ...) -> None: ...

class GroupChange(_message.Message):
    __slots__ = ("group", "queues", "weight")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    group: str
    queues: int
    weight: int
    def __init__(self, group: _Optional[str] = ..., queues: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class AlterTopicReply(_message.Message):
    __slots__ = ("error", "topic")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    topic: _client_pb2.TopicRoute
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., topic: _Optional[_Union[_client_pb2.TopicRoute, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class DeleteTopicReply(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ...) -> None: ...

class OffsetsRequest(_message.Message):
    __slots__ = ("topic", "group", "limit", "after", "with_deleted")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WITH_DELETED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    limit: int
    after: OffsetsAfter
    with_deleted: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[_Union[OffsetsAfter, _Mapping]] = ..., with_deleted: _Optional[bool] = ...) -> None: ...

class OffsetsAfter(_message.Message):
    __slots__ = ("topic", "queue_id", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    group: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class OffsetsReply(_message.Message):
    __slots__ = ("error", "queues", "has_more", "withheld_reason")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_REASON_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    has_more: bool
    withheld_reason: str
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ..., has_more: _Optional[bool] = ..., withheld_reason: _Optional[str] = ...) -> None: ...

class QueueOffsets(_message.Message):
    __slots__ = ("broker_group", "topic", "queue_id", "group", "committed", "begin", "end", "session", "in_flight", "client", "seek_number", "acked_ahead", "stored_end", "end_to_come")
    BROKER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEEK_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKED_AHEAD_FIELD_NUMBER: _ClassVar[int]
    STORED_END_FIELD_NUMBER: _ClassVar[int]
    END_TO_COME_FIELD_NUMBER: _ClassVar[int]
    broker_group: str
    topic: str
    queue_id: int
    group: str
    committed: int
    begin: int
    end: int
    session: str
    in_flight: int
    client: str
    seek_number: int
    acked_ahead: int
    stored_end: int
    end_to_come: int
    def __init__(self, broker_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., group: _Optional[str] = ..., committed: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., session: _Optional[str] = ..., in_flight: _Optional[int] = ..., client: _Optional[str] = ..., seek_number: _Optional[int] = ..., acked_ahead: _Optional[int] = ..., stored_end: _Optional[int] = ..., end_to_come: _Optional[int] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("topic", "group", "to", "to_ms", "by_offset", "offset", "queues", "expected_seek_numbers")
    class ExpectedSeekNumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    BY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SEEK_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    to: _client_pb2.StartAt
    to_ms: int
    by_offset: bool
    offset: int
    queues: _containers.RepeatedScalarFieldContainer[int]
    expected_seek_numbers: _containers.ScalarMap[int, int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., to: _Optional[_Union[_client_pb2.StartAt, str]] = ..., to_ms: _Optional[int] = ..., by_offset: _Optional[bool] = ..., offset: _Optional[int] = ..., queues: _Optional[_Iterable[int]] = ..., expected_seek_numbers: _Optional[_Mapping[int, int]] = ...) -> None: ...

class SeekReply(_message.Message):
    __slots__ = ("error", "queues", "ask_group")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    ASK_GROUP_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    ask_group: str
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ..., ask_group: _Optional[str] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class DeleteGroupReply(_message.Message):
    __slots__ = ("error", "deleted")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    deleted: int
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., deleted: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("cluster", "group", "broker", "role", "permission", "mode", "epoch", "reason", "journal_start", "end", "durable_end", "commit_end", "replicas", "version", "uptime_ms", "zookeeper_connected", "reader", "master", "disk_full_reason", "damage", "unwritable_reason", "served_periods", "remedy", "withheld_reason", "withheld_records")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DURABLE_END_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    ZOOKEEPER_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    DISK_FULL_REASON_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    UNWRITABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    SERVED_PERIODS_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_REASON_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    group: str
    broker: str
    role: str
    permission: int
    mode: str
    epoch: int
    reason: str
    journal_start: int
    end: int
    durable_end: int
    commit_end: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    version: str
    uptime_ms: int
    zookeeper_connected: bool
    reader: str
    master: str
    disk_full_reason: str
    damage: str
    unwritable_reason: str
    served_periods: ServedPeriods
    remedy: Remedy
    withheld_reason: str
    withheld_records: int
    def __init__(self, cluster: _Optional[str] = ..., group: _Optional[str] = ..., broker: _Optional[str] = ..., role: _Optional[str] = ..., permission: _Optional[int] = ..., mode: _Optional[str] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., journal_start: _Optional[int] = ..., end: _Optional[int] = ..., durable_end: _Optional[int] = ..., commit_end: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., zookeeper_connected: _Optional[bool] = ..., reader: _Optional[str] = ..., master: _Optional[str] = ..., disk_full_reason: _Optional[str] = ..., damage: _Optional[str] = ..., unwritable_reason: _Optional[str] = ..., served_periods: _Optional[_Union[ServedPeriods, _Mapping]] = ..., remedy: _Optional[_Union[Remedy, str]] = ..., withheld_reason: _Optional[str] = ..., withheld_records: _Optional[int] = ...) -> None: ...

class ServedPeriods(_message.Message):
    __slots__ = ("reads_served_ms", "writes_served_ms", "reads_ended_ago_ms", "writes_ended_ago_ms", "followed_master", "master_silent_ms", "unacknowledged_reason")
    READS_SERVED_MS_FIELD_NUMBER: _ClassVar[int]
    WRITES_SERVED_MS_FIELD_NUMBER: _ClassVar[int]
    READS_ENDED_AGO_MS_FIELD_NUMBER: _ClassVar[int]
    WRITES_ENDED_AGO_MS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWED_MASTER_FIELD_NUMBER: _ClassVar[int]
    MASTER_SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_REASON_FIELD_NUMBER: _ClassVar[int]
    reads_served_ms: int
    writes_served_ms: int
    reads_ended_ago_ms: int
    writes_ended_ago_ms: int
    followed_master: str
    master_silent_ms: int
    unacknowledged_reason: str
    def __init__(self, reads_served_ms: _Optional[int] = ..., writes_served_ms: _Optional[int] = ..., reads_ended_ago_ms: _Optional[int] = ..., writes_ended_ago_ms: _Optional[int] = ..., followed_master: _Optional[str] = ..., master_silent_ms: _Optional[int] = ..., unacknowledged_reason: _Optional[str] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("broker", "connected", "in_sync", "received_end", "durable_end", "lag_bytes")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_END_FIELD_NUMBER: _ClassVar[int]
    DURABLE_END_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    broker: str
    connected: bool
    in_sync: bool
    received_end: int
    durable_end: int
    lag_bytes: int
    def __init__(self, broker: _Optional[str] = ..., connected: _Optional[bool] = ..., in_sync: _Optional[bool] = ..., received_end: _Optional[int] = ..., durable_end: _Optional[int] = ..., lag_bytes: _Optional[int] = ...) -> None: ...

class OrderedStatusRequest(_message.Message):
    __slots__ = ("topic", "after", "last_known")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: str
    last_known: bool
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[str] = ..., last_known: _Optional[bool] = ...) -> None: ...

class OrderedStatusReply(_message.Message):
    __slots__ = ("error", "topics", "has_more", "answered_ms")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_MS_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    topics: _containers.RepeatedCompositeFieldContainer[OrderedTopicStatus]
    has_more: bool
    answered_ms: int
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[OrderedTopicStatus, _Mapping]]] = ..., has_more: _Optional[bool] = ..., answered_ms: _Optional[int] = ...) -> None: ...

class OrderedTopicStatus(_message.Message):
    __slots__ = ("topic", "chain", "phase", "reason", "since_ms", "senders", "groups", "stuck")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    chain: bytes
    phase: str
    reason: str
    since_ms: int
    senders: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedCompositeFieldContainer[ChainGroupStatus]
    stuck: _containers.RepeatedCompositeFieldContainer[StuckSegment]
    def __init__(self, topic: _Optional[str] = ..., chain: _Optional[bytes] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., since_ms: _Optional[int] = ..., senders: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[_Union[ChainGroupStatus, _Mapping]]] = ..., stuck: _Optional[_Iterable[_Union[StuckSegment, _Mapping]]] = ...) -> None: ...

class StuckSegment(_message.Message):
    __slots__ = ("segment", "remedy")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    segment: int
    remedy: str
    def __init__(self, segment: _Optional[int] = ..., remedy: _Optional[str] = ...) -> None: ...

class ChainGroupStatus(_message.Message):
    __slots__ = ("group", "obstacle")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    group: str
    obstacle: str
    def __init__(self, group: _Optional[str] = ..., obstacle: _Optional[str] = ...) -> None: ...

class OrderedSwitchRequest(_message.Message):
    __slots__ = ("topic", "chain_segment", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHAIN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    chain_segment: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., chain_segment: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class OrderedSwitchReply(_message.Message):
    __slots__ = ("error", "topic")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    topic: OrderedTopicStatus
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., topic: _Optional[_Union[OrderedTopicStatus, _Mapping]] = ...) -> None: ...

class OrderedReleaseRequest(_message.Message):
    __slots__ = ("topic", "chain_segment", "accepts_loss")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHAIN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_LOSS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    chain_segment: int
    accepts_loss: bool
    def __init__(self, topic: _Optional[str] = ..., chain_segment: _Optional[int] = ..., accepts_loss: _Optional[bool] = ...) -> None: ...

class OrderedReleaseReply(_message.Message):
    __slots__ = ("error", "topic")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    topic: OrderedTopicStatus
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., topic: _Optional[_Union[OrderedTopicStatus, _Mapping]] = ...) -> None: ...
