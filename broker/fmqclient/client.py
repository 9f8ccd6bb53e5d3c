"""`connect` and `Client`: one route table and one set of connections per client.

    async with fmqclient.connect("fmq://127.0.0.1:9876") as client: ...

The ports (transport, clock) are arguments; the defaults are the real adapters.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from fmqadapters.process.clock import SystemClock
from fmqclient.address import DEFAULT_URL, parse_url
from fmqclient.arguments import check_seconds, check_text
from fmqclient.consumer.consumer import Consumer
from fmqclient.forgotten import MustBeClosed
from fmqclient.net.connections import Backoff, Connections
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import CANCELLED
from fmqclient.producer.producer import Producer
from fmqclient.settings import ConsumerSettings, ProducerSettings, Start
from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.errors import Unavailable
from fmqport.clock import Clock
from fmqport.transport import Transport

if TYPE_CHECKING:
    from fmqclient.admin.client import Admin
    from fmqclient.producer.ordered import OrderedProducer

P = TypeVar("P", Producer, "OrderedProducer", Consumer)
MIB = 1024 * 1024
_NOT_OPEN: Final = "open the client first: async with fmqclient.connect(...) as client"
_CLOSED: Final = "this client is closed"


def connect(
    url: str = DEFAULT_URL,
    *,
    timeout_s: float = 10.0,
    name: str = "",
    transport: Transport | None = None,
    clock: Clock | None = None,
) -> "Client":
    """Return a client of the cluster at `url` (`fmq://host:port[,host:port...]`).

    Use it as `async with connect(...) as client`; entering raises `Unavailable` if no broker
    answers within `timeout_s` seconds. Brokers show `name` in their lists of clients.
    """
    check_seconds("timeout_s", timeout_s)
    check_text("name", name)
    if transport is None:
        from fmqadapters.grpc import GrpcTransport  # only now: a simulator has no gRPC

        transport = GrpcTransport()
    return Client(parse_url(url), transport, clock or SystemClock(), timeout_s, name)


class Client(MustBeClosed):
    """A client of one cluster: opens producers, consumers and an admin."""

    def __init__(
        self,
        seeds: Sequence[str],
        transport: Transport,
        clock: Clock,
        timeout_s: float,
        name: str,
    ) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._seeds = tuple(seeds)
        self._name = name
        self._connections = Connections(transport)
        self._routes = Routes(self._connections, clock, self._seeds)
        self._watch = LoopWatch(clock)
        self._failed = ""
        self._closed = False
        self._parts: WeakSet[Producer | OrderedProducer | Consumer] = WeakSet()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def __aenter__(self) -> "Client":
        try:
            await self._first_routes()
        except BaseException:
            await self._connections.close()
            raise
        works = (self._routes.run(), self._watch.run())
        self._tasks = tuple(asyncio.create_task(work) for work in works)
        for task in self._tasks:
            task.add_done_callback(self._ended)
        self._unclosed = True
        return self

    def _described(self) -> str:
        return f"a client of fmq://{','.join(self._seeds)}"

    async def close(self) -> None:
        """Close the connections. Close producers and consumers first (`async with` does)."""
        self._unclosed = False
        self._closed = True
        for part in list(self._parts):
            part._warn_if_unclosed()
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._connections.close()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Fail every producer and consumer: without routes none would learn of another master."""
        if task not in self._tasks:
            return  # it is being closed
        error = None if task.cancelled() else task.exception()
        self._failed = f"this client has failed: {error or CANCELLED}"
        for part in list(self._parts):
            part._fail_part(self._failed)

    def _keep(self, part: P) -> P:
        if self._failed:
            raise Unavailable(self._failed)
        self._require_open()  # else no task refreshes the routes: it would hang at a failover
        self._parts.add(part)
        return part

    def _require_open(self) -> None:
        if not self._tasks:
            raise Unavailable(_CLOSED if self._closed else _NOT_OPEN)

    async def _first_routes(self) -> None:
        until_ms = self._clock.monotonic_ms() + int(self._timeout_s * 1000)
        backoff = Backoff(self._clock)
        while True:
            try:
                return await self._routes.refresh()
            except Unavailable:
                if self._clock.monotonic_ms() >= until_ms:
                    raise
            await backoff.wait()

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
    ) -> Producer:
        """Return a new producer; `ProducerSettings` documents each setting."""
        settings = ProducerSettings(
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
            client_name=self._name,
        )
        return self._keep(
            Producer(self._connections, self._routes, self._clock, settings, self._watch)
        )

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
    ) -> "OrderedProducer":
        """Return a new sender to an ordered topic; entering it waits for the topic's one role.

        `name`: shown by `fmq ordered status`. `accept_unknown_end`: go on after the last record
        that is known, although the end of an earlier segment is not. `on_active` is called each
        time the role is given. `ProducerSettings` documents the other settings.
        """
        from fmqclient.producer.ordered import OrderedProducer  # only now: most programs need none

        settings = ProducerSettings(
            linger_ms=linger_ms,
            max_outstanding_bytes=max_outstanding_bytes,
            max_outstanding_records=max_outstanding_records,
            max_batch_bytes=max_batch_bytes,
            max_batch_records=max_batch_records,
            pipeline=pipeline,
            delivery_timeout_s=delivery_timeout_s,
            close_timeout_s=close_timeout_s,
            born_time=born_time,
            client_name=self._name,
        )
        return self._keep(
            OrderedProducer(
                *(self._connections, self._routes, self._clock, settings, topic, name),
                accept_unknown_end=accept_unknown_end,
                on_active=on_active,
                watch=self._watch,
            )
        )

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
    ) -> Consumer:
        """Return a new member of a consumer group; `ConsumerSettings` documents each setting.

        `start` applies where the group has no committed offset yet: "earliest", "latest", a
        `datetime` or milliseconds since 1970 UTC.
        """
        settings = ConsumerSettings(
            topic=topic,
            group=group,
            start=start,
            ack=ack,
            buffer_bytes=buffer_bytes,
            prefetch=prefetch,
            ack_timeout_s=ack_timeout_s,
            close_timeout_s=close_timeout_s,
            temporary=temporary,
            client_name=self._name,
        )
        return self._keep(
            Consumer(self._connections, self._routes, self._clock, settings, self._watch)
        )

    @property
    def _wire(self) -> tuple[Connections, Routes, Clock]:
        """Return what sessions need, for a caller that opens its own (`fmqcli.replay_producer`)."""
        return self._connections, self._routes, self._clock

    def admin(self) -> "Admin":
        """Return an admin: topics, consumer groups, offsets, status."""
        self._require_open()  # else it would dial, and leave connections that are never closed
        from fmqclient.admin.client import Admin  # only now: most programs need none

        return Admin(self._connections, self._routes, self._clock)
