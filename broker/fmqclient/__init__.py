"""The FMQ client library: `connect`, then open a producer, a consumer or an admin.

    async with fmqclient.connect("fmq://127.0.0.1:9876") as c:
        async with c.producer() as p:
            result = await p.send("orders", b"v", key=b"42")
        async with c.consumer("orders", group="billing") as sub:
            async for m in sub:
                await m.ack()

`fmqclient.sync.connect` is the same for programs without asyncio. README.md describes the
guarantees, `settings.py` every setting. Every error raised on purpose is an `FmqError`.
"""

from fmqclient import sync
from fmqclient.admin.infos import BrokerStatus, GroupInfo, QueueOffsets, ReplicaStatus, TopicInfo
from fmqclient.client import Client, connect
from fmqclient.consumer.consumer import Consumer
from fmqclient.consumer.message import Message
from fmqclient.producer.batches import SendResult
from fmqclient.producer.producer import Producer
from fmqcore.errors import (
    AlreadyExists,
    BadCrc,
    DeliveryUnknown,
    ErrorCode,
    FmqError,
    InvalidArgument,
    Malformed,
    NoPermission,
    NotEnoughReplicas,
    NotFound,
    OutOfSequence,
    Overloaded,
    ProducerFenced,
    StaleAssignment,
    StorageFull,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
    Unsupported,
)

__all__ = [
    "AlreadyExists",
    "BadCrc",
    "BrokerStatus",
    "Client",
    "Consumer",
    "DeliveryUnknown",
    "ErrorCode",
    "FmqError",
    "GroupInfo",
    "InvalidArgument",
    "Malformed",
    "Message",
    "NoPermission",
    "NotEnoughReplicas",
    "NotFound",
    "OutOfSequence",
    "Overloaded",
    "Producer",
    "ProducerFenced",
    "QueueOffsets",
    "ReplicaStatus",
    "SendResult",
    "StaleAssignment",
    "StorageFull",
    "TooLarge",
    "TopicInfo",
    "Unavailable",
    "UnknownQueue",
    "UnknownTopic",
    "Unsupported",
    "connect",
    "sync",
]
