"""One connection per broker address, shared by all producers and consumers of a client.

The transport dials, and dials again after a loss; this module only owns the connections, which live
as long as the client.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from google.protobuf.message import Message

from fmqclient.net.loop_turns import LoopWatch
from fmqcore.errors import ErrorCode, NoPermission, error_of
from fmqcore.routing import BrokerRoute
from fmqport.clock import Clock
from fmqport.transport import (
    CallRefused,
    Connection,
    Method,
    Stream,
    Transport,
    TransportError,
)
from fmqproto.v1 import client_pb2
from fmqwire.methods import ROUTES

NO_TOPIC = ""
"""Asked for by name, it leaves routes without topics; routes of no name have all of them."""
DIAL_TIMEOUT_S = 2.0
"""Timeout to connect, and again to be answered; a slower broker is passed over for now."""
_TRIES = 3
HEDGE_S = 0.3
"""After this silence the next broker is tried beside the silent one."""


class Connections:
    """The connections of one client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._by_address: dict[str, Connection] = {}

    def to(self, address: str) -> Connection:
        """Return the connection to `host:port`; no I/O."""
        connection = self._by_address.get(address)
        if connection is None:
            connection = self._by_address[address] = self._transport.connect(address)
        return connection

    async def close(self) -> None:
        """Close all connections."""
        connections, self._by_address = list(self._by_address.values()), {}
        for connection in connections:
            await connection.close()


async def ask_whether_alive(
    connection: Connection,
    clock: Clock,
    watch: LoopWatch,
    heard_ms: Callable[[], int],
    timeout_s: float,
) -> None:
    """Raise `TransportError` if a silent broker does not answer within `timeout_s` seconds.

    A try during which the program blocked the loop proves nothing, nor does one during which the
    broker was heard after all.
    """
    for tries_left in reversed(range(_TRIES)):
        started_ms = clock.monotonic_ms()
        try:
            await connection.call(ROUTES, client_pb2.RouteRequest(topics=(NO_TOPIC,)), timeout_s)
        except TransportError:
            if heard_ms() > started_ms:
                return
            if not tries_left or not watch.blocked_since(started_ms):
                raise
        else:
            return


class Backoff:
    """Delay before the next try: none at first, then doubling, with jitter, bounded."""

    __slots__ = ("_clock", "_first_ms", "_max_ms", "_tries")

    def __init__(self, clock: Clock, first_ms: float = 50, max_ms: float = 1000) -> None:
        self._clock = clock
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._tries = 0

    def next_ms(self) -> float:
        """Return the milliseconds to wait now."""
        tries, self._tries = self._tries, self._tries + 1
        if tries == 0:
            return 0.0
        bound = min(self._max_ms, self._first_ms * 2.0 ** min(tries - 1, 20))
        return self._clock.uniform(bound / 2, bound)

    async def wait(self) -> None:
        """Wait for the next pause, `next_ms`."""
        delay = self.next_ms()
        if delay > 0:
            await self._clock.sleep(delay / 1000)

    def reset(self) -> None:
        """Start again with no delay, after a success."""
        self._tries = 0


async def open_at_first(
    connections: Connections,
    brokers: Sequence[BrokerRoute],
    method: Method,
    greeting: Message,
) -> tuple[BrokerRoute, Stream, Any]:
    """Open a session at the first broker that accepts; return (broker, stream, its answer).

    Brokers are tried in order, the next one when the one before has refused, cannot be reached, or
    has not answered for `HEDGE_S` (a frozen broker must not delay the one that took over). If none
    accepts, `NoPermission` lists what each one answered; any other refusal is raised.
    """
    errors = []
    waiting = list(brokers)
    trying: dict[asyncio.Task[tuple[Stream, Any]], BrokerRoute] = {}
    try:
        while waiting or trying:
            if waiting:
                broker = waiting.pop(0)
                work = _open(connections, broker, method, greeting)
                trying[asyncio.create_task(work)] = broker
            await asyncio.wait(
                trying,
                timeout=HEDGE_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in [t for t in trying if t.done()]:
                broker = trying.pop(task)
                if task.cancelled():  # by the program, which cancels what is not its own
                    errors.append(f"{broker.id}: the attempt was cancelled")
                    continue
                try:
                    stream, answer = task.result()
                except (TransportError, NoPermission) as error:
                    errors.append(f"{broker.id}: {error}")
                else:
                    return broker, stream, answer
    finally:
        await _give_up(trying)
    raise NoPermission("; ".join(errors) or "no broker is known: check the addresses in the URL")


async def _give_up(trying: "Iterable[asyncio.Task[tuple[Stream, Any]]]") -> None:
    for task in trying:
        task.cancel()
    for task in trying:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            task.result()[0].cancel()


async def _open(
    connections: Connections, broker: BrokerRoute, method: Method, greeting: Message
) -> tuple[Stream, Any]:
    try:
        return await _greeted(connections, broker, method, greeting)
    except CallRefused as refused:
        if refused.error.code is ErrorCode.INTERNAL:  # nothing is certain: try another broker
            raise
        raise refused.error from refused


async def _greeted(
    connections: Connections, broker: BrokerRoute, method: Method, greeting: Message
) -> tuple[Stream, Any]:
    stream = await connections.to(broker.address).open(method, DIAL_TIMEOUT_S)
    try:
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await stream.send(greeting)
                answer = await stream.receive()
        except TimeoutError:
            raise TransportError(f"{broker.address}: no answer in {DIAL_TIMEOUT_S} s") from None
        if answer is None or not answer.HasField("opened"):
            raise TransportError(f"{broker.address}: ended the session at once{_why(answer)}")
        if answer.opened.HasField("error"):
            raise error_of(answer.opened.error.code, answer.opened.error.message)
    except BaseException:
        stream.cancel()
        raise
    return stream, answer


def _why(answer: Any) -> str:
    if isinstance(answer, client_pb2.ConsumeReply) and answer.HasField("error"):
        return f": {answer.error.message}"
    return ""
