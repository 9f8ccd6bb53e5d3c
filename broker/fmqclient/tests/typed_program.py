"""A program that uses every public method of the client, for the type checker: it never runs.

`make check` reads it as part of the tree, `test_light_install.py` against the installed wheel.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import assert_type

import fmqclient
from fmqclient import sync


def blocking_producer(client: sync.Client) -> None:
    with client.producer(acks="all", linger_ms=5, born_time=True) as producer:
        assert_type(producer, sync.Producer)
        assert_type(producer.send("t", b"v", key=b"k", tag=b"x"), fmqclient.SendResult)
        assert_type(producer.send("t", b"v", headers={"a": "1"}), fmqclient.SendResult)
        assert_type(producer.send_nowait("t", b"v"), Future[fmqclient.SendResult])
        assert_type(producer.send_batch("t", [b"v"], keys=[None]), list[fmqclient.SendResult])
        producer.flush()
        assert_type(producer.outstanding, int)
        assert_type(producer.connected, dict[str, str])
    producer.close()
    assert_type(producer.closed, bool)


def blocking_consumer(client: sync.Client) -> None:
    start: fmqclient.Start = datetime(2026, 1, 1, tzinfo=UTC)
    with client.consumer("t", group="g", start=start, ack="auto", prefetch=10) as consumer:
        assert_type(consumer, sync.Consumer)
        assert_type(consumer.fetch(10, timeout=1), list[sync.Message])
        for message in consumer:
            blocking_message(message)
        consumer.commit(1)
        consumer.seek("earliest", queues=[("g1", 0)])
        consumer.seek(offset=1)
        consumer.pause(consumer.assignment)
        consumer.resume()
        assert_type(sum(consumer.skipped.values()), int)
        assert_type(consumer.connected, dict[str, str])
    consumer.close()
    assert_type(consumer.closed, bool)


def blocking_sender(client: sync.Client) -> None:
    producer = client.ordered_producer("o", name="copier", on_active=lambda: None)
    assert_type(producer, sync.OrderedProducer)
    with producer as p:
        assert_type(p.send(b"v", key=b"k"), fmqclient.OrderedResult)
        assert_type(p.send_nowait(b"v"), Future[fmqclient.OrderedResult])
        assert_type(p.send_batch([b"v"], queue=0), list[fmqclient.OrderedResult])
        p.flush()
        assert_type((p.active, p.waits_for, p.outstanding), tuple[bool, str, int])
        assert_type(p.last, Mapping[int, fmqclient.LastRecord])
        assert_type(p.connected, dict[str, str])
    producer.close()
    assert_type(producer.closed, bool)


def blocking_message(message: sync.Message) -> None:
    assert_type((message.topic, message.group), tuple[str, str])
    assert_type((message.queue, message.offset), tuple[int, int])
    assert_type((message.value, message.key, message.tag), tuple[bytes, bytes | None, bytes | None])
    assert_type(message.headers, dict[str, bytes])
    assert_type((message.store_ms, message.born_ms), tuple[int, int | None])
    assert_type((message.delivery_count, message.read_epoch), tuple[int, int])
    assert_type((message.nacked, message.segment), tuple[bool, int])
    message.nack(delay_ms=10)
    message.ack()


def blocking_admin(client: sync.Client) -> None:
    admin = client.admin()
    assert_type(admin, sync.Admin)
    assert_type(admin.create_topic("t", queues=4, groups={"g1": 1}), fmqclient.TopicInfo)
    assert_type(admin.alter_topic("t", groups=["g2"]), fmqclient.TopicInfo)
    ordered = admin.ordered
    assert_type(ordered.create("o", ["g1", "g2"], queues=2), fmqclient.TopicInfo)
    assert_type(ordered.set_groups("o", {"g1": 1, "g2": 3}), fmqclient.TopicInfo)
    assert_type(ordered.status(), list[fmqclient.OrderedTopicStatus])
    assert_type(ordered.switch("o", off="g1"), fmqclient.OrderedTopicStatus)
    assert_type(ordered.release("o", 1), fmqclient.OrderedTopicStatus)
    assert_type(admin.topic("t").groups, tuple[fmqclient.TopicGroup, ...])
    assert_type(admin.topics(), list[fmqclient.TopicInfo])
    admin.delete_topic("t")
    assert_type(admin.groups(), list[fmqclient.GroupInfo])
    assert_type(admin.offsets("g", "t"), list[fmqclient.QueueOffsets])
    assert_type(sum(row.lag for row in admin.lag("g")), int)
    assert_type(admin.seek("g", "t", "latest"), list[fmqclient.QueueOffsets])
    assert_type(admin.delete_group("g"), int)
    rows: Sequence[fmqclient.BrokerStatus] = admin.status()
    assert_type(rows[0].permission, fmqclient.Permission)


def blocking() -> None:
    with sync.connect("fmq://h:1", timeout_s=1, name="n") as client:
        assert_type(client, sync.Client)
        blocking_producer(client)
        blocking_sender(client)
        blocking_consumer(client)
        blocking_admin(client)
    client.close()


async def producer_of(client: fmqclient.Client) -> None:
    async with client.producer(delivery_timeout_s=1) as producer:
        headers: fmqclient.Headers = {"a": b"1"}
        assert_type(await producer.send("t", b"v", headers=headers), fmqclient.SendResult)
        assert_type(producer.send_nowait("t", b"v"), asyncio.Future[fmqclient.SendResult])
        assert_type(await producer.send_batch("t", [b"v"]), list[fmqclient.SendResult])
        await producer.flush()
        assert_type((producer.outstanding, producer.connected), tuple[int, dict[str, str]])
    await producer.close()


async def sender_of(client: fmqclient.Client) -> None:
    async with client.ordered_producer("o", accept_unknown_end=True) as p:
        assert_type(p, fmqclient.OrderedProducer)
        result = await p.send(b"v", headers={"a": "1"})
        assert_type((result.segment, result.sequence), tuple[int, int])
        assert_type(p.send_nowait(b"v"), asyncio.Future[fmqclient.OrderedResult])
        assert_type(await p.send_batch([b"v"]), list[fmqclient.OrderedResult])
        await p.flush()
        for last in p.last.values():
            assert_type((last.key, last.readable), tuple[bytes | None, bool])
    await p.close()


async def consumer_of(client: fmqclient.Client) -> None:
    async with client.consumer("t", group="g", start="latest") as consumer:
        assert_type(await consumer.fetch(10, timeout=1), list[fmqclient.Message])
        async for message in consumer:
            assert_type(message, fmqclient.Message)
            await message.nack(delay_ms=1)
            await message.ack()
            message.ack_now()
        await consumer.commit()
        await consumer.seek(offset=1)
        consumer.pause(consumer.assignment)
        consumer.resume()
        assert_type(consumer.connected, dict[str, str])
        assert_type(list(consumer.skipped.values()), list[int])
    await consumer.close()


async def admin_of(client: fmqclient.Client) -> None:
    admin: fmqclient.Admin = client.admin()
    assert_type(await admin.create_topic("t", if_not_exists=True), fmqclient.TopicInfo)
    assert_type(await admin.alter_topic("t", queues=9), fmqclient.TopicInfo)
    ordered = admin.ordered
    assert_type(await ordered.create("o", ["g1", "g2"]), fmqclient.TopicInfo)
    assert_type(await ordered.set_groups("o", ["g1", "g2"]), fmqclient.TopicInfo)
    assert_type(await ordered.status("o"), list[fmqclient.OrderedTopicStatus])
    assert_type(await ordered.switch("o", reason="planned"), fmqclient.OrderedTopicStatus)
    assert_type(await ordered.release("o", 1, accept_loss=True), fmqclient.OrderedTopicStatus)
    assert_type(await admin.topic("t"), fmqclient.TopicInfo)
    assert_type(await admin.topics(), list[fmqclient.TopicInfo])
    await admin.delete_topic("t")
    assert_type(await admin.groups(), list[fmqclient.GroupInfo])
    assert_type(await admin.offsets(), list[fmqclient.QueueOffsets])
    assert_type(await admin.lag("g"), list[fmqclient.QueueOffsets])
    assert_type(await admin.seek("g", "t", offset=0), list[fmqclient.QueueOffsets])
    assert_type(await admin.delete_group("g"), int)
    assert_type(await admin.status(), list[fmqclient.BrokerStatus])


async def asynchronous() -> None:
    async with fmqclient.connect("fmq://h:1") as client:
        await producer_of(client)
        await sender_of(client)
        await consumer_of(client)
        await admin_of(client)
    await client.close()
