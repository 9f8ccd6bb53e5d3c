"""The ordered producer: the API of a program that sends to an ordered topic in one strict order.

    send_nowait → queue of the key → ordered_state → ordered_stream → answers → futures
                                          ↑ roles, reports
                                     ordered_line: the place in the line of senders

A record without a known outcome must not be skipped: a later one would be stored without it. So a
record whose `delivery_timeout_s` is over, or that can never be stored, ends the whole producer, as
the loss of the role does. The program opens another one and goes on after `last`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fmqclient.arguments import (
    Headers,
    as_bytes,
    as_headers,
    as_they_are,
    check_batch,
    check_callback,
)
from fmqclient.forgotten import MustBeClosed
from fmqclient.net.connections import Connections
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import CANCELLED, MainTask, all_done, all_results
from fmqclient.producer.batches import RECORD_OVERHEAD, Record
from fmqclient.producer.buffer_waiters import BufferWaiters
from fmqclient.producer.group_cuts import GroupCuts
from fmqclient.producer.ordered_buffer import OrderedBuffer
from fmqclient.producer.ordered_line import Line, ordered_topic
from fmqclient.producer.ordered_records import (
    LastRecord,
    OrderedResult,
    cut_of,
    last_records_of,
    result_of,
    role_of,
)
from fmqclient.producer.ordered_state import OrderedState
from fmqclient.producer.ordered_stream import SegmentStream
from fmqclient.producer.ordered_values import Acknowledged, Action, Batch, Connect, Failed, Report
from fmqclient.settings import ProducerSettings
from fmqcore.batch.header import MAX_PAYLOAD
from fmqcore.errors import (
    FmqError,
    Overloaded,
    TooLarge,
    Unavailable,
    UnknownQueue,
)
from fmqcore.names import require_name
from fmqcore.placement import ByChain
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

_log = logging.getLogger("fmqclient")
_MAX_RECORD: Final = MAX_PAYLOAD - 64


class OrderedProducer(MustBeClosed):
    """Sends records to one ordered topic. Use it as `async with client.ordered_producer(...)`.

    Entering waits until this is the topic's active sender.
    """

    def __init__(
        self,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        settings: ProducerSettings,
        topic: str,
        name: str,
        *,
        accept_unknown_end: bool,
        on_active: Callable[[], None] | None,
        watch: LoopWatch | None = None,
    ) -> None:
        require_name("topic", topic)
        require_name("sender", name)
        check_callback("on_active", on_active)
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._settings = settings
        self._topic = topic
        self._name = name
        self._instance = clock.random_id()  # by which brokers know this sender again
        self._accepts_unknown_end = accept_unknown_end
        self._on_active = on_active
        self._watch = watch or LoopWatch(clock)
        self._waiters: BufferWaiters[asyncio.Future[OrderedResult]] = BufferWaiters()
        self._state = OrderedState()
        self._last: Mapping[int, LastRecord] = {}
        self._buffer = OrderedBuffer(clock, settings, self._state, self._waiters.admit_soon)
        self._busy = asyncio.Event()
        self._main = MainTask(self._ended)
        self._line: Line | None = None
        self._stream: SegmentStream | None = None
        self._end: FmqError | None = None  # nothing more is taken

    # ---- life

    async def __aenter__(self) -> "OrderedProducer":
        config = await ordered_topic(self._routes, self._topic)
        self._open_once()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        try:
            await self._main.open(self._run(config.id), self._ready)
        except BaseException:
            self._end = self._end or Unavailable(
                "this ordered producer was closed before it got the role: create another one"
            )
            self._fail_rest()
            raise
        self._unclosed = True
        return self

    def _described(self) -> str:
        return f"an ordered producer to {self._topic!r}"

    async def close(self) -> None:
        """Send what is pending, for at most `close_timeout_s`, fail the rest, give up the role."""
        self._unclosed = False
        if not self._main.is_open:
            return
        self._end = self._end or Unavailable("this ordered producer is closed")
        self._waiters.admit_soon()
        try:
            await self._main.close(self.flush, self._settings.close_timeout_s)
        finally:
            self._fail_rest()

    def _fail_rest(self) -> None:
        if self._buffer.records:
            _log.warning(
                "an ordered producer to %s was closed with %d records pending: each ends with "
                "an error, DeliveryUnknown if it may be stored; flush() before",
                *(self._topic, self._buffer.records),
            )
        error = self._main.error
        late = Unavailable("closed before the broker answered")
        self._fail_all(late if error is None else _typed(error), None)

    async def _run(self, topic_id: int) -> None:
        cuts = GroupCuts()
        self._line = Line(
            self._opening(topic_id, ""), topic_id, self._state, self._connections, self._routes,
            self._clock, self._watch, self._apply_state, cuts,
        )  # fmt: skip
        self._stream = SegmentStream(
            lambda: self._opening(topic_id, self._line.sender_id if self._line else ""),
            self._state, topic_id, self._connections, self._routes, self._clock, self._watch,
            self._settings, self._buffer.cut, self._apply, self._apply_stream_state, cuts,
        )  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            for work in (self._line.run(), self._stream.run(), self._tick()):
                self._main.watch(tasks.create_task(work))

    def _opening(self, topic_id: int, sender_id: str) -> client_pb2.ProduceOpen:
        return client_pb2.ProduceOpen(
            client=self._settings.client_name,
            sender=client_pb2.SenderOpen(
                topic=self._topic,
                name=self._name,
                instance=self._instance,
                accepts_unknown_end=self._accepts_unknown_end,
                sender_id=sender_id,
                topic_id=topic_id,
            ),
        )

    def _ended(self, error: BaseException | None) -> None:
        self._fail(_typed(error), None)

    def _fail_part(self, reason: str) -> None:
        """End it, as its client has failed."""
        self._fail(Unavailable(reason), None)

    def _fail(self, error: FmqError, refused: Batch | None) -> None:
        """Fail every pending record and accept no more."""
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # its caller may have left
        if self._end is None:
            self._end = error
            if self._buffer.records:
                _log.warning("an ordered producer to %s ends: %s", self._topic, error)
        elif self._state.error is None:
            return  # it is being closed
        self._main.cancel()
        self._fail_all(error, refused)
        self._waiters.admit_soon()

    def _fail_all(self, error: FmqError, refused: Batch | None) -> None:
        self._state.end(error)
        self._buffer.fail_all(error, refused)

    async def _tick(self) -> None:
        """Expire deadlines."""
        ticks = self._watch.ticks()
        while True:
            await self._busy.wait()
            now_ms, may_expire = await ticks.wait()
            if may_expire:
                self._apply(self._state.tick(now_ms))
                self._expire(now_ms)
            if not self._buffer.records:
                self._busy.clear()

    def _expire(self, now_ms: int) -> None:
        """End the producer if the oldest record of a queue has waited for too long."""
        if self._buffer.is_overdue(now_ms):
            self._fail(
                Unavailable(
                    f"a record had no outcome for {self._settings.delivery_timeout_s:g} s: "
                    f"{self.waits_for or self._silence()}; no later one may be stored without "
                    "it, so this producer ends: open it again and go on after its `last` records"
                ),
                None,
            )

    def _silence(self) -> str:
        return (
            f"no answer from {self._state.group or 'any broker'}: see `fmq ordered status "
            f"{self._topic}`"
        )

    # ---- roles and answers

    @property
    def active(self) -> bool:
        """Whether this is the topic's active sender, by the newest report of a broker."""
        return self._state.active and self._end is None

    @property
    def last(self) -> Mapping[int, LastRecord]:
        """By queue the last record before this sender's first one; queues without one lack."""
        return self._last

    @property
    def waits_for(self) -> str:
        """What sends wait for, a sentence; "" = for nothing."""
        if self._end is not None:
            return str(self._end)
        if not self._state.active and self._line is not None and self._line.reason:
            return self._line.reason  # without a place, what the last one waited for is over
        return self._state.reason or ("" if self._stream is None else self._stream.reason)

    @property
    def connected(self) -> dict[str, str]:
        """The group that takes the sends: "" while it does, else the reason why it does not."""
        return {str(self._state.group or "line"): self.waits_for}

    @property
    def outstanding(self) -> int:
        """Number of records without an outcome yet."""
        return self._buffer.records

    def _apply_state(self, news: client_pb2.SenderState) -> None:
        state, epoch = self._state, self._state.epoch
        actions = state.apply_role(role_of(news))
        if state.epoch != epoch:
            self._last = last_records_of(news)
            self._buffer.open_queues()
        self._apply(actions)
        if state.epoch != epoch and state.error is None:
            if not self._ready.done():
                self._ready.set_result(None)
            if self._on_active is not None:
                self._loop.call_soon(self._on_active)  # its errors are the program's

    def _apply_stream_state(self, news: client_pb2.SenderState) -> None:
        """The master of the segment knows of the same role, but is owed no report."""
        if self._state.epoch == news.sender_epoch:
            self._apply(self._state.apply_role(role_of(news), in_line=False))

    def _apply(self, actions: Iterable[Action]) -> None:
        assert self._line is not None
        assert self._stream is not None
        for action in actions:
            match action:
                case Acknowledged():
                    self._resolve(action)
                case Report():
                    self._line.report(action)
                case Connect():
                    self._stream.move()
                case Failed():
                    self._fail(action.error, action.batch)

    def _resolve(self, stored: Acknowledged) -> None:
        content = cut_of(stored.batch)
        for at, record in enumerate(content.records):
            future: asyncio.Future[Any] = record[4]
            if not future.done():
                future.set_result(
                    result_of(stored.group, stored.segment, stored.offset, stored.batch, at)
                )
        self._buffer.release(content)

    # ---- sending

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        queue: int | None = None,
    ) -> OrderedResult:
        """Send one record, wait until it is stored, and return where; waits for room if need be.

        A record whose `send` was cancelled is sent all the same: later ones come after it.
        """
        value, key, headers, tag = as_they_are(value, key, headers, tag)
        hand_in = partial(self._hand_in, value, key, headers, tag, queue)
        return await (await self._waiters.take(hand_in))

    def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        tag: bytes | None = None,
        queue: int | None = None,
    ) -> "asyncio.Future[OrderedResult]":
        """Hand over one record; the returned future resolves with its outcome.

        Raises `Overloaded` if the record does not fit in the window of outstanding bytes and
        records, or if an earlier `send` still waits for room.
        """
        if self._waiters:
            raise Overloaded(f"{len(self._waiters)} sends wait for room before this: await send()")
        return self._hand_in(value, key, headers, tag, queue)

    async def send_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        queue: int | None = None,
    ) -> list[OrderedResult]:
        """Send many records; return their results in order, or raise the first error."""
        check_batch(values, keys)
        futures = []
        for at, value in enumerate(values):
            key = None if keys is None else keys[at]
            hand_in = partial(self._hand_in, value, key, None, None, queue)
            futures.append(await self._waiters.take(hand_in))
        return await all_results(futures)

    async def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        await self._waiters.flush(self._hurry)
        await all_done([record[4] for record in self._buffer.outstanding()])

    def _hurry(self) -> None:
        if self._stream is not None:
            self._stream.hurry()

    def _hand_in(
        self,
        value: bytes,
        key: bytes | None,
        headers: Headers | None,
        tag: bytes | None,
        queue: int | None,
    ) -> "asyncio.Future[OrderedResult]":
        if self._end is not None:
            raise type(self._end)(str(self._end))
        if not self._buffer.queues:
            raise Unavailable("open the producer first: async with ... as producer")
        raw_value, raw_key = as_bytes("value", value), as_bytes("key", key or b"")
        raw_tag = b"" if tag is None else as_bytes("tag", tag)
        raw_headers = as_headers(headers) if headers else b""
        size = len(raw_value) + len(raw_key) + len(raw_tag) + len(raw_headers) + RECORD_OVERHEAD
        number = self._queue_of(raw_key, queue)
        self._require_room(size)
        future: asyncio.Future[Any] = self._loop.create_future()
        record: Record = (raw_value, raw_key, raw_tag, raw_headers, future, True, 0)
        self._put(number, record, size)
        return future

    def _queue_of(self, key: bytes, queue: int | None) -> int:
        """Return a record's queue: fixed for a key. Records without a key count as one key."""
        count = self._buffer.queues
        if queue is None:
            return ByChain(count).queue(key)
        if not isinstance(queue, int) or not 0 <= queue < count:
            raise UnknownQueue(f"topic {self._topic} has queues 0 to {count - 1}, not {queue!r}")
        return queue

    def _require_room(self, size: int) -> None:
        """Raise `TooLarge` or `Overloaded`, before the record has a place in the order."""
        assert self._stream is not None
        most = min(_MAX_RECORD, self._stream.max_batch_bytes)
        if size > most:
            raise TooLarge(f"a record has {size} bytes, at most {most} are allowed")
        self._buffer.require_room(size)

    def _put(self, queue: int, record: Record, size: int) -> None:
        stream = self._stream
        assert stream is not None
        if self._buffer.put(queue, record, size, stream.max_batch_bytes, stream.max_batch_records):
            stream.wake()
        self._busy.set()


def _typed(error: BaseException | None) -> FmqError:
    """Return the error of an inner task as a program gets it; None: it was cancelled."""
    if isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FmqError):
        return error
    return Unavailable(f"this ordered producer has failed: {error or CANCELLED}")
