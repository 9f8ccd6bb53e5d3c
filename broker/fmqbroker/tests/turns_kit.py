"""A broker with 10,000 queues and 20 consumer groups, and the turns that its work takes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fmqbroker.app.health import Health
from fmqbroker.app.metrics import Metrics
from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.calls import Calls
from fmqbroker.tests.consume_harness import Rig, running
from fmqbroker.tests.longest_turn import MOST_LINES, turns_counted
from fmqbroker.tests.seen_harness import snapshots_of
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup

QUEUES, GROUPS, WIDE = 10_000, 20, 1000
"""One topic in ten is a wide one: 4 of 1,000 queues, and 750 of 8."""


class Full(NamedTuple):
    """A broker with all these topics and groups."""

    rig: Rig
    admin: Calls
    metrics: Metrics
    topics: list[TopicConfig]


def topics_of() -> list[TopicConfig]:
    sizes = [WIDE] * 4 + [8] * ((QUEUES - 4 * WIDE) // 8)
    return [
        TopicConfig(f"t{n:04}", TopicId(n), (TopicGroup(GroupName("g1"), size),))
        for n, size in enumerate(sizes, 1)
    ]


@pytest.fixture(scope="module")
def entries() -> dict[OffsetKey, OffsetEntry]:
    return {
        OffsetKey(f"group-{g:02}", topic.id, queue): OffsetEntry(1 << 32, Offset(0))
        for topic in topics_of()
        for queue in range(topic.queues_in(GroupName("g1")))
        for g in range(GROUPS)
    }


@pytest.fixture
async def full(tmp_path: Path, entries: dict[OffsetKey, OffsetEntry]) -> AsyncIterator[Full]:
    async with running(Rig(tmp_path, segment_bytes=64 * 1024 * 1024)) as rig:
        topics = topics_of()
        rig.cluster.set(*topics)
        for key, entry in entries.items():
            rig.journal.state.offsets[key] = entry
        for topic in topics:
            for queue in range(topic.queues_in(GroupName("g1"))):
                rig.journal.state.next_offsets[topic.id, queue] = Offset(0)
        health = Health(rig.disk, rig.clock)
        health.stage, health.snapshots = "", snapshots_of(rig)
        admin = admin_of(rig)
        yield Full(rig, admin, Metrics(rig.settings, health), topics)


SOME = 30_000
"""Entries of a takeover: too many for a record in the group's state, even without ranges."""


def some(count: int = SOME) -> dict[OffsetKey, OffsetEntry]:
    queues = ((t, q) for t in range(1, 1 + count // WIDE) for q in range(WIDE))
    return {OffsetKey("g", TopicId(t), q): OffsetEntry(2 << 32, Offset(1)) for t, q in queues}


async def in_short_turns(work: Coroutine[Any, Any, None]) -> None:
    with turns_counted() as turns:
        await asyncio.create_task(work)
    assert 0 < turns.longest <= MOST_LINES, turns.where
