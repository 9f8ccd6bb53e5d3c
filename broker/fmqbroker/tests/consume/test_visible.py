"""A rule that hides committed messages, planted where readers ask what they may see."""

from pathlib import Path

from fmqbroker.consume.visible import Visible
from fmqbroker.data.segment_service import SegmentService
from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.consume_harness import TOPIC, Rig, consuming, running, until
from fmqcore.consume.visibility import Visibility
from fmqcore.ids import Position
from fmqport.tests.call_context import CALL
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import OffsetsRequest, SeekRequest
from fmqproto.v1.segments_pb2 import SegmentsRequest


class Hiding(Visible):
    """Hides what lies at or above a position, committed or not."""

    limit: Position | None = None

    def now(self) -> Visibility:
        return super().now() if self.limit is None else super().now().limited(self.limit)


async def test_no_reader_sees_what_a_planted_rule_hides(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.visible_type = Hiding
    async with running(rig):
        hiding = rig.visible
        assert isinstance(hiding, Hiding)
        rig.produce(0, b"a", b"b")
        hiding.limit = rig.journal.end
        rig.produce(0, b"c")
        await rig.committed()
        admin = admin_of(rig)
        segments = SegmentService(rig.settings, rig.hand, rig.journal, hiding, lambda: "")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            assert [value for *_, value, _ in consumer.values()] == [b"a", b"b"]
            rows = await admin.offsets(OffsetsRequest(topic="orders", group="billing"))
            assert rows.queues[0].end == 2
            latest = await rig.fetch.groups.position(TOPIC.id, 0, client_pb2.START_LATEST, 0)
            assert latest == 2
            seek = SeekRequest(topic="orders", group="audit", by_offset=True, offset=9, queues=[0])
            assert (await admin.seek(seek)).queues[0].committed == 2
            assert (await segments.list(CALL, SegmentsRequest())).end == hiding.limit
            hiding.limit = None
            hiding.changed.notify()
            await until(lambda: len(consumer.got) == 2)
            assert [value for *_, value, _ in consumer.values(1)] == [b"c"]
