"""Rounds of many groups at a time: a turn is taken once, and survives faults."""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import RESTART
from fmqoperator.core.observation import Failure, Observation
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.shell.apply import Applier
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.groups import Groups
from fmqoperator.shell.keeper import Key
from fmqoperator.shell.observe import Observer
from fmqoperator.tests.plan_kit import restarts
from fmqoperator.tests.world import World, running

NEW = "fmq-broker:new"
_WHOSE: ContextVar[World] = ContextVar("whose round it is")


class Fleet:
    """Groups under one operator, whose default image is a new one."""

    def __init__(self, count: int) -> None:
        self.worlds = {Key("BrokerGroup", "shop", f"g{n}"): running(True) for n in range(count)}
        for world in self.worlds.values():
            world.image = NEW
        self.written = True
        self.start()

    def start(self) -> None:
        """Start an operator that knows only what statuses hold."""
        self.events = SimpleNamespace(emit=self._nothing, round_ended=lambda _about: None)
        self.groups = Groups(cast(Observer, self), cast(Applier, self))

    # ---- the observer and the applier, as `Groups` calls them
    @property
    def cache(self) -> Any:
        return self

    @property
    def ensembles(self) -> Any:
        return SimpleNamespace(of=lambda _a: SimpleNamespace(watch=lambda *_: lambda: None))

    def updating(self) -> Iterator[tuple[tuple[str, str], str]]:
        for key, world in self.worlds.items():
            yield (key.namespace, key.name), held(world)

    def group(self, key: tuple[str, str]) -> Any:
        world = self.worlds.get(Key("BrokerGroup", *key))
        return None if world is None else world.body

    async def observe(self, _group: Any, failures: tuple[Failure, ...]) -> Observation:
        await asyncio.sleep(0)
        seen = _WHOSE.get().seen()
        return replace(seen, children=deepcopy(seen.children), failures=failures)

    async def chains(self, _group: Any) -> tuple[ChainSeen, ...] | None:
        await asyncio.sleep(0)
        return _WHOSE.get().chains

    async def do(self, _group: Any, _body: Any, action: Any) -> None:
        await asyncio.sleep(0)
        _WHOSE.get().do(action)

    async def _nothing(self, *_: Any) -> None:
        return

    # ---- for tests
    async def round(self, key: Key) -> None:
        world = self.worlds[key]
        _WHOSE.set(world)
        done = await self.groups.round(key, world.body, (), lambda: None)
        if self.written:
            world.body["status"] = done.status

    async def rounds(self) -> None:
        """Run one round of each, all at a time; then what happens by itself."""
        async with asyncio.TaskGroup() as tasks:
            for key in self.worlds:
                tasks.create_task(self.round(key))
        for world in self.worlds.values():
            world.turn()

    async def stuck(self) -> Key:
        """The new image does not run, and one group has started: return it."""
        for world in self.worlds.values():
            world.bad_images.add(NEW)
        for _ in range(5):
            await self.rounds()
        (first,) = [key for key in self.worlds if key.name in self.started()]
        return first

    def started(self) -> list[str]:
        return [key.name for key, world in self.worlds.items() if restarts(world)]


def held(world: World) -> str:
    found: str = world.body["status"].get("memory", {}).get("restartTurn", "")
    return found


async def test_rounds_at_one_time_take_one_turn() -> None:
    fleet = Fleet(4)
    for _ in range(3):
        await fleet.rounds()
    assert len(fleet.started()) == 1
    for _ in range(400):
        before = fleet.started()
        whole = [w for w in fleet.worlds.values() if {p.image for p in w.pods.values()} == {NEW}]
        await fleet.rounds()
        assert len(set(fleet.started()) - set(before)) <= 1
        assert len(fleet.started()) <= len(whole) + 1
        if len(whole) == 4:
            break
    assert len(fleet.started()) == 4


async def test_turn_without_a_written_status_is_kept() -> None:
    """The API server takes no status for a while."""
    fleet = Fleet(2)
    for world in fleet.worlds.values():
        world.bad_images.add(NEW)
    fleet.written = False
    for _ in range(20):
        await fleet.rounds()
    assert len(fleet.started()) == 1
    fleet.written = True
    await fleet.rounds()
    assert [held(w) for w in fleet.worlds.values()].count(NEW) == 1


async def test_next_operator_knows_which_group_has_the_turn() -> None:
    """Whichever group it looks at first."""
    fleet = Fleet(2)
    first = await fleet.stuck()
    fleet.start()
    for key in fleet.worlds:
        if key != first:
            await fleet.round(key)
    for _ in range(5):
        await fleet.rounds()
    assert fleet.started() == [first.name]


async def test_deleted_group_has_no_turn() -> None:
    fleet = Fleet(2)
    first = await fleet.stuck()
    gone = fleet.worlds.pop(first)
    cast(Any, fleet).brokers = SimpleNamespace(forget=fleet._nothing)
    cast(Any, fleet).defaults = gone.seen().defaults
    await fleet.groups.gone(first, gone.body)
    for _ in range(5):
        await fleet.rounds()
    assert len(fleet.started()) == 1


def _image(world: World) -> None:
    world.spec(image="fmq-broker:custom")


def _resources(world: World) -> None:
    world.spec(resources={"limits": {"memory": "2Gi"}})


def _settings(world: World) -> None:
    world.spec(settings={"sessionTimeoutMs": 3000})


def _restart(world: World) -> None:
    world.annotate(RESTART, "now")


def away(world: World) -> bool:
    return world.state.mode is not Mode.MASTER or any(not p.ready for p in world.pods.values())


@pytest.mark.parametrize("change", [_image, _resources, _settings, _restart])
async def test_one_change_in_all_groups_then_one_rolls_at_a_time(
    change: Callable[[World], None],
) -> None:
    """A topic lies in all groups of a cluster: at most one of them may lack a broker."""
    fleet = Fleet(3)
    for world in fleet.worlds.values():
        world.image = "fmq-broker:test"
        change(world)
    for _ in range(300):
        await fleet.rounds()
        assert sum(map(away, fleet.worlds.values())) <= 1
        if all(len(restarts(w)) == 2 for w in fleet.worlds.values()):
            break
    assert [len(restarts(w)) for w in fleet.worlds.values()] == [2, 2, 2]
    for _ in range(10):
        await fleet.rounds()
    assert [held(w) for w in fleet.worlds.values()] == ["", "", ""]


async def test_groups_of_two_clusters_roll_at_the_same_time() -> None:
    fleet = Fleet(2)
    other = fleet.worlds[Key("BrokerGroup", "shop", "g1")]
    for world in fleet.worlds.values():
        world.image = "fmq-broker:test"
        _restart(world)
    other.body["spec"]["zookeeper"] = {"connect": "elsewhere:2181"}
    for _ in range(3):
        await fleet.rounds()
    assert len(fleet.started()) == 2


def test_turns_are_read_from_statuses() -> None:
    bodies = {
        ("shop", "g1"): [{"status": {"memory": {"restartTurn": NEW}}}],
        ("shop", "g2"): [{"status": {}}],
        ("shop", "g3"): [{"spec": {}}],
    }
    cache = Cache()
    assert list(cache.updating()) == []
    cache.views = {"groups": bodies}
    found = [(("shop", "g1"), NEW), (("shop", "g2"), ""), (("shop", "g3"), "")]
    assert list(cache.updating()) == found
