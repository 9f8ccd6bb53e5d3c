"""The client for programs without asyncio: the public names of `fmqclient.sync`."""

from fmqclient.sync.client import Client, Consumer, Message, Producer, connect

__all__ = ["Client", "Consumer", "Message", "Producer", "connect"]
