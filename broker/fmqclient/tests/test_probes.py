"""Questions to a silent broker: what proves that it is dead, and how many calls they cost."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from fmqclient.net.connections import Connections
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.tests.test_loop_turns import HeldClock
from fmqport.transport import Method, TransportError
from fmqproto.v1 import client_pb2

ADDRESS = "127.0.0.1:1"


class Broker:
    """Stands in for transport and connection: notes calls; a test ends each."""

    def __init__(self) -> None:
        self.requests: list[client_pb2.RouteRequest] = []
        self.during: Callable[[], Any] = lambda: None
        self.answer: asyncio.Future[None] | None = None  # None: no answer in time

    def connect(self, _: str) -> Any:
        return self

    async def call(self, _: Method, request: client_pb2.RouteRequest, __: float) -> None:
        self.requests.append(request)
        self.during()
        if self.answer is None:
            raise TransportError("no answer")
        await asyncio.shield(self.answer)


class Rig:
    """A client's questions to one broker."""

    def __init__(self) -> None:
        self.broker, self.clock = Broker(), HeldClock()
        self.watch = LoopWatch(self.clock)
        self.connections = Connections(cast(Any, self.broker))
        self.heard_ms = 0

    async def ask(self) -> int:
        probe = self.connections.probe(ADDRESS)
        return await probe.require_alive(self.clock, self.watch, lambda: self.heard_ms, 1.5)

    def begin(self, count: int) -> list["asyncio.Task[int]"]:
        self.broker.answer = asyncio.get_running_loop().create_future()
        return [asyncio.create_task(self.ask()) for _ in range(count)]


async def test_silence_of_a_broker_while_blocked_is_no_proof() -> None:
    """Its answer had arrived, and the program did not let the client read it."""
    rig = Rig()

    def blocked_once() -> None:
        rig.clock.now_ms += 5
        if len(rig.broker.requests) == 1:
            rig.watch._blocked_until_ms = rig.clock.now_ms

    rig.broker.during = blocked_once
    with pytest.raises(TransportError):
        await rig.ask()
    assert len(rig.broker.requests) == 2


async def test_a_broker_heard_while_asked_is_alive() -> None:
    rig = Rig()

    def hears() -> None:
        rig.clock.now_ms += 5
        rig.heard_ms = rig.clock.now_ms

    rig.broker.during = hears
    assert await rig.ask() == rig.heard_ms
    assert len(rig.broker.requests) == 1


async def test_a_thousand_silent_parts_cost_one_call() -> None:
    rig = Rig()
    asking = rig.begin(1000)
    await asyncio.sleep(0)
    assert rig.broker.answer is not None
    rig.broker.answer.set_result(None)
    assert set(await asyncio.gather(*asking)) == {1000}
    rig.clock.now_ms += 499
    assert await rig.ask() == 1000  # its silence is counted from there
    assert len(rig.broker.requests) == 1
    rig.clock.now_ms += 1
    assert await rig.ask() == 1500
    asked = [list(request.topics) for request in rig.broker.requests]
    assert asked == [[""], [""]], "an answer to no name would have all topics of the cluster"


async def test_a_dead_broker_is_dead_for_all_that_share_a_question() -> None:
    rig = Rig()
    asking = rig.begin(3)
    await asyncio.sleep(0)
    assert rig.broker.answer is not None
    rig.broker.answer.set_exception(TransportError("no answer in time"))
    for failed in asking:
        with pytest.raises(TransportError, match="no answer in time"):
            await failed
    assert len(rig.broker.requests) == 1


async def test_parts_ask_again_if_the_asking_one_has_ended() -> None:
    rig = Rig()
    first, *others = rig.begin(3)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0.01)
    assert rig.broker.answer is not None
    rig.broker.answer.set_result(None)
    assert await asyncio.gather(*others) == [1000, 1000]
    assert len(rig.broker.requests) == 2


async def test_older_news_do_not_count_as_now() -> None:
    """A question that is older than the caller's last news: it was alive then, no later."""
    rig = Rig()
    first, *others = rig.begin(2)
    await asyncio.sleep(0)
    rig.heard_ms, rig.clock.now_ms = 1001, 1500
    assert rig.broker.answer is not None
    rig.broker.answer.set_exception(TransportError("no answer in time"))
    assert await asyncio.gather(first, *others) == [1001, 1001]
