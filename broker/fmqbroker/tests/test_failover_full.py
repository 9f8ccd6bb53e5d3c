"""Masters and slaves whose disks are full: a term, and control batches, always find their way."""

from pathlib import Path

from fmqbroker.tests.journal_kit import data
from fmqbroker.tests.replication_harness import cluster, until
from fmqbroker.tests.test_journal_full import offsets


async def test_a_master_whose_writer_is_stuck_is_not_followed_until_it_is_not(
    tmp_path: Path,
) -> None:
    """It cannot open a term: a reader must not stop serving for it."""
    async with cluster(tmp_path, 1, in_sync=False, heartbeat_ms=50) as c:
        master, slave = c.master, c.slaves[0]
        await until(lambda: slave.slave.upstream.connected, "linked, no term is open")
        space = master.journal._parts.store.space
        space.note_stuck("no room")
        await until(lambda: not slave.slave.upstream.connected, "told to go")

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
