from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    APPEND_FROM: _ClassVar[Action]
    TRUNCATE_TO: _ClassVar[Action]
    RESET_TO: _ClassVar[Action]
    SEND_SUFFIX: _ClassVar[Action]
    REJECT: _ClassVar[Action]
ACTION_UNSPECIFIED: Action
APPEND_FROM: Action
TRUNCATE_TO: Action
RESET_TO: Action
SEND_SUFFIX: Action
REJECT: Action

class SlaveMessage(_message.Message):
    __slots__ = ("hello", "ack", "suffix")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ack: Ack
    suffix: Suffix
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., suffix: _Optional[_Union[Suffix, _Mapping]] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start: int
    def __init__(self, epoch: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("cluster", "group", "broker", "incarnation", "zone", "epochs", "journal_start", "end", "durable_end", "clean", "commit_end", "is_reader", "last_header_crc", "tail_lost", "emptied", "connection_number")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DURABLE_END_FIELD_NUMBER: _ClassVar[int]
    CLEAN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    IS_READER_FIELD_NUMBER: _ClassVar[int]
    LAST_HEADER_CRC_FIELD_NUMBER: _ClassVar[int]
    TAIL_LOST_FIELD_NUMBER: _ClassVar[int]
    EMPTIED_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    group: str
    broker: str
    incarnation: str
    zone: str
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    journal_start: int
    end: int
    durable_end: int
    clean: bool
    commit_end: int
    is_reader: bool
    last_header_crc: int
    tail_lost: bool
    emptied: bool
    connection_number: int
    def __init__(self, cluster: _Optional[str] = ..., group: _Optional[str] = ..., broker: _Optional[str] = ..., incarnation: _Optional[str] = ..., zone: _Optional[str] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., journal_start: _Optional[int] = ..., end: _Optional[int] = ..., durable_end: _Optional[int] = ..., clean: _Optional[bool] = ..., commit_end: _Optional[int] = ..., is_reader: _Optional[bool] = ..., last_header_crc: _Optional[int] = ..., tail_lost: _Optional[bool] = ..., emptied: _Optional[bool] = ..., connection_number: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("action", "position", "epochs", "reason", "epoch", "master", "incarnation")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    action: Action
    position: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    reason: str
    epoch: int
    master: str
    incarnation: str
    def __init__(self, action: _Optional[_Union[Action, str]] = ..., position: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., reason: _Optional[str] = ..., epoch: _Optional[int] = ..., master: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("epoch", "position", "batches")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    position: int
    batches: bytes
    def __init__(self, epoch: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("received_end", "durable_end", "credit_bytes", "grant_ms", "echo_ms", "epoch", "wall_ms")
    RECEIVED_END_FIELD_NUMBER: _ClassVar[int]
    DURABLE_END_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GRANT_MS_FIELD_NUMBER: _ClassVar[int]
    ECHO_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    received_end: int
    durable_end: int
    credit_bytes: int
    grant_ms: int
    echo_ms: int
    epoch: int
    wall_ms: int
    def __init__(self, received_end: _Optional[int] = ..., durable_end: _Optional[int] = ..., credit_bytes: _Optional[int] = ..., grant_ms: _Optional[int] = ..., echo_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., wall_ms: _Optional[int] = ...) -> None: ...

class Suffix(_message.Message):
    __slots__ = ("position", "batches", "last")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    position: int
    batches: bytes
    last: bool
    def __init__(self, position: _Optional[int] = ..., batches: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class MasterMessage(_message.Message):
    __slots__ = ("welcome", "append", "commit_end", "sent_ms", "epoch", "in_sync", "end", "keep_from", "clock_ahead_ms")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    SENT_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    KEEP_FROM_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    append: Append
    commit_end: int
    sent_ms: int
    epoch: int
    in_sync: bool
    end: int
    keep_from: int
    clock_ahead_ms: int
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., append: _Optional[_Union[Append, _Mapping]] = ..., commit_end: _Optional[int] = ..., sent_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., in_sync: _Optional[bool] = ..., end: _Optional[int] = ..., keep_from: _Optional[int] = ..., clock_ahead_ms: _Optional[int] = ...) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("group", "epoch", "reader", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    epoch: int
    reader: str
    offsets: bytes
    def __init__(self, group: _Optional[str] = ..., epoch: _Optional[int] = ..., reader: _Optional[str] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class HandOverReply(_message.Message):
    __slots__ = ("installed", "reason", "epoch")
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    installed: bool
    reason: str
    epoch: int
    def __init__(self, installed: _Optional[bool] = ..., reason: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class GroupEndsRequest(_message.Message):
    __slots__ = ("topic", "topic_id", "offsets")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    offsets: _containers.ScalarMap[int, int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., offsets: _Optional[_Mapping[int, int]] = ...) -> None: ...

class GroupEndsReply(_message.Message):
    __slots__ = ("takes_writes", "read_only", "members", "missing", "ends", "full", "batches")
    class BatchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    TAKES_WRITES_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    takes_writes: bool
    read_only: bool
    members: int
    missing: _containers.RepeatedScalarFieldContainer[str]
    ends: _containers.RepeatedScalarFieldContainer[int]
    full: bool
    batches: _containers.ScalarMap[int, bytes]
    def __init__(self, takes_writes: _Optional[bool] = ..., read_only: _Optional[bool] = ..., members: _Optional[int] = ..., missing: _Optional[_Iterable[str]] = ..., ends: _Optional[_Iterable[int]] = ..., full: _Optional[bool] = ..., batches: _Optional[_Mapping[int, bytes]] = ...) -> None: ...

class ChainCopiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChainCopiesReply(_message.Message):
    __slots__ = ("segments",)
    class SegmentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.ScalarMap[int, int]
    def __init__(self, segments: _Optional[_Mapping[int, int]] = ...) -> None: ...
