"""The client for programs without asyncio: the same API, on a loop in its own thread.

    with fmqclient.sync.connect("fmq://127.0.0.1:9876") as c:
        c.producer().send("orders", b"v")
        for m in c.consumer("orders", group="billing"):
            m.ack()

Every call waits in the calling thread; any thread may call. `send_nowait` returns a
`concurrent.futures.Future`. Producers and consumers opened here are closed with the client.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fmqclient import client as asynchronous
from fmqclient.address import DEFAULT_URL
from fmqclient.arguments import Headers, as_they_are
from fmqclient.producer.batches import SendResult
from fmqclient.producer.producer import Producer as AsyncProducer
from fmqclient.sync.admin import Admin
from fmqclient.sync.base import Part
from fmqclient.sync.consumer import Consumer, Message
from fmqclient.sync.loop_thread import LoopThread
from fmqcore.errors import Unavailable

if TYPE_CHECKING:
    from concurrent.futures import Future


def connect(url: str = DEFAULT_URL, **options: Any) -> "Client":
    """See `fmqclient.connect`. Use it as `with connect(...) as client`, or call `close`."""
    return Client(asynchronous.connect(url, **options))


class Client:
    """See `fmqclient.Client`."""

    _closed = True

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._open: list[Producer | Consumer] = []
        self._loop = LoopThread()
        try:
            self._loop.run(client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        if not self._closed and not self._loop.gone:  # gone: it is the process's that forked us
            self._closed = True
            for part in self._open:
                part._part.warn_if_unclosed()
            self._client.warn_if_unclosed()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for part in self._open:
                part._failed()
        self.close()

    def close(self) -> None:
        """Close the producers and consumers, then the connections, then the thread."""
        if self._closed:
            return
        self._loop.check()  # before it counts as closed
        self._closed = True
        if self._loop.gone:
            return  # a forked process: what is open is the other one's
        try:
            for part in list(reversed(self._open)):
                part.close()
            self._loop.run(self._client.close())
        finally:
            self._loop.stop()

    def producer(self, **options: Any) -> "Producer":
        """See `fmqclient.Client.producer`; the producer is opened at once."""
        self._check()
        producer = Producer(self._loop, self._client.producer(**options))
        self._keep(producer)
        return producer

    def consumer(self, topic: str, *, group: str, **options: Any) -> "Consumer":
        """See `fmqclient.Client.consumer`; the consumer is opened at once."""
        self._check()
        auto = options.get("ack") == "auto"
        if auto:  # said here: what is fetched ahead was not given to the program yet
            options["ack"] = "manual"
        made = self._client.consumer(topic, group=group, **options)
        consumer = Consumer(self._loop, made, auto=auto)
        self._keep(consumer)
        return consumer

    def _keep(self, part: "Producer | Consumer") -> None:
        for old in [old for old in self._open if old.closed]:
            with suppress(ValueError):  # another thread was quicker
                self._open.remove(old)
        self._open.append(part)

    def admin(self) -> Admin:
        """See `fmqclient.Client.admin`."""
        self._check()
        return Admin(self._loop, self._client.admin())

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("this client is closed")


class Producer(Part):
    """See `fmqclient.Producer`."""

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._part = self._producer = producer
        super().__init__(loop)

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        group: str | None = None,
        queue: int | None = None,
    ) -> SendResult:
        """Send one record, wait until it is stored, and return where."""
        return self._loop.run(
            self._producer.send(
                topic, value, key=key, headers=headers, tag=tag, group=group, queue=queue
            )
        )

    def send_nowait(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        group: str | None = None,
        queue: int | None = None,
    ) -> "Future[SendResult]":
        """Hand over one record; the returned future resolves with its outcome.

        It never raises `Overloaded`: without room, the record waits in memory behind earlier ones.
        """
        value, key, headers, tag = as_they_are(value, key, headers, tag)
        return self._loop.submit(
            self._producer.send(
                topic, value, key=key, headers=headers, tag=tag, group=group, queue=queue
            )
        )

    def send_batch(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        group: str | None = None,
        queue: int | None = None,
    ) -> list[SendResult]:
        """Send many records and wait until all are stored, in one hop to the loop's thread."""
        return self._loop.run(
            self._producer.send_batch(topic, values, keys=keys, group=group, queue=queue)
        )

    @property
    def outstanding(self) -> int:
        """Number of records without an outcome yet."""
        return self._producer.outstanding

    def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        self._loop.run(self._producer.flush())

    async def _end(self) -> None:
        """Send also the records that wait for room, within `close_timeout_s`, then close."""
        until_s = asyncio.get_running_loop().time() + self._producer.close_timeout_s
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._producer.flush()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._producer.close()


__all__ = ["Admin", "Client", "Consumer", "Message", "Producer", "connect"]
