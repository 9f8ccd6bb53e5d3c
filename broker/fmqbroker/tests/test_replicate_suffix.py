"""A suffix that breaks off, and a master that begins from what was lost: it is tried again."""

from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.replication_harness import cluster, until
from fmqbroker.tests.test_replicate_reconcile import CACHED, shorter_master
from fmqcore.cluster import GroupState


@pytest.mark.parametrize("lost", ["tail", "all", "all, and the slave's log was deleted"])
async def test_a_slave_that_dies_in_the_middle_of_its_suffix(tmp_path: Path, lost: str) -> None:
    """A master with an empty disk has made room for it by then, at the slave's log start."""
    async with cluster(tmp_path, 1, CACHED, dead_after_ms=300, retention_bytes=100_000) as c:
        slave = c.slaves[0]
        if "deleted" in lost:
            c.master.produce(600)
            await c.equal()
            await slave.journal.wait_durable(slave.journal.end)
            await slave.journal.retire(slave.journal.end, c.master.clock.wall_ms())
            assert slave.journal.log_start > 0
        _, end = await shorter_master(c, lose=lost[:4].strip(","))
        await c.master.start()
        held: list[Any] = []

        def hang(message: Any) -> list[Any]:
            if message.HasField("welcome") and not held:
                held.append(message)
                slave.tap.open.clear()  # says nothing more
            return [message]

        slave.tap.change = hang
        await slave.start()
        await until(lambda: held)
        await until(lambda: slave.name not in c.master.master._streams)
        slave.tap.open.set()
        await until(lambda: c.master.journal.durable_end == end)


async def test_a_master_whose_state_was_lost_is_followed_all_the_same(tmp_path: Path) -> None:
    """Its journal knows newer terms than ZooKeeper does, and tells them: it is no old master."""
    async with cluster(tmp_path) as c:
        c.master.produce()
        await c.equal()
        for node in c.nodes:
            await node.stop()
        c.zoo.history[:] = [GroupState()]
        for node in c.nodes:
            await node.start()
        await until(lambda: c.slaves[0].slave.upstream.caught_up)
