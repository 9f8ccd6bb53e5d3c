"""The state names the acting master, the configuration the wanted one (ADR 0022)."""

from dataclasses import replace

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.tests.failover_harness import M, S
from fmqbroker.tests.serving.test_broker_group_state import admin, session_of, store_of
from fmqcore.ids import BrokerId, Epoch

__all__ = ["admin"]  # the fixture


async def test_state_names_acting_master_config_names_wanted_master(
    zookeeper: str, admin: ZooKeeperSession
) -> None:
    reported: list[BrokerId] = []
    async with session_of(zookeeper) as session, store_of(session) as store:
        store.on_master(lambda: reported.append(store.config.master))
        await store.change(lambda s: replace(s, epoch=Epoch(1), master=S))
        assert (store.config.master, store.wanted, reported) == (S, M, [S])
        await store.refresh()
        await store.change(lambda s: replace(s, epoch=Epoch(2), master=M))
        assert (store.config.master, store.wanted, reported) == (M, M, [S, M])
