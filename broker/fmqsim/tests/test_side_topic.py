"""Changing topics in a simulation, and a violation of each rule of `scenario/side_topic.py`."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.checks.verdict import Outcome
from e2e.history.history import History
from e2e.traffic.traffic import Traffic
from e2e.traffic.values import value_of
from fmqcore.errors import UnknownTopic
from fmqsim.report.run import Result, forked, simulate
from fmqsim.scenario import side_topic as side
from fmqsim.scenario.scene import Focus, draw
from fmqsim.scenario.side_topic import Side, _Life


def test_topics_are_created_changed_and_deleted_in_a_seed() -> None:
    def run(seed: int) -> Result:
        notes: list[str] = []
        result = simulate(seed, trace=notes.append, focus=Focus(topics=True))
        lines = [note for note in notes if side.NAME in note or "change a topic topic" in note]
        return replace(result, story=result.story + "".join(lines))

    results = list(forked(range(3), 2, run))
    assert all(result.outcome is Outcome.OK for result in results), results
    story = "".join(result.story for result in results)
    assert story.count("drained: True") > 5
    assert "change a topic topic" in story


class Clock:
    """A virtual clock that moves with each sleep."""

    now = 0.0

    @property
    def now_ms(self) -> float:
        return self.now * 1000


def a_life(number: int = 2, carried: tuple[int, ...] = (), seed: int = 0) -> tuple[_Life, Traffic]:
    """The second life of a topic: records 11 to 13 were sent in it, record 1 in the first."""
    loop = Clock()
    traffic = Traffic(History(), lambda: loop.now_ms, 0)
    traffic.open["side"] = set()
    scene = draw(seed, Focus(settings=(("retention_bytes", 0),)))
    configs = {str(group.group): group for group in scene.groups}
    world: Any = SimpleNamespace(
        loop=loop, traffic=traffic, scene=scene, configs=configs, history=traffic.history
    )
    world.quiet = lambda: True
    its_side = Side(world)
    its_side.sent(1, 1)
    life = _Life(its_side, world, "side", number, random.Random(0), set(carried))
    for record in (11, 12, 13):
        its_side.sent(record, number)
        life.open.add(record)
    return life, traffic


def came(record: int, queue: int = 0, key: bytes = b"k") -> Any:
    return SimpleNamespace(value=value_of(record, 30), group="g1", queue=queue, key=key)


def another_life(life: _Life) -> None:
    life.accept(came(1))


def nobodys(life: _Life) -> None:
    life.accept(came(99))


def refused_and_there(life: _Life) -> None:
    life.settle(11, UnknownTopic("no such topic"))
    life.accept(came(11))


def there_and_refused(life: _Life) -> None:
    life.accept(came(11))
    life.settle(11, UnknownTopic("no such topic"))


def out_of_order(life: _Life) -> None:
    life.accept(came(12))
    life.accept(came(11))


def without_an_outcome(life: _Life) -> None:
    life.settle(11, None)
    life.must_be_answered()


@pytest.mark.parametrize(
    ("broken", "lines"),
    [
        (another_life, "record 1 of life 1"),
        (nobodys, "record 99 of life 0"),
        (refused_and_there, "record 11 came, and was not stored"),
        (there_and_refused, "record 11 came, and was not stored"),
        (out_of_order, "record 11 came after 12"),
        (without_an_outcome, "2 sends have no outcome"),
    ],
)
def test_a_rule_that_is_broken_is_a_bug(broken: Callable[[_Life], None], lines: str) -> None:
    life, traffic = a_life()
    broken(life)
    assert lines in str(traffic.bugs[0])


def test_allowed_outcomes_are_no_bugs() -> None:
    life, traffic = a_life(carried=(1,))
    life.accept(came(1))  # it was in flight when the topic was recreated
    life.accept(came(12))
    life.accept(came(12))
    life.accept(came(11, queue=1))
    life.accept(came(13))
    for record in (11, 12):
        life.settle(record, None)
    life.settle(13, asyncio.CancelledError())
    life.must_be_answered()
    assert not traffic.bugs


@pytest.mark.parametrize("seed", range(40))
async def test_acknowledged_message_must_arrive_unless_loss_is_allowed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, traffic = a_life(seed=seed)

    async def sleep(seconds: float) -> None:
        life._world.loop.now += seconds

    monkeypatch.setattr("fmqsim.scenario.side_topic.asyncio.sleep", sleep)
    life.settle(11, None)
    assert not await life.drain()
    assert bool(traffic.bugs) is not life._may_lose()
    life.accept(came(11))
    assert await life.drain()
