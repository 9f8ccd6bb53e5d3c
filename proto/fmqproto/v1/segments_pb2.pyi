from fmqproto.v1 import client_pb2 as _client_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SegmentsRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: int
    def __init__(self, since: _Optional[int] = ...) -> None: ...

class SegmentsReply(_message.Message):
    __slots__ = ("error", "cluster", "group", "broker", "journal_start", "end", "segments", "stored_end", "withheld_reason")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    STORED_END_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_REASON_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    cluster: str
    group: str
    broker: str
    journal_start: int
    end: int
    segments: _containers.RepeatedCompositeFieldContainer[StoredSegment]
    stored_end: int
    withheld_reason: str
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., cluster: _Optional[str] = ..., group: _Optional[str] = ..., broker: _Optional[str] = ..., journal_start: _Optional[int] = ..., end: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[StoredSegment, _Mapping]]] = ..., stored_end: _Optional[int] = ..., withheld_reason: _Optional[str] = ...) -> None: ...

class StoredSegment(_message.Message):
    __slots__ = ("base", "end", "sealed")
    BASE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    base: int
    end: int
    sealed: bool
    def __init__(self, base: _Optional[int] = ..., end: _Optional[int] = ..., sealed: _Optional[bool] = ...) -> None: ...

class SegmentRead(_message.Message):
    __slots__ = ("base", "at", "length", "index")
    BASE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    base: int
    at: int
    length: int
    index: bool
    def __init__(self, base: _Optional[int] = ..., at: _Optional[int] = ..., length: _Optional[int] = ..., index: _Optional[bool] = ...) -> None: ...

class SegmentPart(_message.Message):
    __slots__ = ("error", "data")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    error: _client_pb2.Error
    data: bytes
    def __init__(self, error: _Optional[_Union[_client_pb2.Error, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...
