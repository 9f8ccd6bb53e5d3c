"""Progress rows: their lag, and how they are paged."""

from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fmqbroker.app.health import Health
from fmqbroker.app.metrics import Metrics
from fmqbroker.tests.admin.test_admin import OTHER, admin_of
from fmqbroker.tests.consume_harness import TOPIC, Rig, consuming, key, running, until
from fmqbroker.tests.seen_harness import snapshots_of
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.consume.offsets.lag import lag
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.journal.state import TEMPORARY_QUEUE
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import (
    DeleteGroupRequest,
    OffsetsAfter,
    OffsetsRequest,
    QueueOffsets,
)

UNREAD = TopicConfig("unread", TopicId(9), (TopicGroup(GroupName("g1"), 1),))


async def lags_of(rig: Rig) -> dict[str, float]:
    """Return the metric of lag by consumer group."""
    health = Health(rig.disk, rig.clock)
    health.stage, health.snapshots = "", snapshots_of(rig)
    text = (await Metrics(rig.settings, health).text()).decode()
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    return {s.labels["consumer_group"]: s.value for s in samples
            if s.name == "fmq_consumer_lag_messages"}  # fmt: skip


async def test_away_group_has_new_queues_to_read(tmp_path: Path) -> None:
    """The topic grows while no member is there: the lag is what a member that joins then gets."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a")
        await rig.committed()
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            consumer.ack(consumer.got[0], token=1)
            await until(lambda: consumer.tokens)
        rig.fetch.groups.forget("billing", TOPIC.id)  # as a restart does
        rig.cluster.set(replace(TOPIC, groups=(TopicGroup(GroupName("g1"), 6),)))
        for queue in (4, 5):
            rig.produce(queue, b"x", b"y")
        await rig.committed()
        for request in (OffsetsRequest(topic="orders", group="billing"), OffsetsRequest()):
            found = (await admin_of(rig).offsets(request)).queues
            assert [(r.queue_id, r.group) for r in found] == [(q, "billing") for q in range(6)]
            behind = [lag(r.committed, r.begin, r.end, r.acked_ahead) for r in found]
            assert behind == [0, 0, 0, 0, 2, 2]
        assert await lags_of(rig) == {"billing": 4}
        async with consuming(rig, "s2", start=client_pb2.START_LATEST) as consumer:
            await until(lambda: len(consumer.values()) == 4)


async def test_lag_excludes_records_acked_out_of_order(tmp_path: Path) -> None:
    """With all but the first message acked, the lag is one in the rows and in the metric."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"x"] * 100)
        await rig.committed()
        await rig.offsets.put(
            {key(0): OffsetEntry(1 << 32, Offset(0), ((Offset(1), Offset(100)),))}
        )
        reply = await admin_of(rig).offsets(OffsetsRequest(topic="orders", group="billing"))
        row, *others = reply.queues
        assert {other.end for other in others} == {0}
        assert lag(row.committed, row.begin, row.end, row.acked_ahead) == 1
        health = Health(rig.disk, rig.clock)
        health.stage, health.snapshots = "", snapshots_of(rig)
        text = (await Metrics(rig.settings, health).text()).decode()
        found = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples
                 if s.labels.get("consumer_group") == "billing"}  # fmt: skip
        assert found == {"fmq_consumer_lag_messages": 1, "fmq_consumer_members": 0}


async def test_a_temporary_group_has_no_lag_metric(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"x"] * 100)
        await rig.committed()
        note = key(0)._replace(queue_id=TEMPORARY_QUEUE)
        named = OffsetKey("named", TOPIC.id, 0)
        entry = OffsetEntry(1, Offset(0))
        await rig.offsets.put({key(0): entry, note: tombstone(1), named: entry})
        assert set(await lags_of(rig)) == {"named"}


async def test_rows_come_page_by_page_all_and_in_order(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.cluster.set(TOPIC, OTHER, UNREAD)
        names = ("a", "b", "gone")
        keys = [OffsetKey(g, t.id, q) for g in names for t in (TOPIC, OTHER) for q in range(3)]
        await rig.offsets.put({k: OffsetEntry(1, Offset(0)) for k in keys if k.queue_id != 1})
        admin = admin_of(rig)
        await admin.delete_group(DeleteGroupRequest(group="gone"))
        whole = await admin.offsets(OffsetsRequest())
        assert not whole.has_more
        found, request = list[QueueOffsets](), OffsetsRequest(limit=2)
        while True:
            reply = await admin.offsets(request)
            assert len(reply.queues) <= 2
            found += reply.queues
            if not reply.has_more:
                break
            last = found[-1]
            after = OffsetsAfter(topic=last.topic, queue_id=last.queue_id, group=last.group)
            request.after.CopyFrom(after)
        assert found == list(whole.queues)
        places = [(row.topic, row.queue_id, row.group) for row in found]
        assert places == sorted(places)
        assert ("unread", 0, "") in places, "a topic without a reader"
        assert {("orders", 1, "a"), ("orders", 1, "b")} < set(places), "not started"
        assert ("orders", 1, "gone") not in places
