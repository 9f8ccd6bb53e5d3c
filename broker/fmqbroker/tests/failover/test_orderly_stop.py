"""What an orderly stop leaves behind: the reads to a slave, a reader's offsets to the master."""

from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.tests.failover_harness import (
    KEY,
    ROOT,
    M,
    Net,
    Node,
    S,
    T,
    group_of,
    until,
    whole,
)
from fmqcore.ids import Permission
from fmqcore.zk.group_state import GroupState, Mode, state_from_json

pytestmark = pytest.mark.processes


async def state_of(net: Net) -> GroupState:
    """Return the group's state as it is in ZooKeeper."""
    node = await net.admin.get(f"{ROOT}/state")
    assert node is not None
    return state_from_json(node.data)


async def test_stopping_master_names_no_successor(zookeeper: str, tmp_path: Path) -> None:
    """F16: a stop does not wait until the successor has everything, so it names none."""
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, _ = await whole(net, S)
        net.keeps_isr = False
        net.unlinked.add(S)
        await until(lambda: not master.master.links[S].connected)
        await net.permit(M, Permission.WRITE)  # so no slave may take over the reads either
        await net.configure(replace(net.config, master=S))
        await until(lambda: master.group.wanted == S and "wanted" in master.gate.reason)
        link = master.master.links[S]
        # The successor becomes ready at the moment of the stop.
        link.connected = link.caught_up = True
        link.incarnation = master.group.live[S].incarnation
        net.unlinked.clear()
        await master.stop()
        state = await state_of(net)
        assert (state.mode, state.epoch, state.successor_incarnation) == (Mode.MASTER, 1, "")


async def test_stopped_reader_leaves_its_offsets_to_the_master(
    zookeeper: str, tmp_path: Path
) -> None:
    """All members of a group stop, as at hibernation; its reader comes back late, or never."""
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, reader = await whole(net, S)
        await master.stop()
        await until(lambda: reader.serves is Permission.READ)
        await reader.ack(5, 2)
        await reader.stop()
        left = await state_of(net)
        assert (left.mode, left.offsets_final) == (Mode.HANDOVER, True)
        master = await Node(net, M, takeover_wait_ms=600_000).start()
        await until(lambda: master.serves is Permission.FULL)
        assert master.journal.state.offsets[KEY].floor == 5
        assert not master.state.degraded
        assert S in master.state.reason


async def test_master_that_gave_reads_that_none_took_reopens(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, successor = await whole(net, S)
        await successor.proxy.cut()  # it does not see that it is to serve
        await master.stop()
        await successor.kill()
        given = await state_of(net)
        assert (given.mode, given.reader) == (Mode.SLAVE_CONSUME, S)
        master = await Node(net, M, takeover_wait_ms=600_000).start()
        await until(lambda: master.serves is Permission.FULL)
        assert not master.state.degraded


async def test_stopped_reader_leaves_its_offsets_to_the_next(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other slave may claim as soon as the reader's live node is gone, before the stop ends."""
    async with group_of(zookeeper, tmp_path, M, S, T) as net:
        master, *slaves = await whole(net, S, T)
        await master.kill()
        await until(lambda: any(n.serves is Permission.READ for n in slaves))
        reader = next(n for n in slaves if n.serves)
        other = next(n for n in slaves if n is not reader)
        await reader.ack(5, 2)
        withdraw = reader.group.withdraw

        async def until_claimed() -> None:
            await withdraw()
            await until(lambda: other.serves is Permission.READ)

        monkeypatch.setattr(reader.group, "withdraw", until_claimed)
        await reader.stop()
        assert (int(other.state.epoch), Mode.HANDOVER, 3) == (4, *net.terms[-2])
        entry = other.offsets.get(KEY)
        assert entry is not None
        assert entry.floor == 5
