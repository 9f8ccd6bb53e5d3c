"""The producer: the API that a program calls to send records.

`producer/accumulator.py` decides where records go, `producer/sender.py` sends them, and
`producer/queue_buffer.py` has the rules of order and of retries.

    send_nowait → lane of its key → (the loop turns) → one message per group → acks → futures

A future ends with a `SendResult` only when the requested acknowledgement policy held. It ends with
`DeliveryUnknown` when that cannot be known within `delivery_timeout_s`; every other error means
that the record was not stored. The client retries idempotently: nothing is stored twice.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Final

from fmqclient.arguments import (
    Headers,
    as_bytes,
    as_headers,
    as_they_are,
    check_all,
    check_place,
)
from fmqclient.forgotten import MustBeClosed
from fmqclient.net.connections import Connections
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import CANCELLED, all_done
from fmqclient.producer.accumulator import Outbox
from fmqclient.producer.batches import RECORD_OVERHEAD, Record, SendResult
from fmqclient.producer.buffer_waiters import Turns
from fmqclient.producer.sender import Link
from fmqclient.producer.topic_buffers import Topic
from fmqclient.producer.topics import KnownTopics
from fmqclient.settings import ProducerSettings
from fmqcore.batch.header import MAX_PAYLOAD
from fmqcore.errors import (
    InvalidArgument,
    Overloaded,
    TooLarge,
    Unavailable,
)
from fmqcore.ids import GroupName
from fmqcore.names import require_name
from fmqport.clock import Clock

_log = logging.getLogger("fmqclient")
_TICK_S: Final = 0.1
_READ_FIRST_MS: Final = 1000
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
        self._turns: Turns[asyncio.Future[SendResult]] = Turns()
        self._box = Outbox(settings, clock, self._new_link, self._turns.look)
        self._links: dict[GroupName, Link] = {}
        self._busy = asyncio.Event()  # something is outstanding
        self._tasks: asyncio.TaskGroup | None = None
        self._main: asyncio.Task[None] | None = None
        self._topics = KnownTopics(self._box, routes, clock, settings, self._begin)
        self._number = 0  # of records handed in
        self._named: dict[str, None] = {}  # topics, for what is said of us
        self._closed = ""  # why nothing more is taken
        self._failed = False

    # ---- life

    async def __aenter__(self) -> "Producer":
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._main = asyncio.create_task(self._run(ready))
        self._main.add_done_callback(self._ended)
        self._main.add_done_callback(lambda _: None if ready.done() else ready.set_result(None))
        await ready
        if self._failed:
            raise Unavailable(self._closed)
        self._unclosed = True
        return self

    def _described(self) -> str:
        return f"a producer to {', '.join(map(repr, self._named)) or 'no topic yet'}"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is pending, for at most `close_timeout_s` seconds, then fail what is left."""
        self._unclosed = False
        main, self._main = self._main, None
        if main is None:
            return
        self._closed = self._closed or "this producer is closed"
        self._turns.look()
        try:
            async with asyncio.timeout(self._settings.close_timeout_s):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            main.cancel()
            try:
                await asyncio.wait([main])
            finally:
                self._warn_of_pending("closed")
                self._box.close()

    def _warn_of_pending(self, how: str) -> None:
        if pending := self._box.outstanding_records:
            _log.warning(
                "a producer was %s with %d records pending: each ends with an error, "
                "DeliveryUnknown if it may be stored; flush() before, or raise close_timeout_s",
                how,
                pending,
            )

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        forget = self._routes.on_change(self._topics.learn)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                ready.set_result(None)
                await self._tick()
        finally:
            self._tasks = None
            forget()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Fail the producer when a task ended by an error or a cancel: no caller may wait on."""
        if task.cancelled():
            self._fail_part(CANCELLED)
        elif (error := task.exception()) is not None:
            self._fail_part(repr(error))

    def _fail_part(self, why: str) -> None:
        """Fail every pending record and accept no more."""
        if self._closed:
            return
        self._failed = True
        self._closed = f"this producer has failed: {why}"
        if self._main is not None:
            self._main.cancel()
        self._warn_of_pending("lost")
        self._box.close()
        self._turns.look()

    async def _tick(self) -> None:
        """Expire deadlines and resume what was postponed.

        After the program blocked the loop, the brokers' answers are read before anything expires.
        """
        expire_from_ms = 0
        while True:
            await self._busy.wait()
            late_ms = await self._watch.sleep(_TICK_S)
            now_ms = self._clock.monotonic_ms()
            if late_ms:
                expire_from_ms = now_ms + _READ_FIRST_MS
            if now_ms >= expire_from_ms:
                self._box.tick(now_ms)
            for link in list(self._links.values()):
                link.tick(now_ms)
            if not self._box.outstanding_records:
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
        return await (await self._turns.take(hand_in))

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
        if self._turns:
            raise Overloaded(f"{len(self._turns)} sends wait for room before this: await send()")
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
        if self._closed or self._main is None:
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
            raise TooLarge(f"a record of {size} bytes, at most {_MAX_RECORD}: store it elsewhere")
        if not self._has_room(size):
            raise Overloaded(
                f"{self._box.outstanding_records} records, {self._box.outstanding_bytes} bytes are "
                "outstanding: await send(), or raise max_outstanding_bytes"
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
        check_all("value", values)
        check_all("key", keys or ())
        if keys is not None and len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
        futures = []
        for at, value in enumerate(values):
            key = None if keys is None else keys[at]
            hand_in = partial(self._hand_in, topic, value, key, group=group, queue=queue)
            futures.append(await self._turns.take(hand_in))
        await all_done(futures)
        error = next((e for e in [f.exception() for f in futures] if e is not None), None)
        if error is not None:
            raise error
        return [future.result() for future in futures]

    async def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        for turn in self._turns.waiting:  # those who wait for room were sent, too
            if not turn.done():
                self._hurry()
                await asyncio.wait([turn])
        self._hurry()
        await all_done(self._box.futures())

    def _hurry(self) -> None:
        for link in self._links.values():
            link.hurry()

    @property
    def outstanding(self) -> int:
        """Number of records without an outcome yet."""
        return self._box.outstanding_records

    @property
    def connected(self) -> dict[str, str]:
        """Per broker group: "" while it takes messages, else the reason why it does not."""
        return {
            str(group): self._closed or ("" if link.usable else str(link.why or link.error or ""))
            for group, link in list(
                self._links.items()
            )  # another thread may ask (`sync/client.py`)
        }

    # ---- inside

    def _put(self, name: str, record: Record, size: int) -> None:
        box = self._box
        topic = box.topics.get(name) or self._new_topic(name)
        key = record[1]
        if key:
            lane = topic.by_key.get(key) or topic.lane_for_key(key)
        else:
            lane = topic.sticky
            if lane is None or lane.open is None:
                lane = topic.next_lane()
        if not box.outstanding_records:
            self._busy.set()
        box.outstanding_records += 1
        box.outstanding_bytes += size
        if lane is None:
            box.unplaced(topic, record)
        else:
            box.put(lane, record, size)

    def _put_pinned(
        self, name: str, record: Record, size: int, group: str | None, queue: int | None
    ) -> None:
        box = self._box
        topic = box.topics.get(name) or self._new_topic(name)
        group_name = None if group is None else GroupName(group)
        lane = box.pinned_lane(topic, group_name, queue)
        self._busy.set()
        box.outstanding_records += 1
        box.outstanding_bytes += size
        if lane is None:
            topic.unrouted.append((record, group_name, queue))
        else:
            box.put(lane, record, size)

    def _has_room(self, size: int) -> bool:
        box, settings = self._box, self._settings
        return (
            box.outstanding_bytes + size <= settings.max_outstanding_bytes
            and box.outstanding_records < settings.max_outstanding_records
        ) or box.outstanding_records == 0

    def _new_topic(self, name: str) -> Topic:
        require_name("topic", name)
        self._named[name] = None
        topic = self._box.new_topic(name)
        self._begin(self._topics.resolve(topic))
        return topic

    def _new_link(self, group: GroupName) -> Link:
        link = Link(
            *(group, self._connections, self._routes, self._clock, self._box, self._settings),
            self._watch,
        )
        self._links[group] = link
        self._begin(link.run())
        return link

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        if self._tasks is None:  # it has failed: what is held ends with it
            work.close()
            return
        try:
            self._tasks.create_task(work).add_done_callback(self._ended)
        except RuntimeError:  # we are being closed: what is held ends with it
            work.close()
