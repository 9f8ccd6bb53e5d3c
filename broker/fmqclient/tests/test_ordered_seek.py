"""A seek on an ordered topic: one broker group makes it, and the client finds out which one."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.admin.client import Admin
from fmqclient.tests.memory import SeededClock
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import admin_pb2
from fmqwire.methods import OFFSETS

G1, G2 = GroupName("g1"), GroupName("g2")
CHANGES = TopicConfig("changes", TopicId(5), (TopicGroup(G1, 2), TopicGroup(G2, 2)), ordered=True)


class Routes:
    """The routes of one ordered topic."""

    async def topic(self, name: str) -> TopicConfig:
        return CHANGES

    async def look_up(self, *names: str) -> None: ...


class Asked(Admin):
    """An admin whose brokers are a table: which broker group names which other one."""

    def __init__(self, holder: dict[str, str]) -> None:
        super().__init__(cast("Any", SimpleNamespace()), cast("Any", Routes()), SeededClock(0))
        cast("Any", self._calls).ask_reader = self._answer
        self.holder = holder
        self.seeks: list[tuple[str, list[int], dict[int, int]]] = []

    async def _answer(self, group: GroupName, method: Any, request: Any) -> Any:
        if method is OFFSETS:
            rows = [admin_pb2.QueueOffsets(queue_id=q, seek_number=7) for q in range(2)]
            return admin_pb2.OffsetsReply(queues=rows)
        self.seeks.append((group, list(request.queues), dict(request.expected_seek_numbers)))
        elsewhere = self.holder.get(group, "")
        row = admin_pb2.QueueOffsets(broker_group=group)
        return admin_pb2.SeekReply(ask_group=elsewhere, queues=[] if elsewhere else [row])


def test_seek_goes_to_the_group_that_the_first_one_names() -> None:
    admin = Asked({"g1": "g2"})
    rows = asyncio.run(admin.seek("app", "changes", "latest"))
    assert [row.broker_group for row in rows] == ["g2"]
    assert admin.seeks == [(g, [], {0: 7, 1: 7}) for g in ("g1", "g2")]


def test_queues_of_several_groups_are_one_seek() -> None:
    admin = Asked({})
    asyncio.run(admin.seek("app", "changes", "earliest", queues=[("g2", 1), ("g1", 1)]))
    assert admin.seeks == [("g1", [1], {1: 7, 0: 7})]
    with pytest.raises(InvalidArgument, match="give queues of one, not of g1, g2"):
        asyncio.run(admin.seek("app", "changes", offset=3, queues=[("g2", 1), ("g1", 1)]))
    asyncio.run(admin.seek("app", "changes", offset=3, queues=[("g2", 1)]))
    assert admin.seeks[-1][:2] == ("g2", [1])


def test_seek_that_no_group_makes_is_an_error() -> None:
    with pytest.raises(Unavailable, match="ordered topic changes moves from group to group"):
        asyncio.run(Asked({"g1": "g2", "g2": "g1"}).seek("app", "changes", "latest"))
