"""The FMQ client library: `connect`, then open a producer, a consumer or an admin.

    async with fmqclient.connect("fmq://127.0.0.1:9876") as c:
        async with c.producer() as p:
            result = await p.send("orders", b"v", key=b"42")
        async with c.consumer("orders", group="billing") as sub:
            async for m in sub:
                await m.ack()

`fmqclient.sync.connect` is the same for programs without asyncio. `settings.py` has every setting;
`examples/` in the repository has whole programs. Every error raised on purpose is an `FmqError`.

The admin, the ordered producer and `sync` are imported on first use: most programs need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fmqclient.arguments import Headers
from fmqclient.client import Client, connect
from fmqclient.consumer.consumer import Consumer
from fmqclient.consumer.message import Message
from fmqclient.producer.batches import SendResult
from fmqclient.producer.producer import Producer
from fmqclient.settings import Start
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
    SenderFenced,
    StaleAssignment,
    StorageFull,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
    Unsupported,
)
from fmqcore.ids import Permission
from fmqcore.zk.topic import TopicGroup

if TYPE_CHECKING:
    from fmqclient import sync
    from fmqclient.admin.client import Admin
    from fmqclient.admin.infos import (
        BrokerStatus,
        GroupInfo,
        OrderedTopicStatus,
        QueueOffsets,
        ReplicaStatus,
        TopicInfo,
    )
    from fmqclient.admin.ordered import OrderedAdmin
    from fmqclient.producer.ordered import OrderedProducer
    from fmqclient.producer.ordered_records import LastRecord, OrderedResult

_MODULES_OF_FIRST_USE: Final = {
    "Admin": "fmqclient.admin.client",
    "BrokerStatus": "fmqclient.admin.infos",
    "GroupInfo": "fmqclient.admin.infos",
    "LastRecord": "fmqclient.producer.ordered_records",
    "OrderedAdmin": "fmqclient.admin.ordered",
    "OrderedProducer": "fmqclient.producer.ordered",
    "OrderedResult": "fmqclient.producer.ordered_records",
    "OrderedTopicStatus": "fmqclient.admin.infos",
    "QueueOffsets": "fmqclient.admin.infos",
    "ReplicaStatus": "fmqclient.admin.infos",
    "TopicInfo": "fmqclient.admin.infos",
}


if not TYPE_CHECKING:  # a type checker would accept any name from a module with `__getattr__`

    def __getattr__(name: str) -> Any:
        """Import the part that `name` belongs to, on first use."""
        if name == "sync":
            return import_module("fmqclient.sync")
        if name not in _MODULES_OF_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES_OF_FIRST_USE[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Admin",
    "AlreadyExists",
    "BadCrc",
    "BrokerStatus",
    "Client",
    "Consumer",
    "DeliveryUnknown",
    "ErrorCode",
    "FmqError",
    "GroupInfo",
    "Headers",
    "InvalidArgument",
    "LastRecord",
    "Malformed",
    "Message",
    "NoPermission",
    "NotEnoughReplicas",
    "NotFound",
    "OrderedAdmin",
    "OrderedProducer",
    "OrderedResult",
    "OrderedTopicStatus",
    "OutOfSequence",
    "Overloaded",
    "Permission",
    "Producer",
    "ProducerFenced",
    "QueueOffsets",
    "ReplicaStatus",
    "SendResult",
    "SenderFenced",
    "StaleAssignment",
    "Start",
    "StorageFull",
    "TooLarge",
    "TopicGroup",
    "TopicInfo",
    "Unavailable",
    "UnknownQueue",
    "UnknownTopic",
    "Unsupported",
    "connect",
    "sync",
]
