from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[ErrorCode]
    NO_PERMISSION: _ClassVar[ErrorCode]
    UNKNOWN_TOPIC: _ClassVar[ErrorCode]
    UNKNOWN_QUEUE: _ClassVar[ErrorCode]
    TOO_LARGE: _ClassVar[ErrorCode]
    BAD_CRC: _ClassVar[ErrorCode]
    MALFORMED: _ClassVar[ErrorCode]
    NOT_ENOUGH_REPLICAS: _ClassVar[ErrorCode]
    OVERLOADED: _ClassVar[ErrorCode]
    DELIVERY_UNKNOWN: _ClassVar[ErrorCode]
    OUT_OF_SEQUENCE: _ClassVar[ErrorCode]
    PRODUCER_FENCED: _ClassVar[ErrorCode]
    STORAGE_FULL: _ClassVar[ErrorCode]
    UNSUPPORTED: _ClassVar[ErrorCode]
    INTERNAL: _ClassVar[ErrorCode]
    ALREADY_EXISTS: _ClassVar[ErrorCode]
    INVALID_ARGUMENT: _ClassVar[ErrorCode]
    NOT_FOUND: _ClassVar[ErrorCode]
    STALE_ASSIGNMENT: _ClassVar[ErrorCode]
    UNAVAILABLE: _ClassVar[ErrorCode]
    SENDER_FENCED: _ClassVar[ErrorCode]
    SEGMENT_CLOSED: _ClassVar[ErrorCode]

class AckLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICATED: _ClassVar[AckLevel]
    ONE_WAY: _ClassVar[AckLevel]
    RECEIVED: _ClassVar[AckLevel]
    PERSISTED: _ClassVar[AckLevel]
    ALL: _ClassVar[AckLevel]

class StartAt(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_EARLIEST: _ClassVar[StartAt]
    START_LATEST: _ClassVar[StartAt]
    START_TIME: _ClassVar[StartAt]
OK: ErrorCode
NO_PERMISSION: ErrorCode
UNKNOWN_TOPIC: ErrorCode
UNKNOWN_QUEUE: ErrorCode
TOO_LARGE: ErrorCode
BAD_CRC: ErrorCode
MALFORMED: ErrorCode
NOT_ENOUGH_REPLICAS: ErrorCode
OVERLOADED: ErrorCode
DELIVERY_UNKNOWN: ErrorCode
OUT_OF_SEQUENCE: ErrorCode
PRODUCER_FENCED: ErrorCode
STORAGE_FULL: ErrorCode
UNSUPPORTED: ErrorCode
INTERNAL: ErrorCode
ALREADY_EXISTS: ErrorCode
INVALID_ARGUMENT: ErrorCode
NOT_FOUND: ErrorCode
STALE_ASSIGNMENT: ErrorCode
UNAVAILABLE: ErrorCode
SENDER_FENCED: ErrorCode
SEGMENT_CLOSED: ErrorCode
REPLICATED: AckLevel
ONE_WAY: AckLevel
RECEIVED: AckLevel
PERSISTED: AckLevel
ALL: AckLevel
START_EARLIEST: StartAt
START_LATEST: StartAt
START_TIME: StartAt

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("open", "batches", "sender_report", "sender_links")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    SENDER_REPORT_FIELD_NUMBER: _ClassVar[int]
    SENDER_LINKS_FIELD_NUMBER: _ClassVar[int]
    open: ProduceOpen
    batches: _containers.RepeatedCompositeFieldContainer[ProduceBatch]
    sender_report: SenderReport
    sender_links: SenderLinks
    def __init__(self, open: _Optional[_Union[ProduceOpen, _Mapping]] = ..., batches: _Optional[_Iterable[_Union[ProduceBatch, _Mapping]]] = ..., sender_report: _Optional[_Union[SenderReport, _Mapping]] = ..., sender_links: _Optional[_Union[SenderLinks, _Mapping]] = ...) -> None: ...

class ProduceOpen(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "client", "topics", "attempt", "settle", "sender")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    client: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    settle: bool
    sender: SenderOpen
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., client: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., settle: _Optional[bool] = ..., sender: _Optional[_Union[SenderOpen, _Mapping]] = ...) -> None: ...

class SenderOpen(_message.Message):
    __slots__ = ("topic", "name", "accepts_unknown_end", "instance", "sender_id", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_UNKNOWN_END_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    accepts_unknown_end: bool
    instance: int
    sender_id: str
    topic_id: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., accepts_unknown_end: _Optional[bool] = ..., instance: _Optional[int] = ..., sender_id: _Optional[str] = ..., topic_id: _Optional[int] = ...) -> None: ...

class SenderReport(_message.Message):
    __slots__ = ("chain_segment", "first_unacked")
    class FirstUnackedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    CHAIN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNACKED_FIELD_NUMBER: _ClassVar[int]
    chain_segment: int
    first_unacked: _containers.ScalarMap[int, int]
    def __init__(self, chain_segment: _Optional[int] = ..., first_unacked: _Optional[_Mapping[int, int]] = ...) -> None: ...

class SenderLinks(_message.Message):
    __slots__ = ("cut_groups",)
    CUT_GROUPS_FIELD_NUMBER: _ClassVar[int]
    cut_groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cut_groups: _Optional[_Iterable[str]] = ...) -> None: ...

class ProduceBatch(_message.Message):
    __slots__ = ("correlation", "topic_id", "queue_id", "record_count", "attrs", "payload_crc", "base_sequence", "tag_mask", "deliver_at_ms", "ack", "timeout_ms", "payload", "chain_segment", "sender_epoch", "ordered_sequence")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTRS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CRC_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CHAIN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SENDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ORDERED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    topic_id: int
    queue_id: int
    record_count: int
    attrs: int
    payload_crc: int
    base_sequence: int
    tag_mask: int
    deliver_at_ms: int
    ack: AckLevel
    timeout_ms: int
    payload: bytes
    chain_segment: int
    sender_epoch: int
    ordered_sequence: int
    def __init__(self, correlation: _Optional[int] = ..., topic_id: _Optional[int] = ..., queue_id: _Optional[int] = ..., record_count: _Optional[int] = ..., attrs: _Optional[int] = ..., payload_crc: _Optional[int] = ..., base_sequence: _Optional[int] = ..., tag_mask: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., ack: _Optional[_Union[AckLevel, str]] = ..., timeout_ms: _Optional[int] = ..., payload: _Optional[bytes] = ..., chain_segment: _Optional[int] = ..., sender_epoch: _Optional[int] = ..., ordered_sequence: _Optional[int] = ...) -> None: ...

class ProduceReply(_message.Message):
    __slots__ = ("opened", "acks", "epoch", "sender_state", "error")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SENDER_STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    opened: ProduceOpened
    acks: _containers.RepeatedCompositeFieldContainer[ProduceAck]
    epoch: int
    sender_state: SenderState
    error: Error
    def __init__(self, opened: _Optional[_Union[ProduceOpened, _Mapping]] = ..., acks: _Optional[_Iterable[_Union[ProduceAck, _Mapping]]] = ..., epoch: _Optional[int] = ..., sender_state: _Optional[_Union[SenderState, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class SenderState(_message.Message):
    __slots__ = ("active", "sender_epoch", "chain_segment", "group", "closing_reason", "reason", "first_sequence", "last_records")
    class FirstSequenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class LastRecordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: LastRecord
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[LastRecord, _Mapping]] = ...) -> None: ...
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    SENDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLOSING_REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_RECORDS_FIELD_NUMBER: _ClassVar[int]
    active: bool
    sender_epoch: int
    chain_segment: int
    group: str
    closing_reason: str
    reason: str
    first_sequence: _containers.ScalarMap[int, int]
    last_records: _containers.MessageMap[int, LastRecord]
    def __init__(self, active: _Optional[bool] = ..., sender_epoch: _Optional[int] = ..., chain_segment: _Optional[int] = ..., group: _Optional[str] = ..., closing_reason: _Optional[str] = ..., reason: _Optional[str] = ..., first_sequence: _Optional[_Mapping[int, int]] = ..., last_records: _Optional[_Mapping[int, LastRecord]] = ...) -> None: ...

class LastRecord(_message.Message):
    __slots__ = ("ordered_sequence", "offset", "batch")
    ORDERED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ordered_sequence: int
    offset: int
    batch: bytes
    def __init__(self, ordered_sequence: _Optional[int] = ..., offset: _Optional[int] = ..., batch: _Optional[bytes] = ...) -> None: ...

class ProduceOpened(_message.Message):
    __slots__ = ("error", "max_batch_bytes", "max_records", "window_bytes", "settles_only", "heartbeat_ms", "sender_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    SETTLES_ONLY_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    error: Error
    max_batch_bytes: int
    max_records: int
    window_bytes: int
    settles_only: bool
    heartbeat_ms: int
    sender_id: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., max_batch_bytes: _Optional[int] = ..., max_records: _Optional[int] = ..., window_bytes: _Optional[int] = ..., settles_only: _Optional[bool] = ..., heartbeat_ms: _Optional[int] = ..., sender_id: _Optional[str] = ...) -> None: ...

class ProduceAck(_message.Message):
    __slots__ = ("correlation", "code", "message", "base_offset", "store_ms", "never_appended", "expected_sequence")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_MS_FIELD_NUMBER: _ClassVar[int]
    NEVER_APPENDED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    code: ErrorCode
    message: str
    base_offset: int
    store_ms: int
    never_appended: bool
    expected_sequence: int
    def __init__(self, correlation: _Optional[int] = ..., code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., base_offset: _Optional[int] = ..., store_ms: _Optional[int] = ..., never_appended: _Optional[bool] = ..., expected_sequence: _Optional[int] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("open", "credit_bytes", "acks", "nacks", "controls", "commit_token", "leave", "credit_records", "delivered")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    NACKS_FIELD_NUMBER: _ClassVar[int]
    CONTROLS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    open: ConsumeOpen
    credit_bytes: int
    acks: _containers.RepeatedCompositeFieldContainer[AckRange]
    nacks: _containers.RepeatedCompositeFieldContainer[NackRange]
    controls: _containers.RepeatedCompositeFieldContainer[QueueControl]
    commit_token: int
    leave: bool
    credit_records: int
    delivered: _containers.RepeatedCompositeFieldContainer[DeliveredRange]
    def __init__(self, open: _Optional[_Union[ConsumeOpen, _Mapping]] = ..., credit_bytes: _Optional[int] = ..., acks: _Optional[_Iterable[_Union[AckRange, _Mapping]]] = ..., nacks: _Optional[_Iterable[_Union[NackRange, _Mapping]]] = ..., controls: _Optional[_Iterable[_Union[QueueControl, _Mapping]]] = ..., commit_token: _Optional[int] = ..., leave: _Optional[bool] = ..., credit_records: _Optional[int] = ..., delivered: _Optional[_Iterable[_Union[DeliveredRange, _Mapping]]] = ...) -> None: ...

class ConsumeOpen(_message.Message):
    __slots__ = ("topic", "group", "session_id", "client", "start", "start_ms", "ack_timeout_ms", "held_queues", "accepts_omitted_batch", "reports_delivered", "temporary")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_QUEUES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_OMITTED_BATCH_FIELD_NUMBER: _ClassVar[int]
    REPORTS_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    session_id: str
    client: str
    start: StartAt
    start_ms: int
    ack_timeout_ms: int
    held_queues: _containers.RepeatedScalarFieldContainer[int]
    accepts_omitted_batch: bool
    reports_delivered: bool
    temporary: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., session_id: _Optional[str] = ..., client: _Optional[str] = ..., start: _Optional[_Union[StartAt, str]] = ..., start_ms: _Optional[int] = ..., ack_timeout_ms: _Optional[int] = ..., held_queues: _Optional[_Iterable[int]] = ..., accepts_omitted_batch: _Optional[bool] = ..., reports_delivered: _Optional[bool] = ..., temporary: _Optional[bool] = ...) -> None: ...

class DeliveredRange(_message.Message):
    __slots__ = ("queue_id", "generation", "first_offset", "end_offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    generation: int
    first_offset: int
    end_offset: int
    def __init__(self, queue_id: _Optional[int] = ..., generation: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class AckRange(_message.Message):
    __slots__ = ("queue_id", "generation", "first_offset", "end_offset", "epoch")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    generation: int
    first_offset: int
    end_offset: int
    epoch: int
    def __init__(self, queue_id: _Optional[int] = ..., generation: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class NackRange(_message.Message):
    __slots__ = ("queue_id", "generation", "first_offset", "end_offset", "delay_ms", "not_delivered")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    NOT_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    generation: int
    first_offset: int
    end_offset: int
    delay_ms: int
    not_delivered: bool
    def __init__(self, queue_id: _Optional[int] = ..., generation: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., delay_ms: _Optional[int] = ..., not_delivered: _Optional[bool] = ...) -> None: ...

class QueueControl(_message.Message):
    __slots__ = ("queue_id", "generation", "pause", "resume")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    generation: int
    pause: bool
    resume: bool
    def __init__(self, queue_id: _Optional[int] = ..., generation: _Optional[int] = ..., pause: _Optional[bool] = ..., resume: _Optional[bool] = ...) -> None: ...

class ConsumeReply(_message.Message):
    __slots__ = ("opened", "assigned", "revoked", "deliveries", "committed_tokens", "error", "has_left", "epoch", "heartbeat", "stale_assignments", "skipped")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HAS_LEFT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STALE_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    opened: ConsumeOpened
    assigned: _containers.RepeatedCompositeFieldContainer[Assignment]
    revoked: _containers.RepeatedCompositeFieldContainer[Assignment]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    committed_tokens: _containers.RepeatedScalarFieldContainer[int]
    error: Error
    has_left: bool
    epoch: int
    heartbeat: bool
    stale_assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    skipped: _containers.RepeatedCompositeFieldContainer[Skipped]
    def __init__(self, opened: _Optional[_Union[ConsumeOpened, _Mapping]] = ..., assigned: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., revoked: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., committed_tokens: _Optional[_Iterable[int]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., has_left: _Optional[bool] = ..., epoch: _Optional[int] = ..., heartbeat: _Optional[bool] = ..., stale_assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ...) -> None: ...

class ConsumeOpened(_message.Message):
    __slots__ = ("error", "topic_id", "queues", "heartbeat_ms")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    topic_id: int
    queues: int
    heartbeat_ms: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., topic_id: _Optional[int] = ..., queues: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("queue_id", "generation", "next_offset", "seek_number")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEEK_NUMBER_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    generation: int
    next_offset: int
    seek_number: int
    def __init__(self, queue_id: _Optional[int] = ..., generation: _Optional[int] = ..., next_offset: _Optional[int] = ..., seek_number: _Optional[int] = ...) -> None: ...

class Skipped(_message.Message):
    __slots__ = ("queue_id", "first_offset", "end_offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    first_offset: int
    end_offset: int
    def __init__(self, queue_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("queue_id", "generation", "first_offset", "end_offset", "delivery_count", "batch", "redelivered", "chain_segment")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    CHAIN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    generation: int
    first_offset: int
    end_offset: int
    delivery_count: int
    batch: bytes
    redelivered: bool
    chain_segment: int
    def __init__(self, queue_id: _Optional[int] = ..., generation: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., delivery_count: _Optional[int] = ..., batch: _Optional[bytes] = ..., redelivered: _Optional[bool] = ..., chain_segment: _Optional[int] = ...) -> None: ...

class RouteRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class RouteReply(_message.Message):
    __slots__ = ("groups", "topics", "cluster")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupRoute]
    topics: _containers.RepeatedCompositeFieldContainer[TopicRoute]
    cluster: str
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupRoute, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicRoute, _Mapping]]] = ..., cluster: _Optional[str] = ...) -> None: ...

class GroupRoute(_message.Message):
    __slots__ = ("group", "epoch", "mode", "brokers")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    epoch: int
    mode: str
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerRoute]
    def __init__(self, group: _Optional[str] = ..., epoch: _Optional[int] = ..., mode: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[BrokerRoute, _Mapping]]] = ...) -> None: ...

class BrokerRoute(_message.Message):
    __slots__ = ("id", "address", "zone", "role", "permission", "in_sync", "live")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    zone: str
    role: str
    permission: int
    in_sync: bool
    live: bool
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., role: _Optional[str] = ..., permission: _Optional[int] = ..., in_sync: _Optional[bool] = ..., live: _Optional[bool] = ...) -> None: ...

class TopicRoute(_message.Message):
    __slots__ = ("name", "id", "groups", "properties", "ordered")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    groups: _containers.RepeatedCompositeFieldContainer[TopicGroup]
    properties: _containers.ScalarMap[str, str]
    ordered: bool
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[TopicGroup, _Mapping]]] = ..., properties: _Optional[_Mapping[str, str]] = ..., ordered: _Optional[bool] = ...) -> None: ...

class TopicGroup(_message.Message):
    __slots__ = ("group", "weight", "queues", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    group: str
    weight: int
    queues: int
    properties: _containers.ScalarMap[str, str]
    def __init__(self, group: _Optional[str] = ..., weight: _Optional[int] = ..., queues: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...
