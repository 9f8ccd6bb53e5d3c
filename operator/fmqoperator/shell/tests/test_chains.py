"""Which groups the chains of a cluster name, by as few reads as possible."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqcore.errors import Unavailable
from fmqcore.ids import GroupName
from fmqcore.zk import layout
from fmqcore.zk.chain_json import chain_to_json
from fmqoperator.core.ordered_sends import holds_evictions
from fmqoperator.shell import chains
from fmqoperator.shell.chains import ChainReader
from fmqoperator.shell.zookeeper import Ensemble
from fmqoperator.tests.chain_samples import G1, chain
from fmqoperator.tests.ordered_kit import with_topic
from fmqport.coordination import SessionState

G3 = GroupName("g3")
CHAIN = layout.chain_node("dev", "orders")


class Session:
    """A ZooKeeper of these nodes, which counts the reads of the chain."""

    state = SessionState.CONNECTED

    def __init__(self, **nodes: bytes) -> None:
        self.nodes = {CHAIN: chain_to_json(chain(G1))} | nodes
        self.reads, self.refuses = 0, False

    async def sync(self, path: str) -> None:
        if self.refuses and path == layout.ordered_node("dev"):
            raise Unavailable("no session")

    async def children(self, path: str) -> list[str]:
        parent = f"{path}/"
        return [p.removeprefix(parent) for p in self.nodes if p.startswith(parent)]

    async def get(self, path: str) -> Any:
        self.reads += path == CHAIN
        data = self.nodes.get(path)
        return None if data is None else SimpleNamespace(data=data, version=0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(chains, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


async def test_groups_in_chains_are_read_once_for_all(clock: SimpleNamespace) -> None:
    session = Session()
    reader = ChainReader(cast(Any, session))
    found = [await reader.names("dev", group) for group in (G1, G3, G1, G3)]
    assert found == [True, False, True, False]
    assert session.reads == 1
    del session.nodes[CHAIN]
    clock.s = chains._NAMED_S + 1
    assert not await reader.names("dev", G1)


async def test_unreadable_chains_may_name_any_group(clock: SimpleNamespace) -> None:
    session = Session()
    session.refuses = True
    assert await ChainReader(cast(Any, session)).names("dev", G3)


@pytest.mark.parametrize("deleted", [False, True])
async def test_group_holds_no_eviction_once_its_topics_are_deleted(
    deleted: bool, clock: SimpleNamespace
) -> None:
    """Its node of closings stays as long as the group."""
    session = Session(**{layout.chains_node("dev", G1): b""})
    if deleted:
        del session.nodes[CHAIN]
    ensemble = Ensemble.__new__(Ensemble)
    ensemble._session, ensemble._chains = cast(Any, session), ChainReader(cast(Any, session))
    found = await ensemble._read_group("dev", G1)
    made = with_topic()
    made.run()
    seen = made.seen()
    assert seen.zookeeper is not None
    seen = replace(seen, zookeeper=replace(seen.zookeeper, has_chains=found.has_chains))
    assert holds_evictions(seen) is not deleted
