"""Admin calls to one broker: offsets, seek, deletion, status, topics, typed refusals."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.admin.service import AdminService
from fmqbroker.admin.topics import TopicAdmin
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.replication.view import LinkView
from fmqbroker.tests.calls import Calls
from fmqbroker.tests.consume_harness import (
    ME,
    SLAVE,
    TOPIC,
    Rig,
    commit_held,
    consuming,
    key,
    numbers,
    running,
    stored,
    until,
)
from fmqbroker.tests.seen_harness import known, snapshots_of
from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.errors import AlreadyExists, CorruptJournal, NotFound
from fmqcore.ids import BrokerId, GroupName, Offset, Permission, Position, TopicId
from fmqcore.zk.group_config import Member
from fmqcore.zk.group_state import Mode
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.coordination import SessionState
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import (
    CreateTopicRequest,
    DeleteGroupRequest,
    DeleteTopicRequest,
    OffsetsRequest,
    QueueOffsets,
    SeekRequest,
    StatusRequest,
)

OTHER = TopicConfig("audit", TopicId(2), (TopicGroup(GroupName("g1"), 1),))
ELSEWHERE = TopicConfig("away", TopicId(3), (TopicGroup(GroupName("g2"), 1),))


class Session:
    """Stands in for the coordination session."""

    state = SessionState.CONNECTED

    async def get(self, _: str, *, synced: bool = False) -> None:
        return None


def admin_of(rig: Rig, links: Mapping[BrokerId, LinkView] | None = None) -> Calls:
    slaves = [Member(SLAVE, "b:1")]
    snapshots = snapshots_of(rig, links=links, clock=rig.hand, slaves=slaves)
    view: Any = rig.cluster
    admin = AdminService(
        rig.settings, rig.journal, rig.gate, view, rig.offsets, rig.fetch, snapshots
    )
    return Calls(admin)


def rows(found: Any) -> list[tuple[str, int, str, int, int, int]]:
    return [(r.topic, r.queue_id, r.group, r.committed, r.begin, r.end) for r in found]


def progress_of(found: Any) -> dict[int, QueueOffsets]:
    return {row.queue_id: row for row in found}


async def test_offsets_list_every_queue_with_its_groups_and_holders(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.cluster.set(TOPIC, OTHER, ELSEWHERE)
        admin = admin_of(rig)
        rig.produce(0, b"a", b"b", b"c")
        rig.produce(0, b"x", topic=OTHER.id)
        await rig.committed()
        reply = await admin.offsets(OffsetsRequest())
        assert rows(reply.queues)[0] == ("audit", 0, "", 0, 0, 1)
        assert [r.queue_id for r in reply.queues] == [0, 0, 1, 2, 3]
        async with consuming(rig, client="me@here") as consumer:
            await until(lambda: consumer.got)
            consumer.ack_range(0, 0, 1, token=1)
            await until(lambda: consumer.tokens)
            reply = await admin.offsets(OffsetsRequest(topic="orders", group="billing"))
            row = reply.queues[0]
            assert rows([row]) == [("orders", 0, "billing", 1, 0, 3)]
            assert (row.session, row.client, row.in_flight) == ("s1", "me@here", 2)
            assert row.broker_group == "g1"
            assert len(reply.queues) == 4
        reply = await admin.offsets(OffsetsRequest(topic="orders"))
        assert {r.group for r in reply.queues} == {"billing"}
        reply = await admin.offsets(OffsetsRequest(topic="orders", group="unknown"))
        assert not reply.queues
        assert not reply.HasField("error")


async def test_offsets_are_refused_without_read_and_for_unknown_topics(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.cluster.set(TOPIC, ELSEWHERE)
        admin = admin_of(rig)
        for name in ("nowhere", "away"):
            reply = await admin.offsets(OffsetsRequest(topic=name))
            assert reply.error.code == client_pb2.UNKNOWN_TOPIC
        rig.gate.grant(Permission.WRITE, "only writes")
        for refused in (
            await admin.offsets(OffsetsRequest()),
            await admin.seek(SeekRequest(topic="orders", group="billing")),
            await admin.delete_group(DeleteGroupRequest(group="billing")),
        ):
            assert refused.error.code == client_pb2.NO_PERMISSION


async def test_a_seek_moves_a_live_session_and_old_acks_do_not_count(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, *(b"%d" % n for n in range(10)))
        rig.produce(1, b"other")
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 11)
            consumer.ack_range(0, 0, 8, token=1)
            await until(lambda: consumer.tokens)
            before = dict(consumer.held)
            version = stored(rig, 0).version
            reply = await admin.seek(
                SeekRequest(topic="orders", group="billing", by_offset=True, offset=5, queues=[0])
            )
            assert rows(reply.queues) == [("orders", 0, "billing", 5, 0, 10)]
            assert stored(rig, 0) == OffsetEntry(version + 1, Offset(5), (), version + 1)
            await until(lambda: numbers(consumer, 0)[10:] == [5, 6, 7, 8, 9])
            assert consumer.held[0] == before[0] + 1
            assert consumer.begins[0] == 5
            assert consumer.held[1] == before[1]
            assert (consumer.seek_number[0], consumer.seek_number[1]) == (version + 1, 0)
            assert [count for *_, count in consumer.values()[-5:]] == [1] * 5
            consumer.ack_range(0, 5, 10, generation=before[0])
            consumer.ack_range(0, 5, 6, token=2)
            await until(lambda: 2 in consumer.tokens)
            assert stored(rig, 0).floor == 6
            assert stored(rig, 0).seek_number == version + 1, "it counts since the same seek"


@pytest.mark.parametrize(
    ("to", "floor"),
    [
        (client_pb2.START_EARLIEST, 0),
        (client_pb2.START_LATEST, 3),
        (client_pb2.START_TIME, 2),
    ],
)
async def test_a_seek_by_time_earliest_latest_without_sessions(
    tmp_path: Path, to: client_pb2.StartAt, floor: int
) -> None:
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, b"a", b"b")
        await rig.committed()
        at_ms = rig.clock.wall_ms() + 1
        await until(lambda: rig.clock.wall_ms() > at_ms)
        rig.produce(0, b"c")
        await rig.committed()
        await rig.offsets.put({key(0): OffsetEntry(1 << 32, Offset(1), ((Offset(2), Offset(3)),))})
        reply = await admin.seek(SeekRequest(topic="orders", group="billing", to=to, to_ms=at_ms))
        assert not reply.HasField("error")
        assert progress_of(reply.queues)[0].committed == floor
        version = (1 << 32) + 1
        assert stored(rig, 0) == OffsetEntry(version, Offset(floor), (), version)
        assert stored(rig, 3).version == 1 << 32, "all queues, read or not"


async def test_seek_is_bounded_by_log_start_and_commit_end(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, b"a", b"b")
        await rig.committed()
        reply = await admin.seek(
            SeekRequest(topic="orders", group="billing", by_offset=True, offset=2**40, queues=[0])
        )
        assert reply.queues[0].committed == 2


async def test_acks_of_dropped_group_do_not_undo_seek(tmp_path: Path) -> None:
    """The acks wait behind uncommitted ones; the lease was away for a moment."""
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, *[b"x"] * 9)
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 9)
            await rig.fetch.groups.stored()
            with commit_held(rig):
                consumer.ack_range(0, 0, 1)
                await until(lambda: stored(rig, 0).floor == 1)
                group = rig.fetch.groups.get("billing", TOPIC.id)
                assert group is not None
                consumer.ack_range(0, 1, 5)
                await until(lambda: group.progress[0].floor == 5)
                rig.gate.grant(Permission.NONE, "a moment")
                await until(lambda: consumer.error)
                rig.permit(Permission.FULL)
                to = SeekRequest(topic="orders", group="billing", by_offset=True, queues=[0])
                seeking = asyncio.create_task(admin.seek(to))
                for _ in range(9):
                    await asyncio.sleep(0)
            await seeking
        await rig.fetch.groups.stored()
        assert stored(rig, 0).floor == 0
        async with consuming(rig, "again") as consumer:
            await until(lambda: consumer.held)
            assert consumer.begins[0] == 0


@pytest.mark.parametrize("meanwhile", ["the reads went", "it lives again"])
async def test_seek_checks_again_after_waiting(tmp_path: Path, meanwhile: str) -> None:
    """Acks of a dropped group are stored first, which may take long."""
    async with running(Rig(tmp_path)) as rig:
        admin, groups = admin_of(rig), rig.fetch.groups
        rig.produce(0, *[b"x"] * 9)
        await rig.committed()
        stored_then = groups.stored

        async def wait() -> None:
            await stored_then()
            if meanwhile == "the reads went":
                rig.gate.grant(Permission.NONE, "another reads")
            elif not groups.get("billing", TOPIC.id):
                await groups.ensure("billing", TOPIC, client_pb2.START_EARLIEST, 0)

        groups.stored = wait  # type: ignore[method-assign]
        to = SeekRequest(topic="orders", group="billing", by_offset=True, queues=[0], offset=4)
        reply = await admin.seek(to)
        if meanwhile == "the reads went":
            assert reply.error.code == client_pb2.NO_PERMISSION
            assert not stored(rig, 0).version
        else:
            group = groups.get("billing", TOPIC.id)
            assert group is not None
            assert group.progress[0].floor == stored(rig, 0).floor == 4


async def test_a_seek_in_slave_consume_comes_back_with_the_hand_over(tmp_path: Path) -> None:
    from fmqcore.batch.control import decode_offsets

    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, b"a", b"b", b"c")
        await rig.offsets.put({key(0): OffsetEntry((1 << 32) + 9, Offset(3))})
        await rig.committed()
        rig.group.become(Mode.SLAVE_CONSUME, 2)
        await rig.offsets.become_taker("", rig.journal.end)
        rig.permit(Permission.READ, epoch=2)
        async with consuming(rig) as consumer:
            await until(lambda: consumer.held)
            await admin.seek(
                SeekRequest(topic="orders", group="billing", by_offset=True, offset=1, queues=[0])
            )
            await until(lambda: len(consumer.values()) == 2)
            handed = decode_offsets(await rig.offsets.freeze())
            assert handed[key(0)].floor == 1
        rig.offsets.retire()
        from fmqcore.batch.control import encode_offsets

        await rig.offsets.install(encode_offsets(handed))
        assert stored(rig, 0).floor == 1, "backwards, and still the newest"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SeekRequest(topic="orders"), client_pb2.INVALID_ARGUMENT),
        (SeekRequest(group="billing"), client_pb2.INVALID_ARGUMENT),
        (SeekRequest(topic="no", group="billing"), client_pb2.UNKNOWN_TOPIC),
        (SeekRequest(topic="orders", group="b", queues=[4]), client_pb2.UNKNOWN_QUEUE),
    ],
)
async def test_a_bad_seek_is_refused(
    tmp_path: Path, request_: SeekRequest, code: client_pb2.ErrorCode
) -> None:
    async with running(Rig(tmp_path)) as rig:
        reply = await admin_of(rig).seek(request_)
        assert reply.error.code == code
        assert reply.error.message
        assert known(rig) == []


async def test_memberless_group_is_deleted_then_starts_again(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, b"a", b"b")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            consumer.ack_range(0, 0, 2, token=1)
            await until(lambda: consumer.tokens)
            reply = await admin.delete_group(DeleteGroupRequest(group="billing"))
            assert reply.error.code == client_pb2.INVALID_ARGUMENT
            assert "live session" in reply.error.message
        reply = await admin.delete_group(DeleteGroupRequest(group="billing", topic="orders"))
        assert reply.deleted == 4
        assert stored(rig, 0).deleted
        reply = await admin.delete_group(DeleteGroupRequest(group="billing"))
        assert reply.error.code == client_pb2.NOT_FOUND
        assert rows((await admin.offsets(OffsetsRequest())).queues)[0][2] == ""
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            assert numbers(consumer, 0) == [0, 1]
            await until(lambda: not stored(rig, 0).deleted)


async def test_deleted_group_is_made_again_by_a_seek(tmp_path: Path) -> None:
    """The seek names the deletion; one from before it is refused."""
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, b"a", b"b")
        await rig.committed()
        seek = SeekRequest(topic="orders", group="billing", by_offset=True, offset=1, queues=[0])
        assert not (await admin.seek(seek)).HasField("error")
        seek.expected_seek_numbers[0] = stored(rig, 0).seek_number
        await admin.delete_group(DeleteGroupRequest(group="billing"))
        assert (await admin.seek(seek)).error.code == client_pb2.STALE_ASSIGNMENT
        wanted = OffsetsRequest(topic="orders", group="billing")
        assert not (await admin.offsets(wanted)).queues
        wanted.with_deleted = True
        (row,) = (await admin.offsets(wanted)).queues
        seek.expected_seek_numbers[0] = row.seek_number
        assert not (await admin.seek(seek)).HasField("error")
        assert stored(rig, 0).floor == 1


async def test_status_reports_role_positions_and_replicas(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        links = dict[BrokerId, LinkView]()
        admin = admin_of(rig, links)
        rig.produce(0, b"a")
        await rig.committed()
        end = rig.journal.end
        links[SLAVE] = LinkView(connected=True, durable_end=Position(end - 8))
        links[BrokerId("removed")] = LinkView()
        rig.hand.advance(1234)
        status = await admin.status(StatusRequest())
        assert (status.cluster, status.group, status.broker) == ("c", "g1", ME)
        assert (status.role, status.mode, status.epoch) == ("master", "MASTER", 1)
        assert status.permission == Permission.FULL
        assert status.reason == "the test says so"
        assert (status.end, status.durable_end, status.commit_end) == (end, end, end)
        assert status.uptime_ms == 1234
        assert status.zookeeper_connected
        assert status.version
        (replica,) = status.replicas
        assert (replica.broker, replica.connected, replica.in_sync) == (SLAVE, True, False)
        assert replica.lag_bytes == 8
        rig.gate._lease_until_ms = 0
        assert (await admin.status(StatusRequest())).permission == Permission.NONE


async def test_status_reports_disk_problem(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        admin, space = admin_of(rig), rig.journal._parts.store.space
        space.no_data = "7 MiB are free, 64 MiB are kept"
        status = await admin.status(StatusRequest())
        free = "7 MiB are free, 64 MiB are kept"
        assert status.reason == f"the test says so; it takes no messages: {free}"
        assert (status.disk_full_reason, status.damage) == (free, "")
        rig.journal.damage = CorruptJournal("0000.journal, position 7: payload CRC")
        status = await admin.status(StatusRequest())
        assert status.reason == "its journal is damaged: 0000.journal, position 7: payload CRC"
        assert status.damage == "0000.journal, position 7: payload CRC"


async def test_topics_are_created_and_deleted_through_the_cluster_view(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        session: Any = Session()
        view: Any = rig.cluster
        chains = ChainNodes(session, "c", rig.hand)
        admin = Calls(TopicAdmin(rig.settings, session, view, chains))
        asked: list[Any] = []

        async def create(name: str, queues: int, groups: Any, *, if_not_exists: bool) -> Any:
            asked.append((name, queues, groups, if_not_exists))
            if name == "there":
                raise AlreadyExists("topic there exists")
            return OTHER

        async def delete(name: str, _: TopicId | None) -> None:
            raise NotFound(f"no topic {name}")

        rig.cluster.create_topic = create  # type: ignore[attr-defined]
        rig.cluster.delete_topic = delete  # type: ignore[attr-defined]
        group = client_pb2.TopicGroup(group="g1", weight=3, queues=0)
        made = await admin.create_topic(CreateTopicRequest(name="audit", queues=1, groups=[group]))
        assert made.topic.id == OTHER.id
        assert made.topic.groups[0].queues == 1
        assert asked[0] == ("audit", 1, [TopicGroup(GroupName("g1"), 0, 3)], False)
        refused = await admin.create_topic(CreateTopicRequest(name="there", queues=1))
        assert refused.error.code == client_pb2.ALREADY_EXISTS
        gone = await admin.delete_topic(DeleteTopicRequest(name="x"))
        assert gone.error.code == client_pb2.NOT_FOUND


async def test_ordinary_topic_is_not_found_in_an_ordered_one(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        session: Any = Session()
        view: Any = rig.cluster
        admin = Calls(TopicAdmin(rig.settings, session, view, ChainNodes(session, "c", rig.hand)))

        async def create(*_: Any, if_not_exists: bool) -> Any:
            assert if_not_exists
            return replace(OTHER, ordered=True)

        rig.cluster.create_topic = create  # type: ignore[attr-defined]
        request = CreateTopicRequest(name=OTHER.name, queues=1, if_not_exists=True)
        refused = await admin.create_topic(request)
        assert refused.error.code == client_pb2.ALREADY_EXISTS
        assert "is ordered" in refused.error.message


async def test_rows_and_status_show_what_is_withheld_and_why(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, b"a")
        await rig.committed()
        with commit_held(rig):
            rig.produce(0, b"b", b"c")
            rig.produce(1, b"d")
            reply = await admin.offsets(OffsetsRequest(topic="orders"))
            assert [(r.end, r.stored_end) for r in reply.queues] == [(1, 3), (0, 1), (0, 0), (0, 0)]
            assert not reply.withheld_reason, "the policy can be met: acks are on their way"
            assert (await admin.status(StatusRequest())).withheld_records == 0
            rig.commit.refuse("no slave", rig.journal.end)
            reason = "they wait for slave g1-1 (no slave)"
            reply = await admin.offsets(OffsetsRequest(topic="orders"))
            assert reply.withheld_reason == reason
            status = await admin.status(StatusRequest())
            assert (status.withheld_records, status.withheld_reason) == (3, reason)
            deleted = rig.cluster.topics_by_id.pop(TOPIC.id)
            assert (await admin.status(StatusRequest())).withheld_records == 0
            rig.cluster.topics_by_id[TOPIC.id] = deleted
        await rig.committed()
        status = await admin.status(StatusRequest())
        assert (status.withheld_records, status.withheld_reason) == (0, "")
