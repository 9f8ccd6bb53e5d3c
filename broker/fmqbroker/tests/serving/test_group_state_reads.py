"""Group store reads during which something changes. No process, no wait."""

from collections.abc import Awaitable, Callable

import pytest

from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.tests.consume_harness import HandClock
from fmqbroker.tests.failover_harness import CLUSTER, GROUP, ROOT, M, S
from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.zk.group_config import GroupConfig, Member, config_to_json
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.live_broker import LiveBroker, live_to_json
from fmqport.coordination import Node, SessionState

CONFIG = GroupConfig(GroupName(GROUP), M, (Member(M, "h:1"), Member(S, "h:2")))


def live(broker: BrokerId, end: int = 0) -> LiveBroker:
    return LiveBroker(broker, "a", "h:1", Epoch(1), Position(end))


def state(epoch: int, master: BrokerId) -> bytes:
    return state_to_json(GroupState(Mode.MASTER, Epoch(epoch), master, master))


class Zoo:
    """Stands in for a session: reads of `at` return the value from before `happens` ran."""

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.session_id = 5
        self.nodes = {
            f"{ROOT}/config": Node(config_to_json(CONFIG), 0, 0),
            f"{ROOT}/state": Node(state(1, M), 0, 0),
        }
        self.at = ""
        self.happens: Callable[[], Awaitable[None]] | None = None

    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        node = self.nodes.get(path)
        await self._passes(path)
        return node

    async def children(self, path: str) -> list[str]:
        names = sorted(p[len(path) + 1 :] for p in self.nodes if p.startswith(f"{path}/"))
        await self._passes(path)
        return names

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        self.nodes[path] = Node(data, 0, self.session_id if ephemeral else 0)

    def write(self, path: str, data: bytes) -> None:
        before = self.nodes.get(path)
        self.nodes[path] = Node(data, 0 if before is None else before.version + 1, 0)

    async def _passes(self, path: str) -> None:
        if path == self.at and self.happens is not None:
            happens, self.happens = self.happens, None
            await happens()


@pytest.fixture
def zoo() -> Zoo:
    return Zoo()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(zoo: Zoo, clock: HandClock) -> GroupStore:
    store = GroupStore(zoo, clock, CLUSTER, GROUP, M)  # type: ignore[arg-type]
    await store.load()
    return store


async def test_a_lease_counts_from_before_its_read_was_sent(
    zoo: Zoo, clock: HandClock, store: GroupStore
) -> None:
    """Counted from its answer, it would outlive what it was read from: two would serve."""

    async def a_while() -> None:
        clock.advance(700)

    sent_ms = clock.monotonic_ms()
    zoo.at, zoo.happens = f"{ROOT}/state", a_while
    proof = await store.prove()
    assert clock.monotonic_ms() == sent_ms + 700
    assert proof.sent_ms == sent_ms


async def test_read_proves_nothing_if_the_session_ended_during_it(
    zoo: Zoo, store: GroupStore
) -> None:
    """Others have seen this broker go, whatever the answer says."""

    async def another_session() -> None:
        zoo.session_id = 6

    await store.announce(live(M))
    assert (await store.prove()).standing == store.standing == 1
    zoo.at, zoo.happens = f"{ROOT}/state", another_session
    assert (await store.prove()).standing == 0


async def test_look_before_announcement_does_not_mean_broker_is_gone(
    zoo: Zoo, store: GroupStore
) -> None:
    """A recreated node has another number, and every grant to the previous one is void."""

    async def announced() -> None:
        await store.announce(live(M))

    zoo.at, zoo.happens = f"{ROOT}/live", announced
    await store.refresh()
    assert M not in store.live
    assert store.standing == 1


async def test_undecodable_live_node_keeps_its_last_content(zoo: Zoo, store: GroupStore) -> None:
    zoo.write(f"{ROOT}/live/{S}", live_to_json(live(S, 7)))
    await store.refresh()
    zoo.write(f"{ROOT}/live/{S}", b"\xff")
    await store.refresh()
    assert store.live == {S: live(S, 7)}


async def test_new_acting_master_is_notified_once_before_it_is_visible(
    zoo: Zoo, store: GroupStore
) -> None:
    reported: list[BrokerId] = []
    store.on_master(lambda: reported.append(store.config.master))
    for epoch, master in ((2, M), (3, S), (4, S), (5, M)):
        zoo.write(f"{ROOT}/state", state(epoch, master))
        await store.prove()
        await store.refresh()
    assert reported == [S, M]
