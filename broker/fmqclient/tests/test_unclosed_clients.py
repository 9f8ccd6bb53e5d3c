"""Unclosed parts of a program: a log line and a `ResourceWarning` that name them."""

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable, Iterator

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster
from fmqclient.tests.test_sync import double as double

Logged = Callable[[], list[str]]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Logged]:
    """Return the logged text, after checking that the warning has the same text."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        caplog.set_level(logging.WARNING, "fmqclient")

        def collected() -> list[str]:
            gc.collect()
            lines = [r.getMessage() for r in caplog.records if "never closed" in r.getMessage()]
            given = [str(w.message) for w in caught if "never closed" in str(w.message)]
            assert sorted(lines) == sorted(given)
            return lines

        yield collected


def test_open_parts_at_loop_end_are_named(logged: Logged) -> None:
    async def work() -> None:
        async with cluster(1) as one:
            client = await fmqclient.connect(one.url).__aenter__()
            producer = await client.producer().__aenter__()
            await producer.send("orders", b"v")
            await client.consumer("orders", group="billing").__aenter__()

    asyncio.run(work())
    lines = logged()
    for named in (
        "a client of fmq://",
        "producer to 'orders'",
        "topic 'orders' in group 'billing'",
    ):
        assert sum(named in line for line in lines) == 1, (named, lines)
    assert len(lines) == 3


async def test_closing_a_client_names_its_open_parts(logged: Logged) -> None:
    async with cluster(1) as one, fmqclient.connect(one.url) as c:
        producer = await c.producer().__aenter__()
        consumer = await c.consumer("orders", group="billing").__aenter__()
        await c.close()
        lines = logged()
        await producer.close()
        await consumer.close()
    assert len(lines) == 2
    assert any("'billing'" in line for line in lines)


async def test_closed_or_unopened_parts_log_nothing(logged: Logged) -> None:
    async with cluster(1) as one:
        async with fmqclient.connect(one.url) as c:
            c.producer()
            async with c.producer() as p, c.consumer("orders", group="billing"):
                await p.send("orders", b"v")
            with pytest.raises(fmqclient.UnknownTopic):
                await c.consumer("typo", group="billing").__aenter__()
        fmqclient.connect(one.url)
    assert logged() == []


def test_a_forgotten_sync_client_is_named_with_its_parts(
    double: ClusterDouble, logged: Logged
) -> None:
    client = fmqclient.sync.connect(double.url)
    client.consumer("orders", group="billing")
    inner, loop = client._client, client._loop
    del client
    lines = logged()
    loop.run(inner.close())
    loop.stop()
    assert [line.split(" ")[1] for line in lines] == ["consumer", "client"]


async def test_part_that_is_opened_again_is_refused_at_once() -> None:
    async with cluster(1) as one, fmqclient.connect(one.url) as c:
        for part in (c.producer(), c.consumer("orders", group="billing")):
            async with part:
                pass
            with pytest.raises(fmqclient.InvalidArgument, match="opened once"):
                await part.__aenter__()


async def test_parts_need_an_open_client() -> None:
    """Nothing refreshes the routes of another one: at a failover its parts would hang."""
    async with cluster(1) as one:
        c = fmqclient.connect(one.url)
        makers: tuple[Callable[[], object], ...] = (
            c.producer,
            c.admin,
            lambda: c.ordered_producer("orders"),
            lambda: c.consumer("orders", group="billing"),
        )
        for make in makers:
            with pytest.raises(fmqclient.Unavailable, match="open the client first: async with"):
                make()
        async with c:
            assert all(make() for make in makers)
        for make in makers:
            with pytest.raises(fmqclient.Unavailable, match="this client is closed"):
                make()
