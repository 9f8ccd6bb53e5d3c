"""Foreign code cancels every task of the loop: no caller hangs, all errors are typed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import fmqclient
from fmqclient.consumer.session import Session
from fmqclient.tests.double import ClusterDouble, cluster
from fmqclient.tests.test_consumer import fill

LONG_S = 15
LAST_WORDS = (".flush", "._leave")


@pytest.fixture
async def one() -> AsyncIterator[ClusterDouble]:
    async with cluster(1) as double:
        yield double


def inner() -> set["asyncio.Task[object]"]:
    """Return the client's tasks: the double has tasks in this process, too."""
    names = (
        "Producer.",
        "Consumer.",
        "Sender.",
        "Session.",
        "Routes.",
        "LoopWatch.",
        "KnownTopics.",
    )
    return {
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "").startswith(names)
    }


async def cancel_all(*keep: "asyncio.Task[object]") -> None:
    cancelled = inner() - set(keep)
    assert cancelled
    for task in cancelled:
        task.cancel()
    await asyncio.wait(cancelled)


async def close_while_cancelled(part: fmqclient.Producer | fmqclient.Consumer) -> None:
    """Close; meanwhile all inner tasks are cancelled but the one that waits for answers."""
    closing = asyncio.create_task(part.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    last = {
        task
        for task in inner()
        if getattr(task.get_coro(), "__qualname__", "").endswith(LAST_WORDS)
    }
    assert len(last) == 1
    await cancel_all(closing, *last)
    await closing


async def test_cancelled_inner_tasks_end_waiters_of_a_producer(one: ClusterDouble) -> None:
    one.brokers["g1-0"].script = lambda batch: "hang"
    async with asyncio.timeout(LONG_S), fmqclient.connect(one.url) as c:
        async with c.producer(close_timeout_s=LONG_S * 2) as p:
            waits = p.send_nowait("orders", b"v")
            await asyncio.sleep(0.05)
            await cancel_all()
            with pytest.raises(fmqclient.FmqError):
                await waits
            for topic in ("orders", "another"):
                with pytest.raises(fmqclient.Unavailable, match="cancelled"):
                    await p.send(topic, b"w")
            assert all(p.connected.values())
        with pytest.raises(fmqclient.Unavailable, match="cancelled"):
            c.producer()


async def test_cancelled_inner_tasks_end_waiters_of_a_consumer(one: ClusterDouble) -> None:
    await fill(one, 1)
    async with asyncio.timeout(LONG_S), fmqclient.connect(one.url) as c:
        async with c.consumer("orders", group="billing", close_timeout_s=LONG_S * 2) as sub:
            (m,) = await sub.fetch(1)
            one.brokers["g1-0"].tokens = False
            await m.ack()
            waits = asyncio.create_task(sub.fetch(1))
            commits = asyncio.create_task(sub.commit(LONG_S * 2))
            await asyncio.sleep(0.05)
            await cancel_all(waits, commits)
            for task in (waits, commits):
                with pytest.raises(fmqclient.Unavailable, match="cancelled"):
                    await task
            with pytest.raises(fmqclient.Unavailable, match="cancelled"):
                await anext(sub)
            assert all(sub.connected.values())


async def test_tasks_cancelled_while_a_producer_closes_end_that(one: ClusterDouble) -> None:
    one.brokers["g1-0"].script = lambda batch: "hang"
    async with asyncio.timeout(LONG_S), fmqclient.connect(one.url) as c:
        p = c.producer(close_timeout_s=LONG_S * 2)
        await p.__aenter__()
        waits = p.send_nowait("orders", b"v")
        await asyncio.sleep(0.05)
        await close_while_cancelled(p)
        with pytest.raises(fmqclient.FmqError):
            await waits


async def test_tasks_cancelled_while_a_consumer_closes_end_that(
    one: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "leave", lambda _: None)  # and no broker answers to it
    await fill(one, 1)
    async with asyncio.timeout(LONG_S), fmqclient.connect(one.url) as c:
        sub = c.consumer("orders", group="billing", close_timeout_s=LONG_S * 2)
        await sub.__aenter__()
        await sub.fetch(1)
        await close_while_cancelled(sub)
