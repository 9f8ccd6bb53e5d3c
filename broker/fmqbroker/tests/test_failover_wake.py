"""What waits for time alone is decided when the time has come, though nothing else happens."""

import asyncio
from pathlib import Path

import pytest

from fmqbroker.tests.failover_harness import KEY, M, Node, S, group_of, until, whole
from fmqcore.cluster import Mode
from fmqcore.words import Epoch, Permission

pytestmark = pytest.mark.processes

FOR_EVER_MS = 3_600_000


def counted(reader: Node) -> list[Epoch]:
    """The hand-overs that it asks for from now on."""
    sent: list[Epoch] = []
    hand_over = reader.slave.hand_over

    async def note(epoch: Epoch, offsets: bytes, timeout_s: float) -> str:
        sent.append(epoch)
        return await hand_over(epoch, offsets, timeout_s)

    reader.slave.hand_over = note  # type: ignore[method-assign]
    return sent


async def test_a_reader_that_is_cut_off_hands_over_when_its_lease_ends(
    zookeeper: str, tmp_path: Path
) -> None:
    """Its master was linked before that: no link comes, nobody calls, and the master waits."""
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await master.kill()
        await until(lambda: slave.serves is Permission.READ)
        await slave.ack(8, 2)
        net.unlinked.add(S)
        master = await Node(net, M, takeover_wait_ms=FOR_EVER_MS).start()
        await until(lambda: master.group.standing and slave.serves is Permission.READ)
        sent = counted(slave)
        await slave.proxy.cut()
        await until(lambda: not slave.group.standing)
        net.unlinked.clear()
        await until(lambda: master.serves is Permission.FULL)
        assert master.journal.state.offsets[KEY].floor == 8
        assert master.state.mode is Mode.MASTER
        assert not master.state.degraded
        # It learns of that from ZooKeeper only, some day: what is installed is not sent again.
        await until(lambda: slave.failover._handed_over == slave.state.epoch, "it heard the answer")
        told = len(sent)
        for _ in range(5):
            slave.failover._wake.notify()
            await asyncio.sleep(0.05)
        assert slave.state.mode is Mode.SLAVE_CONSUME
        assert len(sent) == told
