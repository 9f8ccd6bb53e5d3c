"""A broker's gate between the moment a state is seen and the decision on it."""

from pathlib import Path

import pytest

from fmqbroker.tests.failover_harness import M, S, group_of, until, whole
from fmqcore.ids import Epoch, Permission
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode

pytestmark = pytest.mark.processes


async def test_grants_of_another_masters_term_do_not_count(zookeeper: str, tmp_path: Path) -> None:
    """F5: an empty in-sync set is unanimous only for the broker that opened the term.

    A master is cut off and declared lost; its only slave is promoted and has no slave in sync yet.
    The returned broker serves nothing, not even before it has decided on the state it just read.
    """
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, _ = await whole(net, S)
        net.keeps_isr = False
        net.unlinked.add(S)
        await master.proxy.cut()
        await until(lambda: master.serves is Permission.NONE, "its lease and its grants are over")
        now = master.group.state
        promoted = GroupState(Mode.MASTER, Epoch(now.value.epoch + 3), master=S, reader=S)
        master.group._see(Versioned(promoted, now.version + 3))
        assert master.serves is Permission.NONE
