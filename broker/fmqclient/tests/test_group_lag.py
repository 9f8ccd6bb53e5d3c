"""The lag of a consumer group that has not read a topic in some broker group yet."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.admin.client import Admin
from fmqclient.admin.infos import QueueOffsets
from fmqclient.tests.memory import SeededClock
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import admin_pb2

G1, G2, GONE = GroupName("g1"), GroupName("g2"), GroupName("gone")
GROUPS = (TopicGroup(G1, 1), TopicGroup(G2, 2), TopicGroup(GONE, 1))
ORDERS = TopicConfig("orders", TopicId(1), GROUPS)
CHANGES = TopicConfig("changes", TopicId(2), GROUPS, ordered=True)


class Routes:
    """The routes of two topics; the group "gone" has left the cluster."""

    def __init__(self) -> None:
        self.named = (G1, G2)
        self.table = SimpleNamespace(topics={t.name: t for t in (ORDERS, CHANGES)})

    async def look_up(self, *names: str) -> None: ...


class Asked(Admin):
    """An admin of brokers with these rows."""

    def __init__(self, topic: str, *rows: tuple[str, str, int]) -> None:
        """`rows`: consumer group, broker group, queue; 5 are stored, and a reader has read 3."""
        super().__init__(cast("Any", SimpleNamespace()), cast("Any", Routes()), SeededClock(0))
        cast("Any", self._calls).ask_reader = self._answer
        self._topic = topic
        self._all = rows

    async def _answer(self, group: GroupName, method: Any, request: Any) -> Any:
        found = [r for r in self._all if r[1] == group and request.group in ("", r[0])]
        reply = admin_pb2.OffsetsReply()
        for consumers, broker_group, queue in found:
            reply.queues.add(
                group=consumers, topic=self._topic, broker_group=broker_group, queue_id=queue,
                committed=3 if consumers else 1, begin=1, end=5, session="s" if consumers else "",
            )  # fmt: skip
        return reply


READ = (("app", "g1", 0), ("bill", "g1", 0), ("bill", "g2", 0), ("bill", "g2", 1))
"""No member of "app" has been in g2."""
UNREAD = (("app", "g1", 0), ("", "g2", 0), ("", "g2", 1))


def lags(rows: list[QueueOffsets]) -> list[tuple[str, str, int, int, str]]:
    return [(r.group, r.broker_group, r.queue, r.lag, r.session) for r in rows]


@pytest.mark.parametrize("stored", [READ, UNREAD])
def test_group_has_all_to_read_in_a_new_broker_group(stored: Any) -> None:
    admin = Asked("orders", *stored)
    assert lags(asyncio.run(admin.lag("app"))) == [
        ("app", "g1", 0, 2, "s"),
        ("app", "g2", 0, 4, ""),
        ("app", "g2", 1, 4, ""),
    ]
    info = asyncio.run(admin.groups())[0]
    assert (info.group, info.queues, info.lag, info.sessions) == ("app", 3, 10, frozenset({"s"}))


def test_ordered_topic_has_the_rows_of_its_chain() -> None:
    admin = Asked("changes", *READ)
    assert lags(asyncio.run(admin.lag("app"))) == [("app", "g1", 0, 2, "s")]
    infos = {info.group: (info.queues, info.lag) for info in asyncio.run(admin.groups())}
    assert infos == {"app": (1, 2), "bill": (3, 6)}
