"""An orderly stop gives away the reads only, whatever step was due next."""

from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.tests.failover_harness import M, S, group_of, until, whole
from fmqcore.ids import Permission
from fmqcore.zk.group_state import Mode, state_from_json

pytestmark = pytest.mark.processes


async def test_stopping_master_names_no_successor(zookeeper: str, tmp_path: Path) -> None:
    """F16: a stop does not wait until the successor has everything, so it names none."""
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, _ = await whole(net, S)
        net.keeps_isr = False
        net.unlinked.add(S)
        await until(lambda: not master.master.links[S].connected)
        await net.permit(M, Permission.WRITE)  # so no slave may take over the reads either
        await net.configure(replace(net.config, master=S))
        await until(lambda: master.group.wanted == S and "wanted" in master.gate.why)
        link = master.master.links[S]
        # The successor becomes ready at the moment of the stop.
        link.connected = link.caught_up = True
        link.incarnation = master.group.live[S].incarnation
        net.unlinked.clear()
        await master.stop()
        node = await net.admin.get("/fmq/c/groups/g1/state")
        assert node is not None
        state = state_from_json(node.data)
        assert (state.mode, state.epoch, state.successor_incarnation) == (Mode.MASTER, 1, "")
