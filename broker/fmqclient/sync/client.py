"""The client for programs without asyncio: the same API, on a loop in its own thread.

    with fmqclient.sync.connect("fmq://127.0.0.1:9876") as c:
        c.producer().send("orders", b"v")
        for m in c.consumer("orders", group="billing"):
            m.ack()

Every call waits in the calling thread; any thread may call. `send_nowait` returns a
`concurrent.futures.Future`. Producers and consumers opened here are closed with the client.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fmqclient import client as asynchronous
from fmqclient.address import DEFAULT_URL
from fmqclient.arguments import Headers, as_they_are
from fmqclient.producer.batches import SendResult
from fmqclient.producer.producer import Producer as AsyncProducer
from fmqclient.settings import MIB, Start
from fmqclient.sync.admin import Admin
from fmqclient.sync.base import Part
from fmqclient.sync.consumer import Consumer
from fmqclient.sync.loop_thread import LoopThread
from fmqclient.sync.ordered import OrderedProducer
from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.errors import Unavailable
from fmqport.clock import Clock
from fmqport.transport import Transport

if TYPE_CHECKING:
    from concurrent.futures import Future


def connect(
    url: str = DEFAULT_URL,
    *,
    timeout_s: float = 10.0,
    name: str = "",
    transport: Transport | None = None,
    clock: Clock | None = None,
) -> "Client":
    """Return a client of the cluster at `url` (`fmq://host:port[,host:port...]`), connected.

    Use it as `with connect(...) as client`, or call `close`. Raises `Unavailable` if no broker
    answers within `timeout_s` seconds. Brokers show `name` in their lists of clients.
    """
    return Client(
        asynchronous.connect(url, timeout_s=timeout_s, name=name, transport=transport, clock=clock)
    )


class Client:
    """A client of one cluster: opens producers, consumers and an admin."""

    _closed = True

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._open: list[Producer | OrderedProducer | Consumer] = []
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
        if not self._closed and not self._loop.gone:  # gone: the loop belongs to the parent process
            self._closed = True
            for part in self._open:
                part._part._warn_if_unclosed()
            self._client._warn_if_unclosed()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            for part in self._open:
                part._left()
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

    def producer(
        self,
        *,
        acks: str = "replicated",
        linger_ms: float = 0,
        max_outstanding_bytes: int = 32 * MIB,
        max_outstanding_records: int = 100_000,
        max_batch_bytes: int = MAX_PAYLOAD,
        max_batch_records: int = MAX_RECORDS,
        pipeline: int = 4,
        delivery_timeout_s: float = 120.0,
        close_timeout_s: float = 30.0,
        born_time: bool = False,
    ) -> "Producer":
        """Return a new producer, opened; `ProducerSettings` documents each setting."""
        self._check()
        made = self._client.producer(
            acks=acks,
            linger_ms=linger_ms,
            max_outstanding_bytes=max_outstanding_bytes,
            max_outstanding_records=max_outstanding_records,
            max_batch_bytes=max_batch_bytes,
            max_batch_records=max_batch_records,
            pipeline=pipeline,
            delivery_timeout_s=delivery_timeout_s,
            close_timeout_s=close_timeout_s,
            born_time=born_time,
        )
        producer = Producer(self._loop, made)
        self._keep(producer)
        return producer

    def ordered_producer(
        self,
        topic: str,
        *,
        name: str = "sender",
        accept_unknown_end: bool = False,
        on_active: Callable[[], None] | None = None,
        linger_ms: float = 0,
        max_outstanding_bytes: int = 32 * MIB,
        max_outstanding_records: int = 100_000,
        max_batch_bytes: int = MAX_PAYLOAD,
        max_batch_records: int = MAX_RECORDS,
        pipeline: int = 4,
        delivery_timeout_s: float = 120.0,
        close_timeout_s: float = 30.0,
        born_time: bool = False,
    ) -> OrderedProducer:
        """Return a sender to an ordered topic, opened: this waits for the topic's one role.

        `name`: shown by `fmq ordered status`. `accept_unknown_end`: go on after the last record
        that is known, although the end of an earlier segment is not. `on_active` is called in
        the client's own thread, each time the role is given. The rest: see `ProducerSettings`.
        """
        self._check()
        made = self._client.ordered_producer(
            topic,
            name=name,
            accept_unknown_end=accept_unknown_end,
            on_active=on_active,
            linger_ms=linger_ms,
            max_outstanding_bytes=max_outstanding_bytes,
            max_outstanding_records=max_outstanding_records,
            max_batch_bytes=max_batch_bytes,
            max_batch_records=max_batch_records,
            pipeline=pipeline,
            delivery_timeout_s=delivery_timeout_s,
            close_timeout_s=close_timeout_s,
            born_time=born_time,
        )
        producer = OrderedProducer(self._loop, made)
        self._keep(producer)
        return producer

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        start: Start = "earliest",
        ack: str = "manual",
        buffer_bytes: int = 4 * MIB,
        prefetch: int = 10_000,
        ack_timeout_s: float = 0,
        close_timeout_s: float = 5.0,
        temporary: bool = False,
    ) -> "Consumer":
        """Return a new member of a consumer group, opened; see `ConsumerSettings`.

        `start` applies where the group has no committed offset yet: "earliest", "latest", a
        `datetime` or milliseconds since 1970 UTC.
        """
        self._check()
        auto = ack == "auto"
        made = self._client.consumer(
            topic,
            group=group,
            start=start,
            # "auto" is done by `sync.Consumer`: a message fetched ahead is not yet delivered.
            ack="manual" if auto else ack,
            buffer_bytes=buffer_bytes,
            prefetch=prefetch,
            ack_timeout_s=ack_timeout_s,
            close_timeout_s=close_timeout_s,
            temporary=temporary,
        )
        consumer = Consumer(self._loop, made, auto=auto)
        self._keep(consumer)
        return consumer

    def _keep(self, part: "Producer | OrderedProducer | Consumer") -> None:
        for old in [old for old in self._open if old.closed]:
            with suppress(ValueError):  # another thread was quicker
                self._open.remove(old)
        self._open.append(part)

    def admin(self) -> Admin:
        """Return an admin: topics, consumer groups, offsets, status."""
        self._check()
        return Admin(self._loop, self._client.admin())

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("this client is closed")


class Producer(Part):
    """Sends records to topics. Use it as `with client.producer(...) as p`."""

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
        until_s = asyncio.get_running_loop().time() + self._producer._settings.close_timeout_s
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._producer.flush()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._producer.close()
