"""The consumer against a double that speaks the real protocol: acks, credit, lost sessions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqcore.ids import Permission


@pytest.fixture
async def one() -> AsyncIterator[ClusterDouble]:
    async with cluster(1) as double:
        yield double


async def fill(double: ClusterDouble, count: int, size: int = 0, batch: int = 50) -> list[bytes]:
    values = [b"%d" % n + bytes(size) for n in range(count)]
    async with fmqclient.connect(double.url) as c, c.producer() as p:
        for at in range(0, count, batch):
            await p.send_batch("orders", values[at : at + batch])
    return values


async def take(sub: fmqclient.Consumer, count: int) -> list[fmqclient.Message]:
    found: list[fmqclient.Message] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += await sub.fetch(count - len(found))
    return found


async def test_every_message_is_received_once_in_order_and_acked(one: ClusterDouble) -> None:
    await fill(one, 1000)
    seen: dict[int, list[int]] = {}
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        async for m in sub:
            seen.setdefault(m.queue, []).append(m.offset)
            await m.ack()
            if sum(map(len, seen.values())) == 1000:
                break
        assert len(sub.assignment) == 4
        await sub.commit()
    assert all(v == list(range(len(v))) for v in seen.values())
    assert one.groups["g1"].floors == {("billing", q): len(v) for q, v in seen.items()}
    assert len(one.brokers["g1-0"].acks) < 100  # ranges, not records


async def test_message_carries_the_producers_fields(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c, c.producer(born_time=True) as p:
        sent = await p.send("orders", b"v", key=b"k", headers={"a": "1", "b": b"\x00"}, tag=b"t")
        plain = await p.send("orders", b"w")
        async with c.consumer("orders", group="billing") as sub:
            by_value = {m.value: m for m in await take(sub, 2)}
    m = by_value[b"v"]
    assert (m.topic, m.group, m.queue, m.offset) == ("orders", sent.group, sent.queue, sent.offset)
    assert (m.key, m.tag, m.headers) == (b"k", b"t", {"a": b"1", "b": b"\x00"})
    assert m.store_ms == 7
    assert m.delivery_count == 1
    assert m.born_ms is not None
    bare = by_value[b"w"]
    assert (bare.key, bare.tag, bare.headers, bare.offset) == (None, None, {}, plain.offset)


async def test_credit_bounds_deliveries(one: ClusterDouble) -> None:
    await fill(one, 200, size=10_000, batch=5)
    options = {"group": "billing", "buffer_bytes": 200_000}
    async with fmqclient.connect(one.url) as c, c.consumer("orders", **options) as sub:  # type: ignore[arg-type]
        session = one.brokers["g1-0"].consumers
        await until(lambda: session and session[0].credit <= 0)
        held = sum(p.in_flight_records for p in session[0].progress.values())
        assert held <= 25
        found = await take(sub, 200)
        assert len({m.value for m in found}) == 200
        assert session[0].low_credit > -60_000


async def test_nacked_message_is_redelivered(one: ClusterDouble) -> None:
    await fill(one, 10)
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        first = await take(sub, 10)
        for m in first:
            if m.value == b"4":
                await m.nack()
            else:
                await m.ack()
        (again,) = await take(sub, 1)
        assert (again.value, again.delivery_count) == (b"4", 2)


async def test_auto_ack_happens_at_the_next_fetch(one: ClusterDouble) -> None:
    await fill(one, 10)
    broker = one.brokers["g1-0"]
    options = {"group": "billing", "ack": "auto"}
    async with fmqclient.connect(one.url) as c, c.consumer("orders", **options) as sub:  # type: ignore[arg-type]
        iterator = aiter(sub)
        for _ in range(10):
            await anext(iterator)
        await until(lambda: sum(e - f for _, f, e in broker.acks) == 9)
        assert await sub.fetch(timeout=0.05) == []
        await until(lambda: sum(e - f for _, f, e in broker.acks) == 10)


async def test_auto_ack_skips_failed_and_nacked_messages(one: ClusterDouble) -> None:
    await fill(one, 10)
    broker = one.brokers["g1-0"]
    async with fmqclient.connect(one.url) as c:
        with suppress(ZeroDivisionError):
            async with c.consumer("orders", group="billing", ack="auto") as sub:
                for n in range(9):
                    message = await anext(sub)
                    if n == 3:
                        await message.nack()
                raise ZeroDivisionError
    assert sum(e - f for _, f, e in broker.acks) == 7


async def test_acks_of_a_topic_do_not_count_for_another_of_its_name(one: ClusterDouble) -> None:
    """It is deleted and recreated while acks of the old one are not stored."""
    await fill(one, 100)
    broker, group = one.brokers["g1-0"], one.groups["g1"]
    broker.tokens = False
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        for m in await take(sub, 100):
            await m.ack()
        await until(lambda: sum(e - f for _, f, e in broker.acks) >= 100)
        group.topic_id = 2
        group.floors.clear()
        broker.acks.clear()
        broker.reset_streams()
        again = await take(sub, 100)
        assert len(again) == 100


async def test_acks_survive_a_lost_session_without_redelivery(
    one: ClusterDouble,
) -> None:
    """The broker dies before it stores any ack; the slave takes over without them."""
    await fill(one, 100)
    master, slave = one.brokers["g1-0"], one.brokers["g1-1"]
    master.tokens = False
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        first = await take(sub, 100)
        for m in first[:60]:
            await m.ack()
        await until(lambda: sum(e - f for _, f, e in master.acks) >= 60)
        committing = asyncio.create_task(sub.commit())
        one.groups["g1"].epoch = 2
        master.permission, slave.permission = Permission.NONE, Permission.READ
        await master.stop()
        again = await take(sub, 40)
        assert master.consumers[0].held == []
        assert sorted(slave.consumers[-1].held) == [0, 1, 2, 3], "its old holder asks for them"
        assert {m.value for m in again} == {m.value for m in first[60:]}
        assert await sub.fetch(timeout=0.1) == []
        await first[60].ack()  # of the old session: the ack counts nevertheless
        await committing
        for m in again:
            await m.ack()
        await sub.commit()
    assert sum(one.groups["g1"].floors.values()) == 100


async def test_a_commit_that_is_not_answered_names_the_group(one: ClusterDouble) -> None:
    """As when the group's only slave is away: no ack in it becomes safe."""
    await fill(one, 1)
    one.brokers["g1-0"].tokens = False
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        (message,) = await take(sub, 1)
        await message.ack()
        with pytest.raises(fmqclient.Unavailable, match="g1: its broker has not confirmed them"):
            await sub.commit(timeout_s=0.05)


async def test_a_seek_makes_old_acks_void(one: ClusterDouble) -> None:
    await fill(one, 40)
    broker = one.brokers["g1-0"]
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        first = await take(sub, 40)
        for m in first:
            await m.ack()
        await sub.commit()
        queue = first[0].queue
        broker.consumers[0].move_to(queue, 0)
        again = await take(sub, sum(m.queue == queue for m in first))
        assert [m.offset for m in again] == [m.offset for m in first if m.queue == queue]
        for m in first:
            await m.ack()  # copies from before the seek
        await asyncio.sleep(0.05)
        assert broker.consumers[0].progress[queue].floor == 0


async def test_revoked_unseen_messages_are_given_back(one: ClusterDouble) -> None:
    await fill(one, 40, batch=10)
    broker = one.brokers["g1-0"]
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        (m,) = await take(sub, 1)
        session = broker.consumers[0]
        await until(lambda: sum(p.in_flight_records for p in session.progress.values()) == 40)
        session.revoke(m.queue)
        await until(lambda: session.nacks)
        await until(lambda: session.progress[m.queue].in_flight_records == 1)
        assert ("g1", m.queue) not in sub.assignment
        await m.ack()  # still counts
        await until(lambda: session.progress[m.queue].in_flight_records == 0)
        rest = await take(sub, 30)
        assert m.queue not in {r.queue for r in rest}


async def test_pause_and_resume(one: ClusterDouble) -> None:
    await fill(one, 40, batch=10)
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        (m,) = await take(sub, 1)
        await m.ack()
        sub.pause([("g1", m.queue)])
        rest = await take(sub, 30)
        assert m.queue not in {r.queue for r in rest}
        assert await sub.fetch(timeout=0.1) == []
        sub.resume()
        assert {r.queue for r in await take(sub, 9)} == {m.queue}
        with pytest.raises(fmqclient.InvalidArgument, match="are assigned"):
            sub.pause([("g9", 0)])


async def test_closing_sends_the_last_acks_and_leaves(one: ClusterDouble) -> None:
    await fill(one, 10)
    broker = one.brokers["g1-0"]
    async with fmqclient.connect(one.url) as c:
        async with c.consumer("orders", group="billing") as sub:
            for m in await take(sub, 10):
                await m.ack()
        assert broker.consumers[0].left
        assert sum(one.groups["g1"].floors.values()) == 10
        assert len(broker.consumers) == 1  # it was not redelivered
        with pytest.raises(StopAsyncIteration):
            await anext(sub)


async def test_damaged_bytes_are_not_handed_out(one: ClusterDouble) -> None:
    """The session is reopened: the broker reads the bytes again."""
    await fill(one, 10, batch=10)
    (queue,) = one.groups["g1"].stored
    batch = one.groups["g1"].stored[queue][0]
    good = batch.raw
    batch.raw = good[:120] + bytes([good[120] ^ 1]) + good[121:]
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        await until(lambda: len(one.brokers["g1-0"].consumers) >= 2)
        await until(lambda: "CRC" in sub.connected["g1"])
        batch.raw = good
        assert len(await take(sub, 10)) == 10


async def test_silent_broker_is_left_for_the_current_reader(one: ClusterDouble) -> None:
    """No messages arrive, not even heartbeats; another broker reports a newer epoch."""
    await fill(one, 10)
    master, slave = one.brokers["g1-0"], one.brokers["g1-1"]
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        await take(sub, 10)
        one.groups["g1"].epoch = 2
        master.permission, slave.permission = Permission.NONE, Permission.READ
        await c.admin().topics()  # any refresh of the routes will do
        await until(lambda: slave.consumers)
        assert len(await take(sub, 10)) == 10


async def test_mistakes_are_typed(one: ClusterDouble) -> None:
    async with fmqclient.connect(one.url) as c:
        with pytest.raises(fmqclient.UnknownTopic, match="there is no topic 'nope'"):
            async with c.consumer("nope", group="billing"):
                pass
        with pytest.raises(fmqclient.InvalidArgument, match="no name for a consumer group"):
            c.consumer("orders", group="no/name")
        with pytest.raises(fmqclient.InvalidArgument, match="neither 'manual' nor 'auto'"):
            c.consumer("orders", group="billing", ack="never")
        with pytest.raises(fmqclient.InvalidArgument, match="earliest"):
            c.consumer("orders", group="billing", start="yesterday")
        with pytest.raises(fmqclient.InvalidArgument, match="ack_timeout_s=1e\\+300"):
            c.consumer("orders", group="billing", ack_timeout_s=1e300)
        async with c.consumer("orders", group="billing") as sub:
            for to in (10**20, -1):
                with pytest.raises(fmqclient.InvalidArgument, match="must be 'earliest'"):
                    await sub.seek(to)
            with pytest.raises(fmqclient.InvalidArgument, match="offset=100000000000000000000 "):
                await sub.seek(offset=10**20)
        with pytest.raises(fmqclient.Unavailable, match="async with"):
            await c.consumer("orders", group="billing").fetch()
