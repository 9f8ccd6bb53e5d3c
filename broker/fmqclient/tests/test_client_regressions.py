"""Edge cases of the client: older topics, pinned records, cancelled or late calls."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fmqclient
from fmqclient.producer.batches import Record, record_bytes
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqclient.tests.memory import MemoryTransport, SeededClock
from fmqclient.tests.test_accumulator import G1, G2, Case
from fmqclient.tests.test_recreated_topics import answers_with, run
from fmqcore.errors import ErrorCode

Play = Callable[[ClusterDouble, fmqclient.Client], Awaitable[None]]


def play(script: Play, groups: int = 1, topics: dict[str, int] | None = None) -> None:
    """Run in virtual time over an in-memory transport."""

    async def work() -> None:
        transport = MemoryTransport(0)
        async with cluster(groups, transport=transport) as one:
            one.topics |= topics or {}
            async with fmqclient.connect(
                one.url, transport=transport, clock=SeededClock(0)
            ) as client:
                await script(one, client)

    run(work())


def sent_to(one: ClusterDouble) -> set[int]:
    """Return the numbers of the topics that were sent to."""
    return {b.topic_id for x in one.brokers.values() for r in x.requests for b in r.batches}


# ---- older topics of the same name


@pytest.mark.parametrize("under_way", [True, False])
def test_answer_lacking_a_topic_restores_no_older_one(under_way: bool) -> None:
    """One broker knew only of the deletion, the next of neither deletion nor creation."""

    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        await one.knows_only("g1-0", {})
        await one.knows_only("g1-1", {"orders": 1})
        c._routes._asked_last = one.brokers["g2-0"].address
        async with c.producer() as p:
            await p.send("orders", b"a", key=b"k")
            masters = [one.brokers[name] for name in ("g1-0", "g2-0")]
            if under_way:
                for broker in masters:
                    broker.script = lambda _: ErrorCode.OVERLOADED
                waits = p.send_nowait("orders", b"b", key=b"k")
            await asyncio.sleep(0.5)
            c._routes._asked_last = one.brokers["g1-0"].address
            await c._routes.refresh()
            await asyncio.sleep(1)
            for broker in masters:
                broker.script = lambda _: None
            if under_way:
                await waits
            await p.send("orders", b"c", key=b"k")
            assert sent_to(one) == {2}

    play(script, groups=2, topics={"orders": 2})


def test_consumer_does_not_return_to_an_older_topic() -> None:
    """Its reader died; the takeover reader and the answering broker have older knowledge."""

    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        one.topics["orders"] = one.groups["g1"].topic_id = 2
        await c._routes.refresh()
        async with c.consumer("orders", group="g") as sub:
            await until(lambda: sub.assignment)
            one.topics.clear()
            await c._routes.refresh()
            one.groups["g1"].topic_id = 1
            one.brokers["g1-0"].reset_streams()
            await asyncio.sleep(8)
            assert sub._sessions[G1]._topic_id == 2
            assert "older topic" in sub.connected["g1"]
            one.groups["g1"].topic_id = 2
            one.topics["orders"] = 2
            await until(lambda: not sub.connected["g1"])

    play(script)


def test_producers_learn_topics_their_client_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        async with c.producer() as p:
            await p.send("orders", b"a", key=b"k")
            admin = c.admin()
            answers_with(admin, 2, monkeypatch)
            await admin.create_topic("orders")
            await p.send("orders", b"x", key=b"k")
            assert one.brokers["g1-0"].requests[-1].batches[-1].topic_id == 2

    play(script)


def test_stale_topic_knowledge_is_refreshed() -> None:
    """Another client recreated it meanwhile."""

    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        one.brokers["g1-0"].script = lambda batch: (
            None if batch.topic_id in one.topics.values() else ErrorCode.UNKNOWN_TOPIC
        )
        async with c.producer() as p:
            await p.send("other", b"a")
            await c.admin().topics()
            one.topics["orders"] = 7
            await asyncio.sleep(60)
            await p.send("orders", b"x")

    play(script, topics={"other": 3})


def test_failed_lookup_keeps_the_interest_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked before the topic was created, and the last broker asked answers late."""

    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        go, real = asyncio.Event(), c._routes._known_elsewhere

        async def slow(name: str) -> None:
            await go.wait()

        async with c.producer() as p, c.producer() as q:
            await p.send("other", b"a")
            monkeypatch.setattr(c._routes, "_known_elsewhere", slow)
            first = p.send_nowait("new", b"1")
            await asyncio.sleep(0.5)
            one.topics["new"] = 4
            monkeypatch.setattr(c._routes, "_known_elsewhere", real)
            await q.send("new", b"2")
            go.set()
            await asyncio.wait([first])
            assert "new" in c._routes._topics

    play(script, groups=2, topics={"other": 3})


# ---- order and age


async def test_record_sent_after_a_move_has_its_own_age() -> None:
    """Its deadline and creation time are its own, not those of the records that just moved."""
    case = Case(delivery_timeout_s=60, born_time=True)
    old = case.put(b"old")
    case.clock.now_ms += 59_000
    case.clock.ahead_ms += 59_000
    case.accumulator.tick(case.clock.now_ms)
    case.carriers[G1].usable, case.carriers[G2].usable = False, True
    case.accumulator.remap()
    new = case.put(b"new")
    before, after = (pending_batch.born_ms for pending_batch in case.buffer(G2).pending)
    assert after - before >= 59_000
    case.clock.now_ms += 2_000
    case.accumulator.tick(case.clock.now_ms)
    assert old.done()
    assert not new.done()


async def test_pinned_record_is_not_overtaken_by_an_older_one() -> None:
    """L6: groups came and went while both waited, and the older one was free to go."""
    case = Case()
    case.put(b"1")
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    case.accumulator.outstanding_records += 1
    record: Record = (b"2", b"key", b"", b"", future, True, 2)
    buffer = case.accumulator.pinned_buffer(case.topic, G1, 0)
    assert buffer is not None
    case.accumulator.put(buffer, record, record_bytes(record))
    for usable, gone in ((G2, G1), (G1, G2)):
        case.carriers[gone].usable, case.carriers[usable].usable = False, True
        case.accumulator.remap()
        case.settle()
    assert [r[0] for pending_batch in case.buffer(G1).pending for r in pending_batch.records] == [
        b"1",
        b"2",
    ]


def test_buffer_may_be_reused_while_its_record_waits_for_room() -> None:
    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        async with c.producer(max_outstanding_records=1) as p:
            buffer, headers = bytearray(1), {"n": b""}
            sends = []
            for n in range(3):
                buffer[0], headers["n"] = n, b"%d" % n
                sent = p.send("orders", buffer, key=b"k", headers=headers)  # type: ignore[arg-type]
                sends.append(asyncio.ensure_future(sent))
                await asyncio.sleep(0)
            await asyncio.gather(*sends)
            async with c.consumer("orders", group="g") as sub:
                found = [(await sub.fetch(1, timeout=20))[0] for _ in range(3)]
            assert [(m.value, m.headers["n"]) for m in found] == [
                (bytes([n]), b"%d" % n) for n in range(3)
            ]

    play(script)


# ---- waiting and its end


def test_send_cancelled_at_the_head_lets_the_next_in() -> None:
    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        async with c.producer(max_outstanding_bytes=1000, close_timeout_s=1) as p:
            one.brokers["g1-0"].script = lambda b: "hang" if b.queue_id == 0 else None
            held = p.send_nowait("orders", b"a" * 500, group="g1", queue=0)
            await asyncio.sleep(1)
            big = asyncio.ensure_future(p.send("orders", b"b" * 900, group="g1", queue=1))
            await asyncio.sleep(0.1)
            small = asyncio.ensure_future(p.send("orders", b"c", group="g1", queue=1))
            await asyncio.sleep(0.1)
            big.cancel()
            done, _ = await asyncio.wait([small], timeout=30)
            assert done
            held.cancel()

    play(script)


def test_pinned_record_fails_when_its_group_lacks_the_topic() -> None:
    """It is pinned: another group that has the topic does not help."""

    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        one.brokers["g1-0"].script = lambda _: ErrorCode.UNKNOWN_TOPIC
        async with c.producer() as p:
            pinned = p.send_nowait("orders", b"a", group="g1")
            await asyncio.wait([pinned], timeout=20)
            with pytest.raises(fmqclient.UnknownTopic):
                pinned.result()

    play(script, groups=2)


def test_broker_that_lacks_a_topic_gets_time_each_time() -> None:
    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        broker = one.brokers["g1-0"]
        async with c.producer() as p:
            broker.script = lambda _: ErrorCode.UNKNOWN_TOPIC
            with pytest.raises(fmqclient.UnknownTopic):
                await p.send("orders", b"a", key=b"k")
            await asyncio.sleep(3600)
            late = p.send_nowait("orders", b"b", key=b"k")
            await asyncio.sleep(1)
            broker.script = lambda _: None
            await late

    play(script)


def test_available_messages_are_fetched_without_waiting() -> None:
    """Other tasks get a turn now and then, without using up the given time."""

    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        async with c.producer() as p:
            await p.send_batch("orders", [b"x"] * 600, keys=[b"k"] * 600)
        async with c.consumer("orders", group="g") as sub:
            count = len(await sub.fetch(1, timeout=20))
            await asyncio.sleep(1)
            while more := await sub.fetch(1, timeout=0):
                count += len(more)
        assert count == 600

    play(script)


def test_close_cancelled_twice_notifies_waiters() -> None:
    async def script(one: ClusterDouble, c: fmqclient.Client) -> None:
        p = c.producer()
        await p.__aenter__()
        one.brokers["g1-0"].script = lambda _: "hang"
        waits = p.send_nowait("orders", b"a", key=b"k")
        await asyncio.sleep(1)
        closing = asyncio.ensure_future(p.close())
        await asyncio.sleep(1)
        closing.cancel()
        await asyncio.sleep(0)
        closing.cancel()
        done, _ = await asyncio.wait([waits], timeout=300)
        assert done

    play(script)
