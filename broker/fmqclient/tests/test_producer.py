"""The producer against a double that speaks the real protocol: order, retries, re-routing."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

import fmqclient
from fmqclient.producer.producer import Producer
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqcore.errors import ErrorCode
from fmqcore.ids import Permission


@pytest.fixture
async def one() -> AsyncIterator[ClusterDouble]:
    async with cluster(1) as double:
        yield double


@pytest.fixture
async def two() -> AsyncIterator[ClusterDouble]:
    async with cluster(2) as double:
        yield double


async def test_send_returns_where_the_record_is_stored(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        first = await p.send("orders", b"a", key=b"42", headers={"x": "1"}, tag=b"t")
        second = await p.send("orders", b"b", key=b"42")
    assert (first.group, first.offset) == ("g1", 0)
    assert (second.group, second.queue, second.offset) == (first.group, first.queue, 1)
    stored = one.groups["g1"].stored[first.queue]
    assert [b.values for b in stored] == [[b"a"], [b"b"]]
    assert stored[0].keys == [b"42"]
    assert stored[0].header.tag_mask


async def test_sends_of_one_turn_are_one_message(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        await p.send("orders", b"warm")
        before = len(one.brokers["g1-0"].requests)
        results = await asyncio.gather(*(p.send("orders", b"%d" % n) for n in range(500)))
        requests = one.brokers["g1-0"].requests[before:]
    assert len(requests) == 1
    assert len(requests[0].batches) == 1
    assert [r.offset for r in results] == list(range(results[0].offset, results[0].offset + 500))


async def test_keys_of_one_turn_go_in_one_message_and_keep_their_order(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        await asyncio.gather(
            *(p.send("orders", b"%d" % n, key=b"%d" % (n % 7)) for n in range(700))
        )
    for key in range(7):
        wanted = [b"%d" % n for n in range(700) if n % 7 == key]
        assert [v for v in one.values() if int(v) % 7 == key] == wanted


async def test_send_batch_and_flush(two: ClusterDouble) -> None:
    async with fmqclient.connect(two.url) as c, c.producer(linger_ms=20) as p:
        results = await p.send_batch("orders", [b"a", b"b"], keys=[b"k", b"k"])
        assert results[1].offset == results[0].offset + 1
        futures = [p.send_nowait("orders", b"x") for _ in range(10)]
        await p.flush()
        assert all(f.done() for f in futures)
        assert p.outstanding == 0


async def test_closing_sends_pending_records(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c:
        async with c.producer() as p:
            future = p.send_nowait("orders", b"last")
        assert future.result().offset == 0
        with pytest.raises(fmqclient.Unavailable, match="closed"):
            p.send_nowait("orders", b"x")


async def test_send_with_lost_answer_is_retried_and_stored_once(one: ClusterDouble) -> None:
    fates = iter(["lose"])
    one.brokers["g1-0"].script = lambda batch: next(fates, None)
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        first = await p.send("orders", b"a", key=b"k")
        second = await p.send("orders", b"b", key=b"k")
    assert (first.offset, second.offset) == (0, 1)
    assert one.values() == [b"a", b"b"]
    assert one.brokers["g1-0"].opened == 2


async def test_unknown_outcome_is_retried_only_at_its_broker(two: ClusterDouble) -> None:
    """The master dies with an answer pending: that batch waits for it, later ones go elsewhere."""
    async with fmqclient.connect(two.url) as c, c.producer() as p:
        await p.send("orders", b"warm", group="g1")
        await p.send("orders", b"warm", group="g2")
        master = two.brokers["g1-0"]
        master.script = lambda batch: "hang"
        owed = p.send_nowait("orders", b"owed", group="g1", queue=0)
        await until(lambda: len(master.requests) == 2)
        await master.stop()
        later = [await p.send("orders", b"later", key=b"%d" % n) for n in range(20)]
        assert {r.group for r in later} == {"g2"}
        assert not owed.done()
        master.script = lambda batch: None
        await master.start()
        assert (await owed).group == "g1"
    assert two.values().count(b"owed") == 1


async def test_unknown_outcome_ends_as_delivery_unknown(one: ClusterDouble) -> None:
    one.brokers["g1-0"].script = lambda batch: "unknown"
    async with fmqclient.connect(one.url) as c, c.producer(delivery_timeout_s=1) as p:
        with pytest.raises(fmqclient.DeliveryUnknown):
            await p.send("orders", b"a", key=b"k")
        one.brokers["g1-0"].script = lambda batch: None
        # The hole must not make the next batch look like a retry.
        result = await p.send("orders", b"b", key=b"k")
        assert result.offset == 1
    assert one.values() == [b"a", b"b"]


async def test_late_success_after_unknown_outcome_is_ok(one: ClusterDouble) -> None:
    fates = iter(["unknown", "unknown"])
    one.brokers["g1-0"].script = lambda batch: next(fates, None)
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        assert (await p.send("orders", b"a")).offset == 0
    assert one.values() == [b"a"]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OVERLOADED, ErrorCode.STORAGE_FULL]
)
async def test_refused_send_goes_to_another_group_at_once(
    two: ClusterDouble, code: ErrorCode
) -> None:
    two.brokers["g1-0"].script = lambda batch: code
    async with fmqclient.connect(two.url) as c, c.producer() as p:
        futures = [p.send_nowait("orders", b"%d" % n, key=b"%d" % n) for n in range(100)]
        results = await asyncio.gather(*futures)
    assert {r.group for r in results} == {"g2"}
    assert sorted(two.values(), key=int) == [b"%d" % n for n in range(100)]


async def test_refused_send_without_another_group_is_retried_in_order(one: ClusterDouble) -> None:
    calls = count()
    one.brokers["g1-0"].script = lambda batch: (
        ErrorCode.OVERLOADED if next(calls) % 3 != 2 else None
    )
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        futures = []
        for n in range(60):
            futures.append(p.send_nowait("orders", b"%d" % n, key=b"k"))
            if n % 10 == 0:
                await asyncio.sleep(0.002)
        await asyncio.gather(*futures)
    assert one.values() == [b"%d" % n for n in range(60)]


async def test_send_refused_until_its_deadline_reports_the_cause(one: ClusterDouble) -> None:
    one.brokers["g1-0"].script = lambda batch: ErrorCode.NOT_ENOUGH_REPLICAS
    async with fmqclient.connect(one.url) as c, c.producer(delivery_timeout_s=0.5) as p:
        with pytest.raises(fmqclient.NotEnoughReplicas, match="not stored in time by group g1"):
            await p.send("orders", b"a")
    assert one.values() == []


async def test_lost_permission_moves_writes_ignoring_stale_routes(
    two: ClusterDouble,
) -> None:
    async with fmqclient.connect(two.url) as c, c.producer() as p:
        await p.send("orders", b"warm", group="g1")
        stale = two.route("g1")
        two.groups["g1"].epoch = 2
        two.brokers["g1-0"].permission = Permission.NONE
        results = [await p.send("orders", b"x", key=b"%d" % n) for n in range(20)]
        assert {r.group for r in results} == {"g2"}
        # The slave becomes the writer (epoch 3); one broker still returns the old route.
        two.groups["g1"].epoch = 3
        two.brokers["g1-1"].permission = Permission.FULL
        assert (await p.send("orders", b"y", group="g1")).group == "g1"
        two.shown["g1"] = stale
        await two.brokers["g1-1"].stop()
        two.brokers["g1-1"].permission = Permission.NONE
        two.brokers["g1-0"].permission = Permission.FULL
        assert (await p.send("orders", b"z", group="g1")).group == "g1"
    assert sorted(two.groups["g1"].values()) == [b"warm", b"y", b"z"]


async def test_session_refused_in_flight_keeps_queue_order(
    two: ClusterDouble,
) -> None:
    """Permission changes while keys are sent: order holds per queue, with no duplicates."""
    async with fmqclient.connect(two.url) as c, c.producer() as p:
        futures = []
        for n in range(2000):
            futures.append(p.send_nowait("orders", b"%d" % n, key=b"%d" % (n % 50)))
            if n % 100 == 50:
                two.brokers["g1-0"].permission = Permission.NONE
            if n % 100 == 0:
                two.brokers["g1-0"].permission = Permission.FULL
            if n % 10 == 0:
                await asyncio.sleep(0.001)
        two.brokers["g1-0"].permission = Permission.FULL
        await asyncio.gather(*futures)
    assert sorted(map(int, two.values())) == list(range(2000))
    for group in two.groups.values():
        for queue in range(4):
            numbers = [int(v) for v in group.values(queue)]
            by_key = {k: [n for n in numbers if n % 50 == k] for k in range(50)}
            assert all(v == sorted(v) for v in by_key.values())


async def test_lost_streams_in_mid_flight_store_everything_once(one: ClusterDouble) -> None:
    calls = count(1)
    fates = {5: "lose", 9: "drop", 14: "lose", 15: "drop", 21: "unknown", 30: "lose"}
    one.brokers["g1-0"].script = lambda batch: fates.get(next(calls))
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        futures = []
        for n in range(1000):
            futures.append(p.send_nowait("orders", b"%d" % n, key=b"%d" % (n % 3)))
            if n % 10 == 0:
                await asyncio.sleep(0.002)
        results = await asyncio.gather(*futures)
    assert sorted(map(int, one.values())) == list(range(1000))
    for key in range(3):
        assert [n for n in map(int, one.values()) if n % 3 == key] == list(range(key, 1000, 3))
    stored = {
        (q, b.base_offset + i): v
        for q, batches in one.groups["g1"].stored.items()
        for b in batches
        for i, v in enumerate(b.values)
    }
    assert all(stored[(r.queue, r.offset)] == b"%d" % n for n, r in enumerate(results))


async def test_batch_too_large_for_the_broker_is_split(one: ClusterDouble) -> None:
    one.brokers["g1-0"].script = lambda batch: (
        ErrorCode.TOO_LARGE if batch.record_count > 100 else None
    )
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        await asyncio.gather(*(p.send("orders", b"%d" % n, key=b"k") for n in range(1000)))
        one.brokers["g1-0"].script = lambda batch: ErrorCode.TOO_LARGE
        with pytest.raises(fmqclient.TooLarge):
            await p.send("orders", b"x")
    assert one.values() == [b"%d" % n for n in range(1000)]


async def test_a_silent_broker_is_left(two: ClusterDouble) -> None:
    """It answers nothing, not even routes: pending batches wait, the rest goes elsewhere."""
    async with fmqclient.connect(two.url) as c, c.producer() as p:
        await p.send("orders", b"warm", group="g1")
        master = two.brokers["g1-0"]
        master.script = lambda batch: "hang"
        p.send_nowait("orders", b"owed", group="g1", queue=0)
        await until(lambda: len(master.requests) == 2)
        await master.stop()
        await until(lambda: not _usable(p, "g1"))
        assert (await p.send("orders", b"x")).group == "g2"
        master.script = lambda batch: None
        await master.start()


def _usable(p: Producer, group: str) -> bool:
    return next(sender.usable for name, sender in p._senders.items() if name == group)


async def test_mistakes_are_typed(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(max_outstanding_records=3) as p:
        with pytest.raises(fmqclient.UnknownTopic, match="fmq topic create nope"):
            await p.send("nope", b"x")
        with pytest.raises(fmqclient.InvalidArgument, match="value must be bytes, not str"):
            p.send_nowait("orders", "x")  # type: ignore[arg-type]
        send: Any = p.send
        for arguments, expected in (
            (("orders", None), "value must be bytes, not NoneType"),
            (("orders", "x"), "value must be bytes, not str"),
            (("orders", 7), "value must be bytes, not int"),
            ((None, b"x"), "None is no name for a topic"),
            (("a/b", b"x"), "'a/b' is no name for a topic"),
        ):
            with pytest.raises(fmqclient.InvalidArgument, match=expected):
                await send(*arguments)
        for options, expected in (
            ({"key": 7}, "key must be bytes, not int"),
            ({"key": "k"}, "key must be bytes, not str"),
            ({"tag": 7}, "tag must be bytes, not int"),
            ({"headers": {"a": 1}}, "headers must map str to str or bytes"),
            ({"headers": {1: b"a"}}, "headers must map str to str or bytes"),
            ({"headers": "a=1"}, "headers must map str to str or bytes"),
            ({"group": "g1", "queue": "0"}, "queue='0' must be a queue's number"),
            ({"group": 1}, "group=1 must be a broker group's name"),
        ):
            with pytest.raises(fmqclient.InvalidArgument, match=expected):
                await send("orders", b"x", **options)
        for values, expected in ((b"xy", "values must be a list"), ([b"x", None], "value must be")):
            with pytest.raises(fmqclient.InvalidArgument, match=expected):
                await p.send_batch("orders", values)  # type: ignore[arg-type]
        with pytest.raises(fmqclient.TooLarge, match="at most"):
            p.send_nowait("orders", bytes(1024 * 1024))
        with pytest.raises(fmqclient.UnknownQueue, match=r"no queue 4.*0 to 3 in group g1"):
            await p.send("orders", b"x", queue=4)
        with pytest.raises(fmqclient.InvalidArgument, match="no queue in group"):
            await p.send("orders", b"x", group="g9")
        for _ in range(3):
            p.send_nowait("orders", b"x")
        with pytest.raises(fmqclient.Overloaded, match="outstanding"):
            p.send_nowait("orders", b"x")
        await asyncio.gather(*(p.send("orders", b"x") for _ in range(20)))  # waits for room
        with pytest.raises(fmqclient.InvalidArgument, match="acks='never'"):
            c.producer(acks="never")
        with pytest.raises(fmqclient.InvalidArgument, match="linger_ms=nan must be a number"):
            c.producer(linger_ms=float("nan"))
        with pytest.raises(
            fmqclient.InvalidArgument, match=r"max_batch_bytes=1\.5 must be a whole"
        ):
            c.producer(max_batch_bytes=1.5)  # type: ignore[arg-type]
    with pytest.raises(fmqclient.InvalidArgument, match="begins with fmq://"):
        fmqclient.connect("http://x")
    with pytest.raises(fmqclient.Unavailable, match="no broker answers"):
        async with fmqclient.connect("fmq://127.0.0.1:1", timeout_s=0.2):
            pass


async def test_one_way_is_not_answered(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(acks="one_way") as p:
        results = [await p.send("orders", b"%d" % n, key=b"k") for n in range(10)]
        assert {r.offset for r in results} == {-1}
        await until(lambda: len(one.values()) == 10)


async def test_a_deleted_topic_and_one_that_grows(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer() as p:
        await p.send("orders", b"x")
        one.topics["orders"] = 2  # deleted and recreated
        await c.admin().topics()
        await p.send("orders", b"y")
        assert one.brokers["g1-0"].requests[-1].batches[0].topic_id == 2
        del one.topics["orders"]
        await c.admin().topics()
        await until(lambda: "orders" not in p._accumulator.topics)
        with pytest.raises(fmqclient.UnknownTopic):
            await p.send("orders", b"z")
