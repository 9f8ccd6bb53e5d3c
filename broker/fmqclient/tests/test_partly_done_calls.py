"""Admin calls that ask one broker group after another: an error names where they are done."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.admin.client import Admin
from fmqclient.tests.memory import SeededClock
from fmqclient.tests.test_group_lag import G1, G2, ORDERS
from fmqcore.errors import Unavailable
from fmqcore.ids import GroupName
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import admin_pb2
from fmqwire.methods import DELETE_GROUP, OFFSETS, SEEK


class Routes:
    named = (G1, G2)

    async def look_up(self, *names: str) -> None: ...

    async def topic(self, _: str) -> TopicConfig:
        return ORDERS


class Calls(Admin):
    """An admin of groups g1 and g2; some have no reader."""

    def __init__(self, *readerless: GroupName) -> None:
        super().__init__(cast("Any", SimpleNamespace()), cast("Any", Routes()), SeededClock(0))
        self._calls = cast("Any", SimpleNamespace(ask_reader=self._answer))
        self._readerless = readerless

    async def _answer(self, group: GroupName, method: Any, request: Any) -> Any:
        if method is OFFSETS:
            return admin_pb2.OffsetsReply()
        if group in self._readerless:
            raise Unavailable(f"no broker serves the reads of group {group}")
        if method is DELETE_GROUP:
            return admin_pb2.DeleteGroupReply(deleted=1)
        assert method is SEEK
        rows = [admin_pb2.QueueOffsets(group="app", topic="orders", broker_group=group)]
        return admin_pb2.SeekReply(queues=rows)


QUEUES = [("g1", 0), ("g2", 0)]


@pytest.mark.parametrize(
    ("readerless", "sentence"),
    [
        ((G2,), r"reads of group g2; it is moved in g1 already: try again$"),
        ((G1, G2), r"reads of group g1$"),
    ],
)
def test_seek_names_the_groups_where_it_has_moved(
    readerless: tuple[GroupName, ...], sentence: str
) -> None:
    with pytest.raises(Unavailable, match=sentence):
        asyncio.run(Calls(*readerless).seek("app", "orders", "latest", queues=QUEUES))


@pytest.mark.parametrize(
    ("readerless", "sentence"),
    [
        ((G2,), r"reads of group g2; it is deleted in g1 already: try again$"),
        ((G1, G2), r"reads of group g1$"),
    ],
)
def test_deletion_names_the_groups_where_it_is_done(
    readerless: tuple[GroupName, ...], sentence: str
) -> None:
    with pytest.raises(Unavailable, match=sentence):
        asyncio.run(Calls(*readerless).delete_group("app"))
