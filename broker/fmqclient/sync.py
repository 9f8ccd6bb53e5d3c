"""The client for programs without asyncio: the same, on a loop in a thread of its own.

    with fmqclient.sync.connect("fmq://127.0.0.1:9876") as c:
        c.producer().send("orders", b"v")
        for m in c.consumer("orders", group="billing"):
            m.ack()

Every call waits in the calling thread; any thread may call. `send_nowait` returns a
`concurrent.futures.Future`. Producers and consumers made here are closed with the client.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fmqclient import client as asynchronous
from fmqclient.address import DEFAULT_URL
from fmqclient.admin import Admin as AsyncAdmin
from fmqclient.consumer import Consumer as AsyncConsumer
from fmqclient.message import Message as AsyncMessage
from fmqclient.producer import Headers
from fmqclient.producer import Producer as AsyncProducer
from fmqclient.records import SendResult
from fmqclient.settings import Start
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.routing import Place

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


def connect(url: str = DEFAULT_URL, **options: Any) -> "Client":
    """See `fmqclient.connect`. Use it as `with connect(...) as client`, or close it."""
    return Client(asynchronous.connect(url, **options))


class _Loop:
    """A loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fmq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait; an interrupted wait cancels it."""
        if threading.current_thread() is self._thread or not self._loop.is_running():
            work.close()
            raise InvalidArgument("a sync client cannot be used from its own callbacks, or closed")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run it there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Client:
    """See `fmqclient.Client`."""

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._open: list[Producer | Consumer] = []
        self._loop = _Loop()
        self._closed = False
        try:
            self._loop.run(client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what was made here, then the connections, then the thread."""
        if self._closed:
            return
        self._closed = True
        try:
            for part in reversed(self._open):
                part.close()
            self._loop.run(self._client.close())
        finally:
            self._loop.stop()

    def producer(self, **options: Any) -> "Producer":
        """See `fmqclient.Client.producer`; open at once."""
        self._check()
        producer = Producer(self._loop, self._client.producer(**options))
        self._open.append(producer)
        return producer

    def consumer(self, topic: str, *, group: str, **options: Any) -> "Consumer":
        """See `fmqclient.Client.consumer`; open at once."""
        self._check()
        consumer = Consumer(self._loop, self._client.consumer(topic, group=group, **options))
        self._open.append(consumer)
        return consumer

    def admin(self) -> "Admin":
        """See `fmqclient.Client.admin`."""
        self._check()
        return Admin(self._loop, self._client.admin())

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("this client is closed")


class _Part:
    """What a producer and a consumer have in common."""

    _part: AsyncProducer | AsyncConsumer

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop
        self._closed = False
        loop.run(self._part.__aenter__())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """See the asynchronous `close`."""
        if not self._closed:
            self._closed = True
            self._loop.run(self._part.close())


class Producer(_Part):
    """See `fmqclient.Producer`."""

    def __init__(self, loop: _Loop, producer: AsyncProducer) -> None:
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
        """Send one record and wait until it is stored."""
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
        """Hand over one record; the future tells what became of it."""
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
        """Send many records and wait until all are stored: one hop to the thread for all."""
        return self._loop.run(
            self._producer.send_batch(topic, values, keys=keys, group=group, queue=queue)
        )

    def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        self._loop.run(self._producer.flush())


class Message:
    """See `fmqclient.Message`: the same, with `ack` and `nack` that do not need `await`."""

    __slots__ = ("_consumer", "_message", "key", "offset", "value")

    def __init__(self, consumer: "Consumer", message: AsyncMessage) -> None:
        self._consumer = consumer
        self._message = message
        self.offset = message.offset
        self.value = message.value
        self.key = message.key

    def __getattr__(self, name: str) -> Any:
        if name in _LOOKED_UP:
            return getattr(self._message, name)
        raise AttributeError(name)

    def ack(self) -> None:
        """Done with it; said at the next `fetch`, `commit` or `close`, together with others."""
        self._consumer._acked.append(self._message)

    def nack(self, *, delay_ms: int = 0) -> None:
        """Not done: deliver it again after the delay."""
        self._consumer._loop.run(self._message.nack(delay_ms=delay_ms))

    def __repr__(self) -> str:
        return repr(self._message)


_LOOKED_UP = frozenset(
    ("topic", "group", "queue", "headers", "tag", "store_ms", "born_ms", "delivery_count")
)


class Consumer(_Part):
    """See `fmqclient.Consumer`."""

    _AT_ONCE = 256

    def __init__(self, loop: _Loop, consumer: AsyncConsumer) -> None:
        self._part = self._consumer = consumer
        self._acked: deque[AsyncMessage] = deque()
        super().__init__(loop)

    def __iter__(self) -> Iterator[Message]:
        while not self._closed:
            yield from self.fetch(self._AT_ONCE, 0.5)

    def fetch(self, max_messages: int = 500, timeout: float | None = None) -> list[Message]:
        """Up to so many messages; waits for the first for `timeout` seconds (None: for ever)."""

        async def work() -> list[AsyncMessage]:
            self._say_acks()
            return await self._consumer.fetch(max_messages, timeout)

        return [Message(self, m) for m in self._loop.run(work())]

    def commit(self, timeout_s: float = 30.0) -> None:
        """Wait until every ack so far is stored."""

        async def work() -> None:
            self._say_acks()
            await self._consumer.commit(timeout_s)

        self._loop.run(work())

    def seek(
        self,
        to: Start | None = None,
        *,
        offset: int | None = None,
        queues: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        """Move the whole consumer group."""
        self._loop.run(self._consumer.seek(to, offset=offset, queues=queues))

    def pause(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Get nothing more of these queues, but keep them."""

        async def work() -> None:
            self._consumer.pause(queues)

        self._loop.run(work())

    def resume(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Go on with them."""

        async def work() -> None:
            self._consumer.resume(queues)

        self._loop.run(work())

    @property
    def assignment(self) -> list[Place]:
        """The (group, queue) pairs that are ours now."""
        return self._consumer.assignment

    def close(self) -> None:
        """Say the acks, leave."""

        async def work() -> None:
            self._say_acks()

        if not self._closed:
            self._loop.run(work())
        super().close()

    def _say_acks(self) -> None:
        while self._acked:
            self._acked.popleft().ack_now()


class Admin:
    """See `fmqclient.admin.Admin`: every method of it, waiting."""

    def __init__(self, loop: _Loop, admin: AsyncAdmin) -> None:
        self._loop = loop
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._admin, name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(method):
            raise AttributeError(name)

        def call(*args: Any, **options: Any) -> Any:
            return self._loop.run(method(*args, **options))

        call.__name__, call.__doc__ = name, method.__doc__
        return call


__all__ = ["Admin", "Client", "Consumer", "Message", "Producer", "connect"]
