"""A master that has no room cannot open a term: a reader must not stop serving for it."""

from pathlib import Path

from fmqbroker.tests.replication_harness import cluster, until


async def test_a_master_without_room_is_not_followed_until_it_has(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, in_sync=False, heartbeat_ms=50) as c:
        master, slave = c.master, c.slaves[0]
        await until(lambda: slave.slave.upstream.connected, "linked, no term is open")
        store = master.journal._parts.store
        enough, store._min_free_bytes = store._min_free_bytes, 1 << 62
        await store.check_space()
        await until(lambda: not slave.slave.upstream.connected, "told to go")

        store._min_free_bytes = enough
        await store.check_space()
        await until(lambda: slave.slave.upstream.connected, "and welcome again")

        await master.open_term()
        store._min_free_bytes = 1 << 62  # with a term open, slaves stay
        await store.check_space()
        await c.in_sync(1)
