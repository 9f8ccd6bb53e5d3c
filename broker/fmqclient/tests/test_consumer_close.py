"""Failures while a consumer opens or closes are reported, and no task is left running."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import fmqclient
from fmqadapters.process.clock import SystemClock
from fmqclient.consumer.consumer import Consumer
from fmqclient.settings import ConsumerSettings
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqclient.tests.test_consumer import fill, one, take
from fmqcore.errors import StaleAssignment, Unavailable
from fmqcore.ids import Permission
from fmqcore.routing import RouteTable
from fmqcore.zk.topic import TopicConfig

__all__ = ["one"]  # the fixture


class Routes:
    """Routes of a cluster without a group."""

    def __init__(self) -> None:
        self.table = RouteTable()

    async def topic(self, name: str) -> TopicConfig | None:
        return None

    def on_change(self, listener: object) -> Any:
        return lambda: None


class BrokenTable:
    """A table that fails when the topic is looked up."""

    @property
    def topics(self) -> Any:
        raise Unavailable("the table is broken")


def consumer(routes: Routes) -> Consumer:
    settings = ConsumerSettings(topic="orders", group="billing")
    return Consumer(cast(Any, None), cast(Any, routes), SystemClock(), settings)


async def test_an_error_before_it_is_open_is_raised_and_not_waited_for() -> None:
    routes = Routes()
    routes.table = cast(Any, BrokenTable())
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="the table is broken"):
            await consumer(routes).__aenter__()


@pytest.mark.parametrize("turns", [1, 2])
async def test_cancelled_while_it_opens_nothing_runs_on(turns: int) -> None:
    before = asyncio.all_tasks()
    opening = asyncio.create_task(consumer(Routes()).__aenter__())
    for _ in range(turns):  # it has started and waits for its sessions; they are created
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() == before


async def test_lost_acks_are_reported_after_a_timed_out_commit() -> None:
    """They are reported once: the next commit would report everything stored."""
    asked: list[asyncio.Future[None]] = [asyncio.Future() for _ in range(3)]
    sub = consumer(Routes())
    sessions = [SimpleNamespace(unstored=True, commit=lambda f=f: f) for f in asked]
    sub._sessions = cast(Any, dict(enumerate(sessions)))
    asked[2].set_exception(StaleAssignment("g2/0 went to others"))
    with pytest.raises(StaleAssignment):
        await sub.commit(timeout_s=0)
    assert all(each.done() for each in asked), "no caller waits any more"


async def test_close_between_two_readers_sends_acks_to_the_next(
    one: ClusterDouble,
) -> None:
    """Otherwise its acks reach no broker, and all messages are redelivered to others."""
    await fill(one, 10)
    master, slave = one.brokers["g1-0"], one.brokers["g1-1"]
    async with fmqclient.connect(one.url) as c:
        sub = await c.consumer("orders", group="billing").__aenter__()
        messages = await take(sub, 10)
        master.permission = Permission.NONE
        master.reset_streams()
        await until(lambda: sub.connected["g1"])
        for m in messages:
            await m.ack()
        closing = asyncio.create_task(sub.close())
        await asyncio.sleep(0.1)
        one.groups["g1"].epoch, slave.permission = 2, Permission.READ
        await closing
    assert sum(one.groups["g1"].floors.values()) == 10
    assert slave.consumers[-1].left


async def test_close_without_acks_does_not_wait_for_the_next_reader(
    one: ClusterDouble,
) -> None:
    await fill(one, 10)
    async with fmqclient.connect(one.url) as c:
        sub = await c.consumer("orders", group="billing", close_timeout_s=1000).__aenter__()
        await take(sub, 10)
        one.brokers["g1-0"].permission = Permission.NONE
        one.brokers["g1-0"].reset_streams()
        await until(lambda: sub.connected["g1"])
        async with asyncio.timeout(20):
            await sub.close()


@pytest.mark.parametrize("close_timeout_s", [0, 0.05])
async def test_close_waits_for_a_reader_only_until_its_timeout(
    one: ClusterDouble, close_timeout_s: float
) -> None:
    await fill(one, 10)
    async with fmqclient.connect(one.url) as c:
        sub = c.consumer("orders", group="billing", close_timeout_s=close_timeout_s)
        async with sub, asyncio.timeout(20):
            (m,) = await take(sub, 1)
            one.brokers["g1-0"].permission = Permission.NONE
            one.brokers["g1-0"].reset_streams()
            await until(lambda: sub.connected["g1"])
            await m.ack()
            await sub.close()


async def test_session_waiting_for_a_reader_delays_no_other_session() -> None:
    """Its acks are sent and its queues given back at once."""
    async with cluster(2) as two, fmqclient.connect(two.url) as c:
        async with c.producer() as p:
            for group in ("g1", "g2"):
                await p.send_batch("orders", [b"a", b"b"], group=group, queue=0)
        sub = await c.consumer("orders", group="billing", close_timeout_s=0.3).__aenter__()
        messages = await take(sub, 4)
        two.brokers["g1-0"].permission = Permission.NONE
        two.brokers["g1-0"].reset_streams()
        await until(lambda: sub.connected["g1"])
        for m in messages:
            await m.ack()
        await sub.close()
        assert two.groups["g2"].floors[("billing", 0)] == 2
        assert two.brokers["g2-0"].consumers[-1].left


async def test_fetch_ends_at_a_close_and_is_refused_after_it(one: ClusterDouble) -> None:
    """A loop over `fetch` ends, instead of turning without a message for ever."""
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        waiting = asyncio.create_task(sub.fetch())
        await asyncio.sleep(0)
        await sub.close()
        assert await waiting == []
        with pytest.raises(Unavailable, match="the consumer is closed"):
            await sub.fetch(1, timeout=0)
