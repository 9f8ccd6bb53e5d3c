"""Retention keeps what consumer groups of ordered topics have not read, up to the disk limit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fmqbroker.data.retention import Retention
from fmqbroker.ordered.kept_segments import KeptSegments
from fmqbroker.tests.consume.chain_kit import APP, CHANGES, G1, G2, OPEN, C, Stage, staged
from fmqbroker.tests.consume_harness import ME, until
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Offset, Position
from fmqcore.zk import layout
from fmqcore.zk.chain import Segment

pytestmark = pytest.mark.processes

READ = replace(OPEN, heads=APP)


class Links:
    """Stands in for replication: no slave needs anything."""

    def __init__(self, stage: Stage) -> None:
        self.links: dict[Any, Any] = {}
        self._journal = stage.one.rig.journal

    def keep_from(self) -> Position:
        return self._journal.end


def retention(stage: Stage) -> Retention:
    rig = stage.one.rig
    view: Any = rig.cluster
    kept = KeptSegments(stage.one.cache, view, G1, rig.journal)
    links: Any = Links(stage)
    group: Any = rig.group
    return Retention(ME, rig.journal, rig.commit, group, links, links, rig.clock, ordered=kept)


async def filled(stage: Stage) -> None:
    rig = stage.one.rig
    for _ in range(20):
        stage.one.produce(b"x" * 30_000)
    await rig.committed()


SMALL: Any = {"segment_bytes": 64 * 1024, "retention_bytes": 100_000}


async def test_unread_segment_is_kept_until_the_disk_is_full(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper, READ, **SMALL) as stage:
        await filled(stage)
        journal, keeping = stage.one.rig.journal, retention(stage)
        assert await keeping.check_once() == 0, "`app` has read nothing"
        space = journal._parts.store.space
        space._min_free = 1 << 62
        await space.check()
        with capture_logs() as logs:
            assert await keeping.check_once() > 0
        (expired,) = [log for log in logs if log["event"] == "ordered_segment_expired"]
        assert expired["topic"] == "changes"
        space._min_free = 0
        await until(lambda: not journal.full)
        start = journal.journal_start
        await filled(stage)
        assert await keeping.check_once() == 0, "the rest is kept again"
        assert journal.journal_start == start


async def test_damaged_unread_segment_goes_when_the_disk_is_full(
    tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a place for it, nothing of any topic was ever deleted again."""
    async with staged(tmp_path, zookeeper, READ, **SMALL) as stage:
        await filled(stage)
        journal, keeping = stage.one.rig.journal, retention(stage)

        async def find(*_: object) -> None:
            raise CorruptJournal("a segment is damaged")

        monkeypatch.setattr(journal, "find", find)
        assert await keeping.check_once() == 0, "`app` has read nothing"
        space = journal._parts.store.space
        space._min_free = 1 << 62
        await space.check()
        assert await keeping.check_once() > 0


async def test_open_segment_loses_what_all_have_read(tmp_path: Path, zookeeper: str) -> None:
    """It may be open for months: what is read in it goes by age and size, as elsewhere."""
    async with staged(tmp_path, zookeeper, READ, **SMALL) as stage:
        await filled(stage)
        key = OffsetKey("app", CHANGES.id, 0)
        await stage.one.rig.offsets.put({key: OffsetEntry(1, Offset(5), ())})
        await until(lambda: stage.one.rig.journal.state.offsets.get(key) is not None)
        await stage.one.rig.committed()
        assert await retention(stage).check_once() > 0
        begin = stage.one.rig.journal.begin_offset(CHANGES.id, 0)
        assert 0 < begin <= 5, "what it has not read stays"


@pytest.mark.parametrize("drained", ["no consumer group", "left by all"])
async def test_what_no_group_reads_any_more_is_deleted(
    tmp_path: Path, zookeeper: str, drained: str
) -> None:
    chain = OPEN
    if drained == "left by all":
        chain = replace(
            READ,
            heads=(("app", (2,)),),
            segments=(Segment(2, G2, 1, (21,), (0,)),),
            floor=replace(READ.floor, number=1, sender_epoch=1, last_sequence=(20,)),
        )
    async with staged(tmp_path, zookeeper, chain, **SMALL) as stage:
        await filled(stage)
        assert await retention(stage).check_once() > 0


async def test_topic_without_a_known_chain_keeps_its_records(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper, READ, **SMALL) as stage:
        await filled(stage)
        await stage.session.delete(layout.chain_node(C, CHANGES.name))
        await until(lambda: stage.one.cache.of(CHANGES.id) is None)
        assert await retention(stage).check_once() == 0
