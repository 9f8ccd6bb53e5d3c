"""The producer: what a program calls. Where records go is `outbox.py`'s, how they get there
`link.py`'s, and the rules of order and of trying again are written in `lane.py`.

    send_nowait → lane of its key → (the loop turns) → one message per group → acks → futures

A future ends with a `SendResult` only when the policy that was asked for held. It ends with
`DeliveryUnknown` when that cannot be known in `delivery_timeout_s`; every other error says that
the record was not stored. Retries are made here and are idempotent: nothing is stored twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final

from fmqclient.connections import Connections
from fmqclient.link import Link
from fmqclient.outbox import Outbox
from fmqclient.records import RECORD_OVERHEAD, Record, SendResult
from fmqclient.routes import Routes
from fmqclient.settings import ProducerSettings
from fmqclient.topic import Topic
from fmqclient.turns import Turns
from fmqcore.batch import MAX_PAYLOAD
from fmqcore.columns import BadColumns, encode_headers
from fmqcore.errors import (
    FmqError,
    InvalidArgument,
    Overloaded,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from fmqcore.words import GroupName, require_name
from fmqport.clock import Clock

Headers = Mapping[str, str | bytes]
_TICK_S: Final = 0.1
_MAX_RECORD: Final = MAX_PAYLOAD - 64
"""Bytes of one record at most, its key and headers included."""


class Producer:
    """Sends records. Use it as `async with client.producer(...) as p`."""

    def __init__(
        self, connections: Connections, routes: Routes, clock: Clock, settings: ProducerSettings
    ) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._settings = settings
        self._turns: Turns[asyncio.Future[SendResult]] = Turns()
        self._box = Outbox(settings, clock, self._new_link, self._turns.look)
        self._links: dict[GroupName, Link] = {}
        self._busy = asyncio.Event()  # something is outstanding
        self._tasks: asyncio.TaskGroup | None = None
        self._main: asyncio.Task[None] | None = None
        self._number = 0  # of records handed in
        self._closed = ""  # why nothing more is taken

    # ---- life

    async def __aenter__(self) -> "Producer":
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._main = asyncio.create_task(self._run(ready))
        self._main.add_done_callback(self._ended)
        await ready
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is there, for `close_timeout_s` at most; what is left ends with an error."""
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
            await asyncio.wait([main])
            self._box.close()

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        forget = self._routes.on_change(self._learn)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                ready.set_result(None)
                await self._tick()
        finally:
            self._tasks = None
            forget()

    def _ended(self, main: "asyncio.Task[None]") -> None:
        error = None if main.cancelled() else main.exception()
        if error is not None:  # a bug of ours: nobody may wait for ever
            self._closed = f"this producer has failed: {error!r}"
            self._box.close()

    async def _tick(self) -> None:
        """Deadlines, and what was put off."""
        while True:
            await self._busy.wait()
            await self._clock.sleep(_TICK_S)
            now_ms = self._clock.monotonic_ms()
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
        """Send one record and wait until it is stored; waits for room first, if need be.

        A cancelled `send` may be stored or not.
        """
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
        """Hand over one record; the future tells what became of it.

        Raises `Overloaded` when so much is outstanding that it does not fit in the window, or a
        `send` waits for room, which came before.
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
        if type(value) is not bytes:
            value = _bytes("value", value)
        if key is None:
            key = b""
        elif type(key) is not bytes:
            key = _bytes("key", key)
        size = len(value) + len(key) + RECORD_OVERHEAD
        raw_tag = raw_headers = b""
        if tag is not None:
            raw_tag = _bytes("tag", tag)
            size += len(raw_tag)
        if headers:
            raw_headers = _headers(headers)
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
            _check_place(group, queue)
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
        """Send many records; returns their results in order, or raises the first error.

        They stay in order within each queue. Without keys, they go to few queues at a time.
        """
        _check_all("value", values)
        _check_all("key", keys or ())
        if keys is not None and len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
        futures = []
        for at, value in enumerate(values):
            key = None if keys is None else keys[at]
            hand_in = partial(self._hand_in, topic, value, key, group=group, queue=queue)
            futures.append(await self._turns.take(hand_in))
        await _all(futures)
        error = next((e for e in [f.exception() for f in futures] if e is not None), None)
        if error is not None:
            raise error
        return [future.result() for future in futures]

    async def flush(self) -> None:
        """Wait until everything sent before this call has an outcome."""
        for link in self._links.values():
            link.hurry()
        await _all(self._box.futures())

    @property
    def outstanding(self) -> int:
        """Records without an outcome yet."""
        return self._box.outstanding_records

    @property
    def connected(self) -> dict[str, str]:
        """Per group: "" while it takes messages, else why it does not."""
        return {
            str(group): "" if link.usable else str(link.why or link.error or "")
            for group, link in self._links.items()
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
        assert self._tasks is not None, "the producer is open"
        require_name("topic", name)
        topic = self._box.new_topic(name)
        self._tasks.create_task(self._resolve(topic))
        return topic

    async def _resolve(self, topic: Topic) -> None:
        """Learn the groups and queues of a topic, for as long as its first record may wait."""
        until_ms = self._clock.monotonic_ms() + int(self._settings.delivery_timeout_s * 1000)
        while True:
            try:
                config = await self._routes.topic(topic.name)
            except Unavailable as error:
                if self._clock.monotonic_ms() >= until_ms:
                    self._box.forget(topic, error)
                    return
                await self._clock.sleep(self._clock.uniform(_TICK_S, 3 * _TICK_S))
            except FmqError as error:
                self._box.forget(topic, error)
                return
            else:
                self._box.know(topic, config)
                return

    def _learn(self) -> None:
        """The routes were refreshed: topics may have other groups, or be gone."""
        for topic in list(self._box.topics.values()):
            if topic.config is None:
                continue
            config = self._routes.table.topics.get(topic.name)
            if config is None or config.id != topic.config.id:
                self._box.forget(topic, UnknownTopic(f"topic {topic.name} was deleted"))
            else:
                self._box.know(topic, config)

    def _new_link(self, group: GroupName) -> Link:
        assert self._tasks is not None, "the producer is open"
        link = Link(group, self._connections, self._routes, self._clock, self._box, self._settings)
        self._links[group] = link
        self._tasks.create_task(link.run())
        return link


async def _all(
    futures: "Sequence[asyncio.Future[SendResult]] | list[asyncio.Future[object]]",
) -> None:
    """Wait until all are done, whatever came of them. A batch ends as one: few real waits."""
    for future in futures:
        if not future.done():
            await asyncio.wait([future])


def _check_all(what: str, given: object) -> None:
    """Before any of them is sent: a list of bytes (or, for keys, None)."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidArgument(f"{what}s must be a list, not {type(given).__name__}")
    if set(map(type, given)) - {bytes}:
        for one in given:
            if one is not None or what == "value":
                _bytes(what, one)


def _check_place(group: object, queue: object) -> None:
    if group is not None and not isinstance(group, str):
        raise InvalidArgument(f"group={group!r} must be a broker group's name")
    if queue is not None and not isinstance(queue, int):
        raise InvalidArgument(f"queue={queue!r} must be a queue's number")


def _bytes(what: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{what} must be bytes, not {type(value).__name__}: encode it first")


def _headers(headers: Headers) -> bytes:
    try:
        return encode_headers(headers)
    except (BadColumns, AttributeError, TypeError) as error:
        raise InvalidArgument(f"headers must map str to str or bytes: {error}") from None
