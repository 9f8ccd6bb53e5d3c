"""Masters and slaves on full disks still store a term and control batches."""

from pathlib import Path

import pytest

from fmqadapters.disk.files import FileDisk
from fmqbroker.tests import failover_harness
from fmqbroker.tests.failover_harness import M, Node, S, group_of
from fmqbroker.tests.journal.test_full_disk import SmallDisk, offsets
from fmqbroker.tests.journal.test_full_disk_terms import KEYS, rest
from fmqbroker.tests.journal_kit import data
from fmqbroker.tests.replication_harness import cluster, until
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import Offset, Permission, TopicId
from fmqport.disk import Disk


async def test_master_with_stuck_writer_gets_no_hand_over(
    tmp_path: Path,
) -> None:
    """It cannot open a term, so a reader must not stop serving for it."""
    async with cluster(tmp_path, 1, in_sync=False, heartbeat_ms=50) as c:
        master, slave = c.master, c.slaves[0]
        await until(lambda: slave.slave.upstream.connected, "linked, no term is open")
        space = master.journal._parts.store.space
        space.note_stuck("no room")
        await until(lambda: not slave.slave.upstream.connected, "sent away")

        space.note_unstuck()
        await until(lambda: slave.slave.upstream.connected, "and welcome again")

        await master.open_term()
        space.note_stuck("no room")  # with a term open, slaves stay
        await c.in_sync(1)


async def test_full_disks_on_both_sides_still_carry_terms_and_offsets(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, heartbeat_ms=50) as c:
        master, slave = c.master, c.slaves[0]
        master.produce(10)
        await c.committed()
        for node in (master, slave):
            space = node.journal._parts.store.space
            space._min_free = 1 << 62
            await space.check()
        await until(lambda: master.master.links[slave.name].connected)
        for version in range(1, 30):
            await c.committed(master.journal.append(offsets(version)).end)
        assert slave.journal.state.offsets == master.journal.state.offsets
        assert c.isr == {slave.name}
        space = master.journal._parts.store.space
        space._min_free = 0
        await space.check()
        end = master.journal.append(data(b"the slave has no room for this")).end
        await until(lambda: not c.isr, "left behind")
        assert slave.journal.end < end
        assert slave.slave.upstream.connected
        space = slave.journal._parts.store.space
        space._min_free = 0
        await space.check()
        await c.in_sync(1)
        await c.equal()


async def test_returning_master_on_full_disk_installs_readers_record(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its EPOCH batch fits but not the reader's record: then no broker would serve."""
    left = 100_000  # less than a segment takes
    keys = [OffsetKey(f"group{n}", TopicId(1), 0) for n in range(KEYS)]
    total = 1 << 28

    def disk_of(path: str) -> Disk:
        return SmallDisk(Path(path), total) if Path(path).name == M else FileDisk(path)

    monkeypatch.setattr(failover_harness, "FileDisk", disk_of)
    async with group_of(zookeeper, tmp_path, M, S) as net:
        m, s = Node(net, M, min_free_bytes=1 << 20), Node(net, S)
        await m.start()
        await s.start()
        await until(lambda: m.serves is Permission.FULL and m.state.isr == {S})
        await until(lambda: m.journal._parts.store.space.reserved)
        while rest(m.journal) > 2500:
            m.produce(bytes(1000))
        await until(lambda: s.journal.durable_end == m.journal.end)
        disk = m.journal._parts.store.disk
        assert isinstance(disk, SmallDisk)
        disk.total = total = total - disk.left + left  # others took the rest
        await m.journal._parts.store.space.check()
        await m.kill()
        await until(lambda: s.serves is Permission.READ, "the slave reads")
        await s.offsets.put(dict.fromkeys(keys, OffsetEntry(1 << 40, Offset(1))))

        m = await Node(net, M, min_free_bytes=1 << 20).start()
        await until(lambda: m.serves & Permission.READ, "the master is back")
        assert m.journal.full
        assert all(m.offsets.get(key) == OffsetEntry(1 << 40, Offset(1)) for key in keys)
