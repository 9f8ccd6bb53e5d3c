"""The remedies that a refusal over damage names work step by step, on master and slave."""

from pathlib import Path

import pytest

from fmqbroker.tests.replication_harness import Cluster, Node, cluster
from fmqcore.errors import CorruptJournal


async def damaged(c: Cluster, node: Node) -> str:
    """Stop it, flip a bit below its durable end, try to start it; return the message."""
    await c.equal()
    await node.journal.wait_durable(node.journal.end)
    await node.stop()
    segment = min(node.path.glob("*.journal"))
    raw = bytearray(segment.read_bytes())
    raw[5000] ^= 4
    segment.write_bytes(raw)
    with pytest.raises(CorruptJournal) as caught:
        await node.start()
    await node.disk.close()
    message = str(caught.value)
    assert f"{node.path}: " in message
    assert f"{segment.name}, position " in message
    return message.split("remedy: ")[1]


def move_away(node: Node) -> Path:
    """Do the first step: rename the whole directory."""
    away = node.path.with_name(f"{node.path.name}.damaged")
    node.path.rename(away)
    return away


@pytest.mark.parametrize("who", ["the slave", "the master"])
async def test_damaged_directory_moved_away_then_broker_starts(tmp_path: Path, who: str) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        end = c.master.produce(30)
        whole = await c.master.bytes()
        node = slave if who == "the slave" else c.master
        remedy = await damaged(c, node)
        assert "if another broker of the group holds this data" in remedy
        assert "move the whole data directory away and start again" in remedy
        away = move_away(node)
        await node.start()
        if node is c.master:
            c.addressed()
            await node.reaches(end)
            await node.open_term()
        await c.in_sync()
        c.master.produce(5)
        await c.committed()
        await c.equal()
        assert (await node.bytes()).startswith(whole)
        assert any(away.iterdir())
