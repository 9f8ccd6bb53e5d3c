"""A broker of a group whose nodes were removed from ZooKeeper."""

from dataclasses import replace

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.tests.failover_harness import CLUSTER, GROUP, ROOT, M
from fmqbroker.tests.serving.test_broker_group_state import admin, session_of
from fmqcore.errors import NotFound, Unavailable
from fmqcore.ids import Epoch
from fmqcore.zk.group_state import GroupState

__all__ = ["admin"]

pytestmark = pytest.mark.processes


async def test_a_group_that_is_gone_ends_a_change(zookeeper: str, admin: ZooKeeperSession) -> None:
    """All its nodes were removed under a broker: that is not a lost race to run again."""
    async with session_of(zookeeper) as session:
        store = GroupStore(session, SystemClock(), CLUSTER, GROUP, M)
        await store.load()
        await admin.delete(f"{ROOT}/config")
        await admin.delete(ROOT)
        edits = 0

        def edit(state: GroupState) -> GroupState | None:
            nonlocal edits
            edits += 1
            return replace(state, epoch=Epoch(1)) if edits < 5 else None

        with pytest.raises(Unavailable, match="may have been removed"):
            await store.change(edit)
        assert (edits, store.unsettled) == (1, False)
        with pytest.raises(NotFound, match="may have been removed"):
            await GroupStore(session, SystemClock(), CLUSTER, GROUP, M).load()
