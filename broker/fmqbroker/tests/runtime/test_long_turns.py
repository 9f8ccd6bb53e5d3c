"""With 10,000 queues and 20 consumer groups no call holds the loop for long."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.admin.offset_rows import PAGE_ROWS
from fmqbroker.cluster.view import ClusterView
from fmqbroker.data.topic_claims import TopicClaims
from fmqbroker.runtime.slices import STEPS
from fmqbroker.tests.consume_harness import ME, Rig, consuming, running, until
from fmqbroker.tests.longest_turn import MOST_LINES, turns_counted
from fmqbroker.tests.turns_kit import GROUPS, QUEUES, WIDE, Full, entries, full, in_short_turns
from fmqcore.consume.assignment import Assignments
from fmqcore.errors import NoPermission
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqcore.zk.topic_numbers import TopicNumbers
from fmqport.tests.call_context import CALL
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import (
    DeleteGroupRequest,
    OffsetsAfter,
    OffsetsRequest,
    SeekRequest,
    StatusRequest,
)

__all__ = ["entries", "full"]  # fixtures


async def all_rows(full: Full) -> None:
    request, rows = OffsetsRequest(), 0
    while True:
        reply = await full.admin.offsets(request)
        rows += len(reply.queues)
        if not reply.has_more:
            break
        last = reply.queues[-1]
        request.after.topic, request.after.queue_id = last.topic, last.queue_id
        request.after.group = last.group
    assert rows == QUEUES * GROUPS


async def a_page(full: Full) -> None:
    last = full.topics[-1]
    after = OffsetsAfter(topic=last.name, queue_id=7, group="group-18")
    reply = await full.admin.offsets(OffsetsRequest(limit=5, after=after))
    assert [row.group for row in reply.queues] == ["group-19"]


async def one_group(full: Full) -> None:
    reply = await full.admin.offsets(OffsetsRequest(group="group-07"))
    assert len(reply.queues) == QUEUES


async def one_topic(full: Full) -> None:
    reply = await full.admin.offsets(OffsetsRequest(topic="t0001", limit=WIDE * GROUPS))
    assert (len(reply.queues), reply.has_more) == (PAGE_ROWS, True)


async def a_group_on_a_topic(full: Full) -> None:
    reply = await full.admin.offsets(OffsetsRequest(topic="t0001", group="group-07"))
    assert len(reply.queues) == WIDE


async def a_seek(full: Full) -> None:
    reply = await full.admin.seek(SeekRequest(topic="t0001", group="group-07", by_offset=True))
    assert len(reply.queues) == WIDE


async def a_seek_of_a_live_group(full: Full) -> None:
    assert full.rig.fetch.groups.get("group-07", full.topics[0].id)
    await a_seek(full)


async def a_deletion(full: Full) -> None:
    reply = await full.admin.delete_group(DeleteGroupRequest(group="group-07"))
    assert reply.deleted == QUEUES


async def a_status(full: Full) -> None:
    assert (await full.admin.status(StatusRequest())).broker == ME


async def a_scrape(full: Full) -> None:
    text = await full.metrics.text()
    assert text.count(b"\nfmq_consumer_lag_messages{") == len(full.topics) * GROUPS


@pytest.mark.parametrize(
    "call",
    [
        all_rows,
        a_page,
        one_group,
        one_topic,
        a_group_on_a_topic,
        a_seek,
        a_seek_of_a_live_group,
        a_deletion,
        a_status,
        a_scrape,
    ],
)
async def test_no_call_holds_the_loop_for_long(
    full: Full, call: Callable[[Full], Awaitable[None]]
) -> None:
    async def made() -> None:
        await call(full)

    if call is a_seek_of_a_live_group:
        groups, begin = full.rig.fetch.groups, client_pb2.START_EARLIEST
        await groups.ensure("group-07", full.topics[0], begin, 0)
        await groups.stored()
    with turns_counted() as turns:
        await asyncio.create_task(made())
    assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_a_commit_wakes_starved_queues_in_short_turns(full: Full) -> None:
    """80,000 queues of consumer groups wait for new records; one queue gets one."""
    groups, commit = full.rig.fetch.groups, full.rig.commit
    for topic in full.topics[:4]:
        for g in range(GROUPS):
            begin = client_pb2.START_EARLIEST
            group = await groups.ensure(f"group-{g:02}", topic, begin, 0)
            group.starved = {q: ((topic.id, q), Offset(0)) for q in range(WIDE)}
    full.rig.produce(WIDE - 1, b"x", topic=full.topics[3].id)
    waiting = groups.get("group-19", full.topics[3].id)
    assert waiting is not None

    async def woken() -> None:
        end = full.rig.journal.end
        commit.advance(end, end)
        while WIDE - 1 in waiting.starved:
            await asyncio.sleep(0)

    with turns_counted() as turns:
        await asyncio.create_task(woken())
    assert len(waiting.starved) == WIDE - 1
    assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_changed_topics_reach_groups_in_short_turns(full: Full) -> None:
    """Two thousand consumer groups check their topics; one topic is gone."""
    groups, begin = full.rig.fetch.groups, client_pb2.START_EARLIEST
    for topic in full.topics[4:104]:
        for g in range(GROUPS):
            await groups.ensure(f"group-{g:02}", topic, begin, 0)
    last = full.topics[103]

    async def followed() -> None:
        full.rig.cluster.set(*(topic for topic in full.topics if topic is not last))
        while groups.get("group-19", last.id) is not None:
            await asyncio.sleep(0)

    with turns_counted() as turns:
        await asyncio.create_task(followed())
    assert groups.get("group-19", full.topics[102].id) is not None
    assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_routes_of_ten_thousand_topics_take_short_turns() -> None:
    view = ClusterView(None, "c")  # type: ignore[arg-type]  # nothing is read
    parts = TopicGroup(GroupName("g1"), 1), TopicGroup(GroupName("g2"), 1)
    names = [f"t{n:05}" for n in range(10_000)]
    view.topics = {name: TopicConfig(name, TopicId(n), parts) for n, name in enumerate(names, 1)}
    replies: list[client_pb2.RouteReply] = []

    async def asked() -> None:
        replies.append(await view.routes(CALL, client_pb2.RouteRequest()))

    with turns_counted() as turns:
        await asyncio.create_task(asked())
    assert [topic.name for topic in replies[0].topics] == names
    assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_dropped_groups_are_freed_in_short_turns(full: Full) -> None:
    groups, freed = full.rig.fetch.groups, list[None]()
    for topic in full.topics[4:24]:
        for g in range(GROUPS):
            group = await groups.ensure(f"g-{g:02}", topic, client_pb2.START_EARLIEST, 0)
            weakref.finalize(group, freed.append, None)
    del group
    await groups.stored()
    groups.drop(NoPermission("the reads are over"))
    most = before = len(freed)
    for _ in range(20 * GROUPS):
        await asyncio.sleep(0)
        most, before = max(most, len(freed) - before), len(freed)
    assert len(freed) >= 20 * GROUPS - 2, "a task may look at the last one"
    assert 0 < most <= STEPS


@pytest.mark.parametrize("group", ["group-07", "new"])
async def test_opening_a_group_of_wide_topic_takes_short_turns(full: Full, group: str) -> None:
    """A consumer joins on 1,000 queues and gets one message of each."""
    topic = full.topics[0]
    for queue in range(WIDE):
        full.rig.produce(queue, b"x", topic=topic.id)
    await full.rig.committed()
    start = client_pb2.START_EARLIEST
    fields: dict[str, Any] = {"topic": topic.name, "group": group, "start": start}
    got: list[int] = []

    async def consumed() -> None:
        consumer = await stack.enter_async_context(consuming(full.rig, **fields))
        await until(lambda: len(consumer.got) == WIDE, "all delivered")
        got.extend(delivery.queue_id for delivery in consumer.got)

    async with AsyncExitStack() as stack:
        with turns_counted() as turns:
            await asyncio.create_task(consumed())
    assert sorted(got) == list(range(WIDE))
    assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_returning_session_joins_in_a_short_turn() -> None:
    """The last of a thousand consumers comes to a new reader; each named the queue that it held."""
    asked = {queue: f"s{queue:04}" for queue in range(WIDE)}
    first, *others = asked.values()
    held = Assignments(WIDE, 1000)
    held.sessions, held._wanted = set(others), dict(asked)

    async def joined() -> None:
        held.join(first, (), 0, [0])

    await in_short_turns(joined())
    assert held._target == asked


async def test_topics_are_claimed_in_short_turns(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        names = {TopicId(n): f"t{n:05}" for n in range(1, QUEUES + 1)}
        here = (TopicGroup(GroupName("g1"), 1),)
        rig.cluster.set(*(TopicConfig(name, of, here) for of, name in names.items()))
        view: Any = rig.cluster
        view.numbers = TopicNumbers(next_id=QUEUES + 1)
        for topic_id, name in names.items():
            rig.journal.state.topics[topic_id] = (name, 1)
        nothing: Any = None  # no number and no queue is to be restored
        claims = TopicClaims(rig.journal, view, nothing, "c", rig.clock, "g1")
        await in_short_turns(claims.claim())
