"""Sends that wait for room, and abandoned futures, delay no other send."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import fmqclient
from fmqclient.producer.buffer_waiters import BufferWaiters
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqcore.errors import InvalidArgument, Overloaded, Unavailable


@pytest.fixture
async def one() -> AsyncIterator[ClusterDouble]:
    async with cluster(1) as double:
        yield double


async def test_send_that_stopped_waiting_takes_no_turn(
    one: ClusterDouble,
) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=1) as p:
        await p.send("orders", b"warm", key=b"k")
        held = [True]
        one.brokers["g1-0"].script = lambda batch: "hang" if held else None
        under_way = asyncio.ensure_future(p.send("orders", b"a", key=b"k"))
        await until(lambda: p.outstanding)
        gives_up = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
        waits = asyncio.ensure_future(p.send("orders", b"c", key=b"k"))
        await until(lambda: len(p._waiters) == 2)
        gives_up.cancel()
        await asyncio.wait([gives_up])
        held.clear()
        one.brokers["g1-0"].reset_streams()
        async with asyncio.timeout(20):
            await asyncio.gather(under_way, waits)
    assert one.values() == [b"warm", b"a", b"c"]


async def test_room_for_many_is_given_to_many(one: ClusterDouble) -> None:
    """They wake in one turn, so that their records are one message again."""
    broker = one.brokers["g1-0"]
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=50) as p:
        await p.send("orders", b"warm", key=b"k")
        before = len(broker.requests)
        await asyncio.gather(*(p.send("orders", b"%d" % n, key=b"k") for n in range(500)))
        assert len(broker.requests) - before < 100
    assert sorted(one.values()) == sorted([b"warm", *(b"%d" % n for n in range(500))])


async def test_records_of_one_key_keep_send_order_while_waiting(
    one: ClusterDouble,
) -> None:
    """A send that woke without room used to go to the end, and later ones overtook it."""
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=50) as p:
        await asyncio.gather(*(p.send("orders", b"%d" % n, key=b"k") for n in range(500)))
    assert one.values() == [b"%d" % n for n in range(500)]


async def test_small_records_do_not_overtake_a_large_one(one: ClusterDouble) -> None:
    large = b"x" * 700
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_bytes=1000) as p:
        values = [b"a" * 300, b"b" * 300, large, b"c", large, b"d"]
        await asyncio.gather(*(p.send("orders", value, key=b"k") for value in values))
    assert one.values() == values


async def test_headers_and_tags_wait_for_room_too(one: ClusterDouble) -> None:
    headers = {"trace": b"t" * 600}
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_bytes=1000) as p:
        sends = (p.send("orders", b"%d" % n, key=b"k", headers=headers) for n in range(4))
        await asyncio.gather(*sends)
    assert one.values() == [b"0", b"1", b"2", b"3"]


async def test_turn_of_a_cancelled_send_goes_to_the_next(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=1) as p:
        await p.send("orders", b"warm", key=b"k")
        one.brokers["g1-0"].slow = lambda: 0.2
        first = p.send_nowait("orders", b"a", key=b"k")
        leaves = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
        waits = asyncio.ensure_future(p.send("orders", b"c", key=b"k"))
        await until(lambda: len(p._waiters) == 2)
        first.add_done_callback(lambda _: leaves.cancel())
        async with asyncio.timeout(20):
            await waits
    assert one.values() == [b"warm", b"a", b"c"]


async def test_no_send_overtakes_waiters_and_close_fails_them(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=1) as p:
        await p.send("orders", b"warm", key=b"k")
        held = [True]
        one.brokers["g1-0"].script = lambda batch: "hang" if held else None
        first = p.send_nowait("orders", b"a", key=b"k")
        waits = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
        await until(lambda: len(p._waiters) == 1)
        with pytest.raises(Overloaded, match="1 sends wait for room"):
            p.send_nowait("orders", b"c", key=b"k")
        closing = asyncio.ensure_future(p.close())
        with pytest.raises(Unavailable, match="closed"):
            await waits
        held.clear()
        one.brokers["g1-0"].reset_streams()
        await asyncio.gather(closing, first)
    assert one.values() == [b"warm", b"a"]


async def test_cancelled_future_changes_no_other_offset(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        await p.send("orders", b"warm", key=b"k")
        futures = [p.send_nowait("orders", b"%d" % n, key=b"k") for n in range(3)]
        futures[1].cancel()
        assert [(await futures[n]).offset for n in (0, 2)] == [1, 3]
    assert one.values() == [b"warm", b"0", b"1", b"2"]


@pytest.mark.parametrize("mistake", [{"topic": []}, {"headers": {"h": "\ud800"}}, {"key": 7}])
async def test_bad_record_waiting_for_room_fails_and_blocks_no_send(
    one: ClusterDouble, mistake: dict[str, Any]
) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=1) as p:
        await p.send("orders", b"warm", key=b"k")
        one.brokers["g1-0"].slow = lambda: 0.1
        first = p.send_nowait("orders", b"a", key=b"k")
        wrong = {"topic": "orders", "value": b"x", "key": b"k"} | mistake
        refused = asyncio.ensure_future(p.send(**wrong))
        waits = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
        async with asyncio.timeout(20):
            with pytest.raises(InvalidArgument):
                await refused
            await asyncio.gather(first, waits)
    assert one.values() == [b"warm", b"a", b"b"]


async def test_any_exception_reaches_its_waiter() -> None:
    room = [False]

    def call(error: Exception | None) -> int:
        if not room:
            return 1
        raise error or Overloaded("full")

    turns: BufferWaiters[int] = BufferWaiters()
    first = asyncio.ensure_future(turns.take(lambda: call(None)))
    bug = asyncio.ensure_future(turns.take(lambda: 1 // 0))
    last = asyncio.ensure_future(turns.take(lambda: call(None)))
    await until(lambda: len(turns) == 3)
    room.clear()
    turns.admit_soon()
    async with asyncio.timeout(20):
        assert await first == await last == 1
        with pytest.raises(ZeroDivisionError):
            await bug


async def test_flush_does_not_wait_for_a_started_linger(one: ClusterDouble) -> None:
    """Nor does a close: records gathered for longer than its timeout would be lost."""
    async with fmqclient.connect(one.url) as c:
        async with c.producer(linger_ms=100_000, close_timeout_s=1) as p:
            await p.send("orders", b"warm", key=b"k")
            p.send_nowait("orders", b"a", key=b"k")
            await asyncio.sleep(0.05)
            async with asyncio.timeout(20):
                await p.flush()
            p.send_nowait("orders", b"b", key=b"k")
            await asyncio.sleep(0.05)
    assert one.values() == [b"warm", b"a", b"b"]


async def test_a_flush_cuts_short_each_linger_until_all_is_sent(one: ClusterDouble) -> None:
    """Records that await an answer when the flush starts do not linger again after it."""
    async with fmqclient.connect(one.url) as c:
        async with c.producer(linger_ms=100_000, close_timeout_s=5, pipeline=1) as p:
            await p.send("orders", b"warm", key=b"k")
            one.brokers["g1-0"].slow = lambda: 0.2
            p.send_nowait("orders", b"a", key=b"k")
            flush = asyncio.create_task(p.flush())
            await asyncio.sleep(0.05)
            last = p.send_nowait("orders", b"b", key=b"k")
        await flush
    assert last.exception() is None
    assert one.values() == [b"warm", b"a", b"b"]
