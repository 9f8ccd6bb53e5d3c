"""The client for programs without asyncio: the same, on a loop in a thread of its own.

    with fmqclient.sync.connect("fmq://127.0.0.1:9876") as c:
        c.producer().send("orders", b"v")
        for m in c.consumer("orders", group="billing"):
            m.ack()

Every call waits in the calling thread; any thread may call. `send_nowait` returns a
`concurrent.futures.Future`. Producers and consumers made here are closed with the client.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fmqclient import client as asynchronous
from fmqclient.address import DEFAULT_URL
from fmqclient.arguments import Headers, as_they_are
from fmqclient.consumer import Consumer as AsyncConsumer
from fmqclient.message import Message as AsyncMessage
from fmqclient.producer import Producer as AsyncProducer
from fmqclient.records import SendResult
from fmqclient.settings import Start
from fmqclient.sync_admin import Admin
from fmqclient.sync_loop import LoopThread
from fmqcore.errors import Unavailable
from fmqcore.routing import Place

if TYPE_CHECKING:
    from concurrent.futures import Future


def connect(url: str = DEFAULT_URL, **options: Any) -> "Client":
    """See `fmqclient.connect`. Use it as `with connect(...) as client`, or close it."""
    return Client(asynchronous.connect(url, **options))


class Client:
    """See `fmqclient.Client`."""

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._open: list[Producer | Consumer] = []
        self._loop = LoopThread()
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
        if error is not None:
            for part in self._open:
                part._failed()
        self.close()

    def close(self) -> None:
        """Close what was made here, then the connections, then the thread."""
        if self._closed:
            return
        self._closed = True
        try:
            for part in list(reversed(self._open)):
                part.close()
            self._loop.run(self._client.close())
        finally:
            self._loop.stop()

    def producer(self, **options: Any) -> "Producer":
        """See `fmqclient.Client.producer`; open at once."""
        self._check()
        producer = Producer(self._loop, self._client.producer(**options))
        self._keep(producer)
        return producer

    def consumer(self, topic: str, *, group: str, **options: Any) -> "Consumer":
        """See `fmqclient.Client.consumer`; open at once."""
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


class _Part:
    """What a producer and a consumer have in common."""

    _part: AsyncProducer | AsyncConsumer

    def __init__(self, loop: LoopThread) -> None:
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
        if error is not None:
            self._failed()
        self.close()

    @property
    def closed(self) -> bool:
        """It was, or is about to be."""
        return self._closed

    @property
    def connected(self) -> dict[str, str]:
        """Per group: "" while its link or session is open, else why it is not."""
        return self._part.connected

    def _failed(self) -> None:
        """The program goes on from here with an error."""

    def close(self) -> None:
        """See the asynchronous `close`."""
        if not self._closed:
            self._closed = True
            self._loop.run(self._part.close())


class Producer(_Part):
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
        """Hand over one record; the future tells what became of it.

        Never `Overloaded`: without room it waits in line, in memory, behind those before it.
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
        """Send many records and wait until all are stored: one hop to the thread for all."""
        return self._loop.run(
            self._producer.send_batch(topic, values, keys=keys, group=group, queue=queue)
        )

    @property
    def outstanding(self) -> int:
        """Records without an outcome."""
        return self._producer.outstanding

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
        """Done with it; said within a moment, together with others."""
        self._consumer._ack(self._message)

    def nack(self, *, delay_ms: int = 0) -> None:
        """Not done: deliver it again after the delay."""
        self._consumer._given.pop(self._message, None)
        self._consumer._loop.run(self._message.nack(delay_ms=delay_ms))

    def __repr__(self) -> str:
        return repr(self._message)


_LOOKED_UP = frozenset(
    ("topic", "group", "queue", "headers", "tag", "store_ms", "born_ms", "delivery_count")
)


class Consumer(_Part):
    """See `fmqclient.Consumer`."""

    _AT_ONCE = 256
    _ACKS_WITHIN_S = 0.05

    def __init__(self, loop: LoopThread, consumer: AsyncConsumer, *, auto: bool) -> None:
        self._part = self._consumer = consumer
        self._auto = auto
        self._given: dict[AsyncMessage, None] = {}  # ack="auto": given out, not yet acked
        self._acked: deque[AsyncMessage] = deque()
        self._saying = False  # they will be said in a moment
        self._ahead: deque[Message] = deque()  # fetched, and not yet given to a `for`
        super().__init__(loop)

    def __iter__(self) -> Iterator[Message]:
        while not self._closed:
            if not self._ahead:
                self._ack_given()
                self._ahead.extend(self._fetch(self._AT_ONCE, 0.5))
            yield from self._give(1)

    def fetch(self, max_messages: int = 500, timeout: float | None = None) -> list[Message]:
        """Up to so many messages; waits for the first for `timeout` seconds (None: for ever)."""
        if not self._ahead:  # else: of a `for` that was left
            self._ack_given()
            self._ahead.extend(self._fetch(max_messages, timeout))
        return self._give(max_messages)

    def _give(self, count: int) -> list[Message]:
        self._ack_given()
        found: list[Message] = []
        with suppress(IndexError):  # another thread may take the last
            while len(found) < count:
                found.append(self._ahead.popleft())
        if self._auto:
            self._given.update(dict.fromkeys(m._message for m in found))
        return found

    def _fetch(self, max_messages: int, timeout: float | None) -> list[Message]:
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
        self._take_ahead(queues)

    def _take_ahead(self, queues: Sequence[tuple[str, int]] | None) -> list[Message]:
        """Take back what was fetched ahead of these queues."""
        wanted = None if queues is None else set(queues)
        found: list[Message] = []
        with suppress(IndexError):  # another thread may take the last
            for _ in range(len(self._ahead)):
                message = self._ahead.popleft()
                ours = wanted is None or (message.group, message.queue) in wanted
                (found if ours else self._ahead).append(message)
        return found

    def pause(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Get nothing more of these queues, but keep them."""

        async def work() -> None:
            self._consumer.pause(queues)
            for message in self._take_ahead(queues):
                await message._message.nack()

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

    @property
    def skipped(self) -> dict[Place, int]:
        """See `fmqclient.consumer.Consumer`."""
        return self._consumer.skipped

    def close(self) -> None:
        """Say the acks, leave."""

        async def work() -> None:
            self._say_acks()

        if not self._closed:
            self._ack_given()
            self._loop.run(work())
        super().close()

    def _failed(self) -> None:
        self._given.clear()

    def _ack_given(self) -> None:
        given, self._given = self._given, {}
        for message in given:
            self._ack(message)

    def _ack(self, message: AsyncMessage) -> None:
        """Not at the next fetch only: that may be hours of work away."""
        self._acked.append(message)
        if not self._saying:  # not by what is there: another thread may have added to it since
            self._saying = True
            self._loop.later(self._ACKS_WITHIN_S, self._say_acks)

    def _say_acks(self) -> None:
        self._saying = False  # before it looks: what comes now is seen, or said by a later call
        while self._acked:
            self._acked.popleft().ack_now()


__all__ = ["Admin", "Client", "Consumer", "Message", "Producer", "connect"]
