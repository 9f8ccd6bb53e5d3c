"""A program that blocks the event loop: the client gets turns, and a stall is noticed."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

import fmqclient
from fmqadapters.process.clock import SystemClock
from fmqclient.net.connections import ask_whether_alive
from fmqclient.net.loop_turns import TURN_EVERY, TURN_MS, LoopTurns, LoopWatch
from fmqclient.tests.double import ClusterDouble, cluster
from fmqclient.tests.test_consumer import fill
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2


class HeldClock(SystemClock):
    """A clock moved by hand; a sleep may end late, as in a program that blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1000
        self.late_ms = 0
        self.next_late_ms: list[int] = []
        self.slept: list[float] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.next_late_ms:
            self.late_ms = self.next_late_ms.pop(0)
        self.now_ms += int(seconds * 1000) + self.late_ms
        await asyncio.sleep(0)


@pytest.fixture
async def one() -> AsyncIterator[ClusterDouble]:
    async with cluster(1) as double:
        yield double


async def by_fetch(sub: fmqclient.Consumer, handle: Callable[[], None], count: int) -> None:
    while count:
        for m in await sub.fetch(20):
            handle()
            count -= 1
            await m.ack()


async def by_iteration(sub: fmqclient.Consumer, handle: Callable[[], None], count: int) -> None:
    async for m in sub:
        handle()
        count -= 1
        await m.ack()
        if not count:
            return


async def by_nack(sub: fmqclient.Consumer, handle: Callable[[], None], count: int) -> None:
    for m in await sub.fetch(count):
        handle()
        await m.nack(delay_ms=60_000)


@pytest.mark.parametrize("take", [by_fetch, by_iteration])
async def test_acks_leave_while_a_handler_blocks_the_loop(
    one: ClusterDouble, take: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    await fill(one, 60, batch=60)
    broker = one.brokers["g1-0"]
    acked: list[int] = []

    def handle() -> None:
        time.sleep(0.012)
        acked.append(sum(end - first for _, first, end in broker.acks))

    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        await take(sub, handle, 60)
    assert acked[-1] > 0, "no ack reached the broker before the last message was handled"


async def test_nacks_leave_while_a_handler_blocks_the_loop(one: ClusterDouble) -> None:
    await fill(one, 60, batch=60)
    nacked: list[int] = []
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:

        def handle() -> None:
            time.sleep(0.012)
            nacked.append(len(one.brokers["g1-0"].consumers[-1].nacks))

        await by_nack(sub, handle, 50)
    assert nacked[-1] > 0, "no nack reached the broker before the last message was handled"


async def test_a_turn_is_due_after_a_time_and_after_a_count() -> None:
    clock = HeldClock()
    turns = LoopTurns(clock)
    assert not turns.due()
    clock.now_ms += TURN_MS - 1
    assert not turns.due()
    clock.now_ms += 1
    assert turns.due()
    await turns.give()
    assert not turns.due(), "the loop has turned: counted again from now on"
    assert [turns.due() for _ in range(TURN_EVERY)].index(True) == TURN_EVERY - 1


async def test_quick_fetches_give_turns_by_count_of_messages(one: ClusterDouble) -> None:
    """The clock need not move: thousands of small messages are handed out within milliseconds."""
    await fill(one, 1200, batch=1)
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        while len(sub._delivery_buffer) < 1200:
            await asyncio.sleep(0.01)
        turned = 0

        async def count_turns() -> None:
            nonlocal turned
            while True:
                turned += 1
                await asyncio.sleep(0)

        sub._turns._clock = HeldClock()
        counting = asyncio.create_task(count_turns())
        for _ in range(12):
            assert len(await sub.fetch(100)) == 100
        counting.cancel()
        assert turned >= 1200 // TURN_EVERY - 1


async def test_a_loop_that_turns_by_itself_makes_no_turn_due() -> None:
    clock = HeldClock()
    turns = LoopTurns(clock)
    for _ in range(2 * TURN_EVERY):
        clock.now_ms += TURN_MS
        assert not turns.due()
        await asyncio.sleep(0)


async def test_after_a_long_stall_the_loop_gets_time_not_a_turn() -> None:
    clock = HeldClock()
    turns = LoopTurns(clock)
    turns.due()
    clock.now_ms += 500
    assert turns.due()
    await turns.give()
    assert clock.slept == [pytest.approx(0.01)]


async def test_a_stall_is_logged_with_its_length(caplog: pytest.LogCaptureFixture) -> None:
    clock = HeldClock()
    watch = LoopWatch(clock)
    with caplog.at_level(logging.WARNING, "fmqclient"):
        running = asyncio.create_task(watch.run())
        clock.next_late_ms = [0, 2300, 2300, 0, 9000, 0]
        while clock.next_late_ms:
            await asyncio.sleep(0)
        running.cancel()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the event loop was blocked for 2.3 s",
        "the event loop was blocked for 9.0 s",
    ]


class Silent:
    """A connection to a broker that does not answer in time; `during` runs meanwhile."""

    def __init__(self, during: Callable[[], Any]) -> None:
        self.during = during
        self.asked = 0

    async def call(self, _: Any, request: client_pb2.RouteRequest, __: float) -> None:
        assert list(request.topics) == [""], "else each question brings all topics of the cluster"
        self.asked += 1
        self.during()
        raise TransportError("no answer")


async def test_silence_of_a_broker_while_blocked_is_no_proof() -> None:
    """Its answer had arrived, and the program did not let the client read it."""
    clock = HeldClock()
    watch = LoopWatch(clock)

    def blocked_once() -> None:
        clock.now_ms += 5
        if connection.asked == 1:
            watch._blocked_until_ms = clock.now_ms

    connection = Silent(blocked_once)
    with pytest.raises(TransportError):
        await ask_whether_alive(cast(Any, connection), clock, watch, lambda: 0, 1.5)
    assert connection.asked == 2


async def test_silence_of_a_broker_in_every_try_is_proof() -> None:
    """A program that blocks the loop all the time gets a verdict as well."""
    clock = HeldClock()
    watch = LoopWatch(clock)

    def blocked() -> None:
        clock.now_ms += 5
        watch._blocked_until_ms = clock.now_ms

    connection = Silent(blocked)
    with pytest.raises(TransportError):
        await ask_whether_alive(cast(Any, connection), clock, watch, lambda: 0, 1.5)
    assert connection.asked == 3


async def test_a_broker_heard_while_asked_is_alive() -> None:
    clock = HeldClock()
    heard = [0]

    def hears() -> None:
        clock.now_ms += 5
        heard[0] = clock.now_ms

    connection = Silent(hears)
    await ask_whether_alive(cast(Any, connection), clock, LoopWatch(clock), lambda: heard[0], 1.5)
    assert connection.asked == 1


async def test_deaf_time_is_measured_as_lateness_of_a_sleep() -> None:
    clock = HeldClock()
    watch = LoopWatch(clock)
    started_ms = clock.now_ms
    assert await watch.sleep(1) == 0
    assert not watch.blocked_since(started_ms)
    clock.late_ms = 4000
    assert await watch.sleep(1) == 4000
    assert watch.blocked_since(started_ms)


async def test_answers_are_read_before_deadlines_after_a_stall(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(delivery_timeout_s=0.5) as p:
        await p.send("orders", b"first")
        one.brokers["g1-0"].slow = lambda: 0.001
        late = p.send_nowait("orders", b"second")
        for _ in range(20):
            await asyncio.sleep(0)
        time.sleep(1)  # noqa: ASYNC251 - that is the program's fault, and what this is about
        assert (await late).offset >= 0


async def test_a_producer_closed_with_records_pending_warns(
    one: ClusterDouble, caplog: pytest.LogCaptureFixture
) -> None:
    one.brokers["g1-0"].script = lambda batch: "hang"
    with caplog.at_level(logging.WARNING, "fmqclient"):
        async with fmqclient.connect(one.url) as c:
            async with c.producer(close_timeout_s=0.05) as p:
                pending = [p.send_nowait("orders", b"v") for _ in range(3)]
            assert all(isinstance(f.exception(), fmqclient.FmqError) for f in pending)
    assert "closed with 3 records pending" in caplog.text
