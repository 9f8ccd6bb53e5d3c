"""The client for programs without asyncio: the public names of `fmqclient.sync`."""

from fmqclient.sync.admin import Admin, OrderedAdmin
from fmqclient.sync.client import Client, Producer, connect
from fmqclient.sync.consumer import Consumer, Message
from fmqclient.sync.ordered import OrderedProducer

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Message",
    "OrderedAdmin",
    "OrderedProducer",
    "Producer",
    "connect",
]
