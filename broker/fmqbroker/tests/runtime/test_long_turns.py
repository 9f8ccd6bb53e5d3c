"""With 10,000 queues and 20 consumer groups no call holds the loop for long."""

import asyncio
import base64
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fmqbroker.admin.offset_rows import PAGE_ROWS
from fmqbroker.app.health import Health
from fmqbroker.app.metrics import Metrics
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.offsets.append import append_offsets
from fmqbroker.consume.offsets.side_journal import COMPACT_BYTES, SideJournal
from fmqbroker.data.topic_claims import TopicClaims
from fmqbroker.journal.journal import BatchDraft
from fmqbroker.runtime.slices import STEPS, in_turns
from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.calls import Calls
from fmqbroker.tests.consume_harness import (
    ME,
    TOPIC,
    Rig,
    consuming,
    running,
    take_over,
    until,
)
from fmqbroker.tests.longest_turn import MOST_LINES, turns_counted
from fmqbroker.tests.seen_harness import snapshots_of
from fmqcore.batch.control import (
    decode_offsets,
    decode_offsets_packed,
    decoding_offsets,
    encode_offsets,
    encode_topic,
)
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.consume.assignment import Assignments
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.consume.offsets.takeover_record import decode_record
from fmqcore.errors import NoPermission
from fmqcore.ids import Epoch, GroupName, Offset, Permission, Position, TopicId
from fmqcore.journal.derived import QUEUE_INDEX
from fmqcore.journal.resume_file import RESUME
from fmqcore.journal.segments import snap_batch
from fmqcore.journal.state import JournalState
from fmqcore.zk.group_state import Mode
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

QUEUES, GROUPS, WIDE = 10_000, 20, 1000
"""One topic in ten is a wide one: 4 of 1,000 queues, and 750 of 8."""


class Full(NamedTuple):
    """A broker with all these topics and groups."""

    rig: Rig
    admin: Calls
    metrics: Metrics
    topics: list[TopicConfig]


def topics_of() -> list[TopicConfig]:
    sizes = [WIDE] * 4 + [8] * ((QUEUES - 4 * WIDE) // 8)
    return [
        TopicConfig(f"t{n:04}", TopicId(n), (TopicGroup(GroupName("g1"), size),))
        for n, size in enumerate(sizes, 1)
    ]


@pytest.fixture(scope="module")
def entries() -> dict[OffsetKey, OffsetEntry]:
    return {
        OffsetKey(f"group-{g:02}", topic.id, queue): OffsetEntry(1 << 32, Offset(0))
        for topic in topics_of()
        for queue in range(topic.queues_in(GroupName("g1")))
        for g in range(GROUPS)
    }


@pytest.fixture
async def full(tmp_path: Path, entries: dict[OffsetKey, OffsetEntry]) -> AsyncIterator[Full]:
    async with running(Rig(tmp_path, segment_bytes=64 * 1024 * 1024)) as rig:
        topics = topics_of()
        rig.cluster.set(*topics)
        for key, entry in entries.items():
            rig.journal.state.offsets[key] = entry
        for topic in topics:
            for queue in range(topic.queues_in(GroupName("g1"))):
                rig.journal.state.next_offsets[topic.id, queue] = Offset(0)
        health = Health(rig.disk, rig.clock)
        health.stage, health.snapshots = "", snapshots_of(rig)
        admin = admin_of(rig)
        yield Full(rig, admin, Metrics(rig.settings, health), topics)


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


SOME = 30_000
"""Entries of a takeover: too many for a record in the group's state, even without ranges."""


def some(count: int = SOME) -> dict[OffsetKey, OffsetEntry]:
    queues = ((t, q) for t in range(1, 1 + count // WIDE) for q in range(WIDE))
    return {OffsetKey("g", TopicId(t), q): OffsetEntry(2 << 32, Offset(1)) for t, q in queues}


@pytest.mark.parametrize("count", [SOME, 10_000])
async def test_a_checkpoint_of_a_taker_takes_short_turns(tmp_path: Path, count: int) -> None:
    entries = some(count)
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets._takeover = ProgressTable(entries)
        with turns_counted() as turns:
            await asyncio.create_task(rig.offsets.checkpoint())
        record = decode_record(rig.group.state.value.offsets)
        assert record == ({} if count == SOME else entries)
        assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_a_side_journal_is_compacted_in_short_turns(tmp_path: Path) -> None:
    """Progress goes on during the compaction and is appended after it."""
    entries, late = some(), OffsetKey("late", TopicId(1), 0)
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets._takeover = ProgressTable(entries)
        side = rig.offsets._side
        assert side is not None
        side._end += COMPACT_BYTES

        async def put() -> None:
            await rig.offsets.put({late: OffsetEntry(2 << 32, Offset(4))})  # starts it
            await rig.offsets.put({late: OffsetEntry(3 << 32, Offset(5))})

        with turns_counted() as turns:
            await asyncio.create_task(put())
        assert (await SideJournal.load(rig.side)) == entries | {
            late: OffsetEntry(3 << 32, Offset(5))
        }
        assert side._end < COMPACT_BYTES, "it was compacted"
        assert 0 < turns.longest <= MOST_LINES, turns.where


async def test_a_frozen_record_is_encoded_and_decoded_in_short_turns(tmp_path: Path) -> None:
    entries = some()
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        rig.offsets._takeover = ProgressTable(entries)
        payloads: list[bytes] = []

        async def frozen() -> None:
            payloads.append(await rig.offsets.freeze())

        async def decoded() -> None:
            assert await in_turns(decoding_offsets(payloads[0])) == entries

        with turns_counted() as turns:
            await asyncio.create_task(frozen())
            await asyncio.create_task(decoded())
        assert 0 < turns.longest <= MOST_LINES, turns.where


LIVE = 4 * GROUPS * WIDE
"""Queues of live groups: of twenty on each of the wide topics."""


async def all_dirty(rig: Rig, topics: list[TopicConfig]) -> None:
    groups = rig.fetch.groups
    for topic in topics[:4]:
        for g in range(GROUPS):
            name = f"group-{g:02}"
            group = await groups.ensure(name, topic, client_pb2.START_EARLIEST, 0)
            for queue in range(WIDE):
                group.mark(queue)


async def test_dropped_groups_are_stored_in_short_turns(full: Full) -> None:
    """Each of 80,000 queues was acked since the last write."""
    groups, stored = full.rig.fetch.groups, full.rig.journal.state.offsets
    before = dict(stored)
    await all_dirty(full.rig, full.topics)

    async def dropped() -> None:
        groups.drop(NoPermission("the reads are over"))
        await groups.stored()

    with turns_counted() as turns:
        await asyncio.create_task(dropped())
    assert 0 < turns.longest <= MOST_LINES, turns.where
    assert len([key for key in stored if stored[key] != before[key]]) == LIVE


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


async def test_a_freeze_takes_all_acks_in_short_turns(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        await take_over(rig, 2)
        topics = topics_of()[:4]
        rig.cluster.set(*topics)
        rig.permit(Permission.READ, epoch=2)
        await all_dirty(rig, topics)
        payloads: list[bytes] = []

        async def frozen() -> None:
            rig.gate.grant(Permission.NONE, "handing over")  # drops the groups in another task
            payloads.append(await rig.offsets.freeze())

        with turns_counted() as turns:
            await asyncio.create_task(frozen())
        assert 0 < turns.longest <= MOST_LINES, turns.where
        assert len(decode_offsets(payloads[0])) == LIVE


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


async def test_installed_entries_take_short_turns(tmp_path: Path) -> None:
    """A master installs the reader's entries and limits its own, with a journal that lacks some."""
    own, given = some(), {k: OffsetEntry(2 << 32, Offset(9)) for k in list(some())[: SOME // 2]}
    async with running(Rig(tmp_path, segment_bytes=16 * 1024 * 1024)) as rig:
        for key, entry in own.items():
            rig.journal.state.offsets[key] = entry
        payload = encode_offsets(given)

        async def installed() -> None:
            await rig.offsets.install(payload)
            await rig.offsets.install(payload, lacking=True)

        with turns_counted() as turns:
            await asyncio.create_task(installed())
        assert 0 < turns.longest <= MOST_LINES, turns.where
        floors = {entry.floor for entry in rig.journal.state.offsets.values()}
        assert floors == {0}, "no message of these queues is here"


async def test_a_takeover_gathers_its_entries_in_short_turns(tmp_path: Path) -> None:
    """From its own side journal, the record of the reader before and its journal's tail."""
    own = some()
    earlier = {key: OffsetEntry(2 << 32, Offset(2)) for key in list(own)[: SOME // 3]}
    tail = {key: OffsetEntry(3 << 32, Offset(3)) for key in list(own)[-SOME // 3 :]}
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000), lead=False) as rig:
        side = await SideJournal.start(rig.side, Epoch(2), own)
        await side.close()
        committed = rig.journal.end
        await append_offsets(rig.journal, tail)
        rig.group.become(Mode.SLAVE_CONSUME, 5, opened=3)
        record = base64.b64encode(encode_offsets(earlier)).decode()

        async def taken() -> None:
            await rig.offsets.become_taker(record, committed)

        with turns_counted() as turns:
            await asyncio.create_task(taken())
        assert 0 < turns.longest <= MOST_LINES, turns.where
        assert rig.offsets._takeover == own | earlier | tail
        assert await SideJournal.load(rig.side) == own | earlier | tail


async def test_a_long_snap_is_decoded_in_short_turns(tmp_path: Path) -> None:
    """By a slave that gets it, at a truncation, and at the next start."""
    writer = JournalState()
    for key, entry in some().items():
        writer.offsets[key] = entry
    base, size = Position(32 * 1024 * 1024), 16 * 1024 * 1024
    fields: dict[str, Any] = {"epoch": Epoch(1), "prev_header_crc": 0, "store_ms": 1}
    raw, _ = snap_batch(base=base, segment_bytes=size, payload=writer.to_snap(1), **fields)
    rig = Rig(tmp_path, segment_bytes=size)
    await rig.open()
    await rig.journal.reset(base)
    running_journal = asyncio.create_task(rig.journal.run())

    async def followed() -> None:
        snaps = await rig.journal.unpack(raw)
        await asyncio.sleep(0)  # else it counts as one turn with the last piece
        rig.journal.append_replica(base, raw, snaps)

    await in_short_turns(followed())
    assert rig.journal.state.offsets == some()
    rig.journal.append(draft_of(some(1000)))
    await in_short_turns(rig.journal.truncate(Position(base + len(raw))))
    running_journal.cancel()
    await asyncio.wait([running_journal])
    await rig.journal.close()
    again = Rig(tmp_path, segment_bytes=size)
    await in_short_turns(again.open())
    assert again.journal.state.offsets == some()
    await again.journal.close()


async def test_deleting_a_wide_topic_takes_a_short_turn(full: Full) -> None:
    state, topic = full.rig.journal.state, full.topics[0]
    before = len(state.offsets)
    payload = encode_topic(topic.id, topic.name, 0)

    async def deleted() -> None:
        full.rig.journal.append(BatchDraft(BatchType.CONFIG, payload, crc32c(payload)))

    await in_short_turns(deleted())
    assert len(state.offsets) == before - WIDE * GROUPS
    assert topic.id not in state.offsets.topics()


async def test_a_roll_drops_old_tombstones_in_short_turns(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        state = rig.journal.state
        for group in range(5 * GROUPS):
            keys = [OffsetKey(f"group-{group}", TOPIC.id, queue) for queue in range(WIDE)]
            payload = encode_offsets(dict.fromkeys(keys, tombstone(1 << 32)))
            state.merge_offsets(decode_offsets_packed(payload), store_ms=1)
        start = rig.journal.end

        async def rolled() -> None:
            for _ in range(2):
                rig.produce(0, bytes(600_000))
            while state.deleted_ms:
                await asyncio.sleep(0)

        await in_short_turns(rolled())
        assert rig.journal.end - start > 1_200_000
        assert (state.offsets, state.deleted_ms, state.progress_bytes) == ({}, {}, 0)


async def test_an_index_is_stored_and_read_in_short_turns(tmp_path: Path) -> None:
    """Of a segment with 10,000 queues: at an orderly stop, a start, a roll and a read."""
    rig = Rig(tmp_path, segment_bytes=2 * 1024 * 1024)
    await rig.open()
    running_journal = asyncio.create_task(rig.journal.run())
    for queue in range(QUEUES):
        rig.produce(queue % WIDE, b"x", topic=TopicId(1 + queue // WIDE))
    running_journal.cancel()
    await asyncio.wait([running_journal])
    await in_short_turns(rig.journal.close())
    assert (tmp_path / RESUME).stat().st_size > 40 * QUEUES
    await in_short_turns(rig.open())
    running_journal = asyncio.create_task(rig.journal.run())
    rig.produce(0, bytes(1_000_000))
    catalog, (first, _) = rig.journal._parts.catalog, rig.journal._parts.store.segments

    async def stored() -> None:
        while catalog.needs_save(first.end):
            await asyncio.sleep(0.01)

    async def read() -> None:
        assert len((await catalog._files.load(QUEUE_INDEX, first)).queues()) == QUEUES
        assert len((await catalog._read_start(first)).next_offsets) == 0

    with turns_counted() as turns:
        await asyncio.create_task(stored())
        await asyncio.create_task(read())
    assert 0 < turns.longest <= MOST_LINES, turns.where
    running_journal.cancel()
    await asyncio.wait([running_journal])
    await rig.journal.close()


async def test_a_resume_file_of_many_groups_takes_short_turns(tmp_path: Path) -> None:
    """All progress has changed since the last one; a roll right after it is short, too."""
    async with running(Rig(tmp_path, segment_bytes=4 * 1024 * 1024)) as rig:
        for n in range(8000):
            keys = [OffsetKey(f"group-{n:05}", TOPIC.id, queue) for queue in (0, 1)]
            payload = encode_offsets(dict.fromkeys(keys, OffsetEntry(1 << 32, Offset(1))))
            rig.journal.state.merge_offsets(decode_offsets_packed(payload), store_ms=1)
        rig.produce(0, bytes(1_400_000))
        await rig.journal.wait_durable(rig.journal.end)
        await in_short_turns(rig.journal._resumes.at_close())
        assert (tmp_path / RESUME).exists()

        async def rolled() -> None:
            rig.produce(0, bytes(2_900_000))

        start = rig.journal.end
        await in_short_turns(rolled())
        assert rig.journal.end - start > 2_900_000 + 8000 * 2 * 40


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


async def in_short_turns(work: Coroutine[Any, Any, None]) -> None:
    with turns_counted() as turns:
        await asyncio.create_task(work)
    assert 0 < turns.longest <= MOST_LINES, turns.where


def draft_of(entries: dict[OffsetKey, OffsetEntry]) -> BatchDraft:
    payload = encode_offsets(entries)
    return BatchDraft(BatchType.OFFSETS, payload, crc32c(payload))
