"""Progress in deleted topics is removed, and no other progress."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume import topic_sweep
from fmqbroker.consume.topic_sweep import EVERY_S, GONE_S, TopicSweep
from fmqbroker.tests.cluster.test_changing_topics import Tree
from fmqbroker.tests.consume_harness import TOPIC, Rig, consuming, key, running, until
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.errors import Unavailable
from fmqcore.ids import GroupName, Offset, Permission, TopicId
from fmqcore.journal.state import JournalState
from fmqcore.zk import layout
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json

G1 = GroupName("g1")
GONE = TopicId(7)
LOST = [OffsetKey("billing", GONE, queue) for queue in (0, 1)]
ROOT = layout.topics_node("c")
HOUR_MS = round(EVERY_S * 1000)
LOOKS = round(GONE_S / EVERY_S)


class Zoo(Tree):
    """ZooKeeper with one topic, and seven deleted ones."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.asked = 0
        self.nodes |= {
            ROOT: b'{"next_id": 9}',
            layout.topic_node("c", TOPIC.name): topic_to_json(TOPIC),
        }

    async def sync(self, path: str) -> None:
        self.asked += 1
        if self.away:
            raise Unavailable("no ZooKeeper")

    def add(self, name: str, number: int) -> None:
        topic = TopicConfig(name, TopicId(number), (TopicGroup(G1, 4),))
        self.nodes[layout.topic_node("c", name)] = topic_to_json(topic)


async def a_sweep(rig: Rig, zoo: Zoo) -> TopicSweep:
    view = ClusterView(zoo, "c")  # type: ignore[arg-type]
    await view.load()
    zoo.asked = 0
    entry = OffsetEntry(1, Offset(3))
    await rig.offsets.put(dict.fromkeys((*LOST, key(0)), entry))
    return TopicSweep(rig.journal, rig.gate, view, rig.offsets, rig.fetch.groups, rig.hand)


async def a_day(rig: Rig, sweep: TopicSweep) -> int:
    """Run all looks of a day but the last; return how many entries were removed."""
    went = 0
    for _ in range(LOOKS):
        went += await sweep.check_once()
        rig.hand.advance(HOUR_MS)
    return went


async def test_progress_of_a_topic_missing_for_a_day_is_removed(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        sweep = await a_sweep(rig, Zoo())
        assert await a_day(rig, sweep) == 0
        assert await sweep.check_once() == len(LOST)
        state = rig.journal.state
        assert [state.progress(k) for k in LOST] == [None, None]
        assert state.progress(key(0)) == OffsetEntry(1, Offset(3))
        assert await sweep.check_once() == 0
        later = JournalState.from_snap(state.to_snap(rig.clock.wall_ms() + 25 * 3600 * 1000))
        assert set(later.offsets) == {key(0)}


async def test_sweep_runs_every_hour(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, asyncio.TaskGroup() as tasks:
        work = tasks.create_task((await a_sweep(rig, Zoo())).run())
        for _ in range(LOOKS + 1):
            assert rig.journal.state.progress(LOST[0])
            due_ms = rig.hand.monotonic_ms() + HOUR_MS
            await until(partial(rig.hand.sleeps_until, due_ms))
            rig.hand.advance(HOUR_MS)
        await until(lambda: rig.journal.state.progress(LOST[0]) is None)
        work.cancel()


def the_topic_is_there(zoo: Zoo, rig: Rig) -> None:
    zoo.add("audit", GONE)


def the_number_was_not_given_yet(zoo: Zoo, rig: Rig) -> None:
    """Let ZooKeeper lose its data and count from 1 again."""
    zoo.nodes[ROOT] = b'{"next_id": 7}'


def nothing_is_known_of_numbers(zoo: Zoo, rig: Rig) -> None:
    del zoo.nodes[ROOT]


def the_count_does_not_decode(zoo: Zoo, rig: Rig) -> None:
    zoo.nodes[ROOT] = b"9"


def a_topic_does_not_decode(zoo: Zoo, rig: Rig) -> None:
    zoo.nodes[layout.topic_node("c", "bad")] = b"{"


def zookeeper_is_away(zoo: Zoo, rig: Rig) -> None:
    zoo.away = True


def another_is_master(zoo: Zoo, rig: Rig) -> None:
    rig.permit(Permission.READ)


@pytest.mark.parametrize(
    "reason",
    [
        the_topic_is_there,
        the_number_was_not_given_yet,
        nothing_is_known_of_numbers,
        the_count_does_not_decode,
        a_topic_does_not_decode,
        zookeeper_is_away,
        another_is_master,
    ],
)
async def test_progress_stays(reason: Callable[[Zoo, Rig], None], tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        zoo = Zoo()
        sweep = await a_sweep(rig, zoo)
        reason(zoo, rig)
        assert await a_day(rig, sweep) == 0
        assert await a_day(rig, sweep) == 0
        assert all(rig.journal.state.progress(k) for k in LOST)


async def test_a_topic_that_was_there_in_between_was_not_gone(tmp_path: Path) -> None:
    """A person restored its node within the day."""
    async with running(Rig(tmp_path)) as rig:
        zoo = Zoo()
        sweep = await a_sweep(rig, zoo)
        assert await a_day(rig, sweep) == 0
        zoo.add("audit", GONE)
        assert await sweep.check_once() == 0
        del zoo.nodes[layout.topic_node("c", "audit")]
        assert await a_day(rig, sweep) == 0
        assert await sweep.check_once() == len(LOST)


async def test_another_masters_day_does_not_count(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        sweep = await a_sweep(rig, Zoo())
        assert await a_day(rig, sweep) == 0
        rig.permit(Permission.READ)
        assert await sweep.check_once() == 0
        rig.permit(Permission.FULL)
        assert await sweep.check_once() == 0


async def test_progress_of_a_topic_being_read_stays(tmp_path: Path) -> None:
    """This broker has not heard of the deletion yet, and serves the topic."""
    async with running(Rig(tmp_path)) as rig:
        zoo = Zoo()
        sweep = await a_sweep(rig, zoo)
        del zoo.nodes[layout.topic_node("c", TOPIC.name)]
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.held) == 4)
            await sweep._view.load()
            await a_day(rig, sweep)
            assert await sweep.check_once() == len(LOST)
            assert rig.journal.state.progress(key(0))
        await until(lambda: not rig.fetch.groups.get("billing", TOPIC.id).sessions)  # type: ignore[union-attr]
        await sweep.check_once()
        assert rig.journal.state.progress(key(0)) is None
        assert rig.fetch.groups.get("billing", TOPIC.id) is None, "it would store it again"


async def test_many_entries_are_swept_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_sweep, "AT_ONCE", 1)
    async with running(Rig(tmp_path)) as rig:
        sweep = await a_sweep(rig, Zoo())
        assert await a_day(rig, sweep) == 0
        assert [await sweep.check_once() for _ in range(3)] == [1, 1, 0]


async def test_zookeeper_is_not_asked_for_topics_that_are_known(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        zoo = Zoo()
        zoo.add("audit", GONE)
        sweep = await a_sweep(rig, zoo)
        assert await a_day(rig, sweep) == 0
        assert zoo.asked == 0
