"""Decisions that only wait for a time are made then, though nothing else happens."""

import asyncio
from pathlib import Path

import pytest

from fmqbroker.tests.failover_harness import KEY, M, Net, Node, S, group_of, until, whole
from fmqcore.ids import Epoch, Permission
from fmqcore.zk.group_state import Mode

pytestmark = pytest.mark.processes

FOR_EVER_MS = 3_600_000


class Sent:
    """Hand-overs that a reader requests; the first of each term is refused while allowed."""

    def __init__(self, reader: Node) -> None:
        self.terms: list[Epoch] = []
        self.may = asyncio.Event()
        self._hand_over = reader.slave.hand_over
        reader.slave.hand_over = self._note  # type: ignore[method-assign]

    async def _note(self, epoch: Epoch, offsets: bytes, timeout_s: float) -> str:
        self.terms.append(epoch)
        if self.terms.count(epoch) == 1:
            await self.may.wait()
            return "later"
        return await self._hand_over(epoch, offsets, timeout_s)


async def looks_again(node: Node, times: int = 5) -> None:
    """Wait until it wakes and decides a few more times."""
    for _ in range(times):
        node.failover._wake.notify()
        await asyncio.sleep(0.05)


async def hands_over(net: Net, master: Node, slave: Node, sent: Sent, version: int) -> Node:
    """Run one round: the master dies, its reader is cut off from ZooKeeper, the master returns."""
    await master.kill()
    await until(lambda: slave.serves is Permission.READ)
    await slave.ack(4 * version, version)
    net.unlinked.add(S)
    master = await Node(net, M, takeover_wait_ms=FOR_EVER_MS).start()
    await until(lambda: master.group.standing and slave.serves is Permission.READ)
    before = len(sent.terms)
    sent.may.clear()
    await slave.proxy.cut()
    await until(lambda: not slave.group.standing)
    net.unlinked.clear()
    await until(lambda: len(sent.terms) > before)
    await looks_again(slave)
    assert len(sent.terms) == before + 1, "one at a time"
    sent.may.set()
    await until(lambda: master.serves is Permission.FULL)
    assert master.journal.state.offsets[KEY].floor == 4 * version
    assert master.state.mode is Mode.MASTER
    assert not master.state.degraded
    return master


async def test_a_reader_that_is_cut_off_hands_over_when_its_lease_ends(
    zookeeper: str, tmp_path: Path
) -> None:
    """The master's link is older: no new link or call wakes the reader, and the master waits."""
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        sent = Sent(slave)
        master = await hands_over(net, master, slave, sent, 2)
        # It learns of that from ZooKeeper only, some day: an installed record is not sent again.
        await until(lambda: slave.failover._handed_over == slave.state.epoch, "it heard the answer")
        reported = len(sent.terms)
        await looks_again(slave)
        assert slave.state.mode is Mode.SLAVE_CONSUME
        assert len(sent.terms) == reported
        await slave.proxy.mend()
        await until(lambda: slave.state.mode is Mode.MASTER and slave.state.isr, "as before")
        await hands_over(net, master, slave, sent, 3)
