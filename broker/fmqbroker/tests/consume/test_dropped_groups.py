"""A consumer group that is dropped while somebody waits: it takes no session and no start."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.registry import IDLE_MS, GroupTable
from fmqbroker.consume.subscriptions import Subscriptions
from fmqbroker.runtime.notifier import Signal
from fmqbroker.tests.consume.chain_kit import CHANGES, G1, OPEN
from fmqbroker.tests.consume_harness import TOPIC, Rig, consuming, running, until
from fmqcore.errors import ErrorCode, NoPermission, Unavailable
from fmqcore.ids import Permission
from fmqcore.ordered.subscriptions import add_at
from fmqcore.zk.chain import Chain
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import Mode
from fmqproto.v1.client_pb2 import START_EARLIEST


class Chains:
    """Stands in for `ChainCache`; an edit waits until it is let go."""

    def __init__(self) -> None:
        self.changed = Signal()
        self.stored = Versioned(OPEN, 0)
        self.editing = asyncio.Event()
        self.go = asyncio.Event()

    def of(self, topic_id: int) -> Chain | None:
        return self.stored.value if topic_id == CHANGES.id else None

    def is_unknown(self, _: int) -> bool:
        return False

    async def read(self, _: str) -> Versioned[Chain]:
        await asyncio.sleep(0)
        return self.stored

    async def edit(self, _: Versioned[Chain], after: Chain) -> bool:
        self.editing.set()
        await self.go.wait()
        self.put(after)
        return True

    def put(self, chain: Chain) -> None:
        self.stored = Versioned(chain, self.stored.version + 1)
        self.changed.notify()


@asynccontextmanager
async def rigged(path: Path) -> AsyncIterator[tuple[Rig, Chains]]:
    """Run a broker on an ordered topic, without ZooKeeper."""
    rig, chains = Rig(path), Chains()
    rig.cluster.set(CHANGES, TOPIC)
    rig.gate.mode = Mode.MASTER

    async def compare() -> None: ...

    copies: Any = SimpleNamespace(behind=lambda _: None, compare=compare)
    visible: Any = SimpleNamespace(queue=lambda *place: rig.visible.queue(*place))
    cache: Any = chains
    rig.chains = ChainReads(cache, G1, rig.gate, copies, visible, lambda *_: 10**6)
    async with running(rig):
        rig.produce(0, b"a", b"b", topic=CHANGES.id)
        await rig.committed()
        yield rig, chains


def _reads_go_and_return(rig: Rig) -> None:
    rig.gate.end_lease()
    with pytest.raises(NoPermission):
        rig.fetch.groups.require()
    rig.permit(Permission.FULL)


def _is_deleted(rig: Rig) -> None:
    rig.fetch.groups.forget("app", CHANGES.id)


@pytest.mark.parametrize("dropping", [_reads_go_and_return, _is_deleted])
async def test_group_dropped_as_it_gets_its_place_takes_no_session(
    tmp_path: Path, dropping: Callable[[Rig], None]
) -> None:
    """It would hang, and the acks that it takes would be lost."""
    async with rigged(tmp_path) as (rig, chains):

        async def meanwhile() -> None:
            await chains.editing.wait()
            dropping(rig)
            chains.go.set()

        dropper = asyncio.create_task(meanwhile())
        async with consuming(rig, topic=CHANGES.name, group="app") as first:
            await dropper
            assert first.opened is not None
            assert first.opened.error.code == int(ErrorCode.NO_PERMISSION)
            assert "app was dropped meanwhile: open again" in first.opened.error.message
        async with consuming(rig, topic=CHANGES.name, group="app") as again:
            await until(lambda: again.got)
            again.ack(again.got[0], token=1)
            await until(lambda: again.tokens == [1])
            assert again.ignored == []


async def test_session_joins_no_group_that_the_table_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rigged(tmp_path) as (rig, _):
        ensure = rig.fetch.groups.ensure

        async def dropped(*of: Any, **more: Any) -> Any:
            group = await ensure(*of, **more)
            rig.fetch.groups.drop(NoPermission("the reads went"))
            return group

        monkeypatch.setattr(rig.fetch.groups, "ensure", dropped)
        async with consuming(rig) as consumer:
            assert consumer.opened is not None
            assert consumer.opened.error.code == int(ErrorCode.NO_PERMISSION)


async def test_dropped_group_gets_no_start_from_a_later_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its progress is still to be stored as it was when the group was dropped."""
    async with rigged(tmp_path) as (rig, chains):
        groups = rig.fetch.groups
        chains.put(add_at(OPEN, "app", 1, {}, 1_000))
        group = await groups.ensure("app", CHANGES, START_EARLIEST, 0)
        before = group.progress[0].start_number
        seen = list[str]()

        def found(table: GroupTable) -> list[Any]:
            """It was there when the list was made."""
            seen.append("listed")
            return [group]

        groups.drop(NoPermission("the reads went"))
        monkeypatch.setattr(GroupTable, "ordered", found)
        follower = Subscriptions(groups, rig.chains, rig.gate)  # type: ignore[arg-type]
        chains.put(add_at(OPEN, "app", 1, {}, 9_000))
        following = asyncio.create_task(follower.run())
        await until(lambda: seen)
        await asyncio.sleep(0.05)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert group.progress[0].start_number == before
        assert chains.stored.value.start_numbers_of("app") != (before,)


async def test_session_that_opens_as_its_broker_stops_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic was looked for while the sessions were ended."""
    async with rigged(tmp_path) as (rig, _):
        asked, go = asyncio.Event(), asyncio.Event()

        async def find(*_: str) -> None:
            asked.set()
            await go.wait()

        async def stop() -> None:
            await asked.wait()
            await rig.fetch.drain(10.0)
            go.set()

        monkeypatch.setattr(rig.cluster, "find_topics", find)
        stopping = asyncio.create_task(stop())
        async with consuming(rig) as consumer:
            await stopping
            assert consumer.opened is not None
            assert "is stopping" in consumer.opened.error.message


async def test_group_that_got_no_place_is_not_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rigged(tmp_path) as (rig, chains):

        async def fail(*_: Any) -> bool:
            raise Unavailable("no ZooKeeper")

        monkeypatch.setattr(chains, "edit", fail)
        async with consuming(rig, topic=CHANGES.name, group="app") as consumer:
            assert consumer.opened is not None
            assert "no ZooKeeper" in consumer.opened.error.message
        groups = rig.fetch.groups
        await groups.stored()
        assert groups.get("app", CHANGES.id) is not None
        rig.hand.advance(IDLE_MS)
        await until(lambda: groups.get("app", CHANGES.id) is None)
