"""The producer: the API that a program calls to send records.

`producer/accumulator.py` decides where records go, `producer/sender.py` sends them, and
`producer/queue_buffer.py` has the rules of order and of retries.

    send_nowait → buffer of the key → (the loop turns) → one message per group → acks → futures

A future ends with a `SendResult` only when the requested acknowledgement policy held. It ends with
`DeliveryUnknown` when that cannot be known within `delivery_timeout_s`; every other error means
that the record was not stored. The client retries idempotently: nothing is stored twice.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Final

from fmqclient.arguments import (
    Headers,
    as_bytes,
    as_headers,
    as_they_are,
    check_batch,
    check_place,
)
from fmqclient.forgotten import MustBeClosed
from fmqclient.net.connections import Connections
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import CANCELLED, MainTask, all_done, all_results
from fmqclient.producer.accumulator import Accumulator
from fmqclient.producer.batches import RECORD_OVERHEAD, Record, SendResult
from fmqclient.producer.buffer_waiters import BufferWaiters
from fmqclient.producer.sender import Sender
from fmqclient.producer.topic_buffers import Topic
from fmqclient.producer.topics import KnownTopics
from fmqclient.settings import ProducerSettings
from fmqcore.batch.header import MAX_PAYLOAD
from fmqcore.errors import (
    Overloaded,
    TooLarge,
    Unavailable,
)
from fmqcore.ids import GroupName
from fmqcore.names import require_name
from fmqport.clock import Clock

_log = logging.getLogger("fmqclient")
_MAX_RECORD: Final = MAX_PAYLOAD - 64
"""Maximum size of one record in bytes, its key and headers included."""


class Producer(MustBeClosed):
    """Sends records to topics. Use it as `async with client.producer(...) as p`."""

    def __init__(
        self,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        settings: ProducerSettings,
        watch: LoopWatch | None = None,
    ) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._settings = settings
        self._watch = watch or LoopWatch(clock)
        self._waiters: BufferWaiters[asyncio.Future[SendResult]] = BufferWaiters()
        self._accumulator = Accumulator(settings, clock, self._new_sender, self._waiters.admit_soon)
        self._senders: dict[GroupName, Sender] = {}
        self._busy = asyncio.Event()  # something is outstanding
        self._tasks: asyncio.TaskGroup | None = None
        self._main = MainTask(self._ended)
        self._topics = KnownTopics(self._accumulator, routes, clock, settings, self._begin)
        self._number = 0  # of records handed in
        self._named: dict[str, None] = {}  # topics, for messages about this producer
        self._closed = ""  # why nothing more is taken
        self._failed = False

    # ---- life

    async def __aenter__(self) -> "Producer":
        self._open_once()
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        await self._main.open(self._run(ready), ready)
        if self._failed:
            raise Unavailable(self._closed)
        self._unclosed = True
        return self

    def _described(self) -> str:
        return f"a producer to {', '.join(map(repr, self._named)) or 'no topic yet'}"

    async def close(self) -> None:
        """Send what is pending, for at most `close_timeout_s` seconds, then fail what is left."""
        self._unclosed = False
        if not self._main.is_open:
            return
        self._closed = self._closed or "this producer is closed"
        self._waiters.admit_soon()
        try:
            await self._main.close(self.flush, self._settings.close_timeout_s)
        finally:
            self._warn_of_pending("closed")
            self._accumulator.close()

    def _warn_of_pending(self, how: str) -> None:
        if pending := self._accumulator.outstanding_records:
            _log.warning(
                "a producer was %s with %d records pending: each ends with an error, "
                "DeliveryUnknown if it may be stored; flush() before, or raise close_timeout_s",
                how,
                pending,
            )

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        forget = self._routes.on_change(self._topics.apply_routes)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                ready.set_result(None)
                await self._tick()
        finally:
            self._tasks = None
            forget()

    def _ended(self, error: BaseException | None) -> None:
        self._fail_part(CANCELLED if error is None else repr(error))

    def _fail_part(self, reason: str) -> None:
        """Fail every pending record and accept no more."""
        if self._closed:
            return
        self._failed = True
        self._closed = f"this producer has failed: {reason}"
        self._main.cancel()
        self._warn_of_pending("lost")
        self._accumulator.close()
        self._waiters.admit_soon()

    async def _tick(self) -> None:
        """Expire deadlines and resume what was postponed."""
        ticks = self._watch.ticks()
        while True:
            await self._busy.wait()
            now_ms, may_expire = await ticks.wait()
            if may_expire:
                self._accumulator.tick(now_ms)
            for sender in list(self._senders.values()):
                sender.tick(now_ms)
            if not self._accumulator.outstanding_records:
                self._busy.clear()

    # ---- sending

    async def send(
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
        """Send one record, wait until it is stored, and return where; waits for room if need be.

        A record whose `send` was cancelled may be stored or not.
        """
        value, key, headers, tag = as_they_are(value, key, headers, tag)
        hand_in = partial(self._hand_in, topic, value, key, headers, tag, group, queue)
        return await (await self._waiters.take(hand_in))

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
    ) -> "asyncio.Future[SendResult]":
        """Hand over one record; the returned future resolves with its outcome.

        Raises `Overloaded` if the record does not fit in the window of outstanding bytes and
        records, or if an earlier `send` still waits for room.
        """
        if self._waiters:
            raise Overloaded(f"{len(self._waiters)} sends wait for room before this: await send()")
        return self._hand_in(topic, value, key, headers, tag, group, queue)

    def _hand_in(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        group: str | None = None,
        queue: int | None = None,
    ) -> "asyncio.Future[SendResult]":
        if self._closed or not self._main.is_open:
            raise Unavailable(self._closed or "open the producer first: async with ... as producer")
        if not isinstance(topic, str):
            require_name("topic", topic)  # it raises; what cannot be looked up, too
        if type(value) is not bytes:
            value = as_bytes("value", value)
        if key is None:
            key = b""
        elif type(key) is not bytes:
            key = as_bytes("key", key)
        size = len(value) + len(key) + RECORD_OVERHEAD
        raw_tag = raw_headers = b""
        if tag is not None:
            raw_tag = as_bytes("tag", tag)
            size += len(raw_tag)
        if headers:
            raw_headers = as_headers(headers)
            size += len(raw_headers)
        if size > _MAX_RECORD:
            raise TooLarge(f"a record has {size} bytes, at most {_MAX_RECORD} are allowed")
        if not self._has_room(size):
            raise Overloaded(
                f"{self._accumulator.outstanding_records} records, "
                f"{self._accumulator.outstanding_bytes} bytes are outstanding: "
                "await send(), or raise max_outstanding_bytes"
            )
        future: asyncio.Future[SendResult] = self._loop.create_future()
        pinned = group is not None or queue is not None
        self._number += 1
        record: Record = (value, key, raw_tag, raw_headers, future, pinned, self._number)
        if pinned:
            check_place(group, queue)
            self._put_pinned(topic, record, size, group, queue)
        else:
            self._put(topic, record, size)
        return future

    async def send_batch(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        group: str | None = None,
        queue: int | None = None,
    ) -> list[SendResult]:
        """Send many records; return their results in order, or raise the first error.

        Records stay in order within each queue. Without keys, they go to few queues at a time.
        """
        check_batch(values, keys)
        futures = []
        for at, value in enumerate(values):
            key = None if keys is None else keys[at]
            hand_in = partial(self._hand_in, topic, value, key, group=group, queue=queue)
            futures.append(await self._waiters.take(hand_in))
        return await all_results(futures)

    async def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        await self._waiters.flush(self._hurry)
        await all_done(self._accumulator.futures())

    def _hurry(self) -> None:
        for sender in self._senders.values():
            sender.hurry()

    @property
    def outstanding(self) -> int:
        """Number of records without an outcome yet."""
        return self._accumulator.outstanding_records

    @property
    def connected(self) -> dict[str, str]:
        """Per broker group: "" while it takes messages, else the reason why it does not."""
        return {
            str(group): self._closed
            or ("" if sender.usable else str(sender.reason or sender.error or ""))
            for group, sender in list(
                self._senders.items()
            )  # another thread may ask (`sync/client.py`)
        }

    # ---- inside

    def _put(self, name: str, record: Record, size: int) -> None:
        accumulator = self._accumulator
        topic = accumulator.topics.get(name) or self._new_topic(name)
        key = record[1]
        if key:
            buffer = topic.by_key.get(key) or topic.buffer_for_key(key)
        else:
            buffer = topic.sticky
            if buffer is None or buffer.open is None:
                buffer = topic.next_buffer()
        if not accumulator.outstanding_records:
            self._busy.set()
        accumulator.outstanding_records += 1
        accumulator.outstanding_bytes += size
        if buffer is None:
            accumulator.hold_unplaced(topic, record)
        else:
            accumulator.put(buffer, record, size)

    def _put_pinned(
        self, name: str, record: Record, size: int, group: str | None, queue: int | None
    ) -> None:
        accumulator = self._accumulator
        topic = accumulator.topics.get(name) or self._new_topic(name)
        group_name = None if group is None else GroupName(group)
        buffer = accumulator.pinned_buffer(topic, group_name, queue)
        topic.note_placed(record[1])
        self._busy.set()
        accumulator.outstanding_records += 1
        accumulator.outstanding_bytes += size
        if buffer is None:
            topic.unrouted.append((record, group_name, queue))
        else:
            accumulator.put(buffer, record, size)

    def _has_room(self, size: int) -> bool:
        accumulator, settings = self._accumulator, self._settings
        return (
            accumulator.outstanding_bytes + size <= settings.max_outstanding_bytes
            and accumulator.outstanding_records < settings.max_outstanding_records
        ) or accumulator.outstanding_records == 0

    def _new_topic(self, name: str) -> Topic:
        require_name("topic", name)
        self._named[name] = None
        topic = self._accumulator.new_topic(name)
        self._begin(self._topics.resolve(topic))
        return topic

    def _new_sender(self, group: GroupName) -> Sender:
        sender = Sender(
            *(
                group,
                self._connections,
                self._routes,
                self._clock,
                self._accumulator,
                self._settings,
            ),
            self._watch,
        )
        self._senders[group] = sender
        self._begin(sender.run())
        return sender

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        if self._tasks is None:  # it has failed: what is held ends with it
            work.close()
            return
        try:
            self._main.watch(self._tasks.create_task(work))
        except RuntimeError:  # the producer is being closed: held records end with it
            work.close()
