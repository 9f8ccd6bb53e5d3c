"""Replies that no broker of this version sends end in `Malformed`, not in a bug of the client."""

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.admin.client import Admin
from fmqclient.admin.infos import ordered_status_of
from fmqclient.admin.ordered import OrderedAdmin
from fmqclient.consumer.message import Message
from fmqclient.producer.ordered_records import role_of
from fmqclient.tests.test_session_replies import batch, piece, replied
from fmqcore.batch.columns import encode
from fmqcore.errors import Malformed
from fmqcore.ids import GroupName
from fmqcore.zk.chain import Chain, ChainGroup, Segment
from fmqcore.zk.chain_json import chain_to_json
from fmqproto.v1 import admin_pb2, client_pb2

G1 = GroupName("g1")
CHAIN = Chain("changes", 1, (ChainGroup(G1),), segments=(Segment(1, G1, 1, (1,), (0,)),))


def row(topic: str = "changes", *stuck: int) -> admin_pb2.OrderedTopicStatus:
    return admin_pb2.OrderedTopicStatus(
        topic=topic,
        chain=chain_to_json(replace(CHAIN, topic=topic)),
        stuck=[admin_pb2.StuckSegment(segment=n, remedy="start g1-0") for n in stuck],
    )


def ordered(*replies: admin_pb2.OrderedStatusReply) -> OrderedAdmin:
    """An admin whose brokers answer with these replies."""
    left = list(replies)

    async def ask(*_: Any) -> Any:
        return left.pop(0)

    return OrderedAdmin(cast(Any, SimpleNamespace(ask_any=ask, ask_reader=ask)), cast(Any, None))


def test_stuck_segment_that_the_chain_lacks_is_malformed() -> None:
    assert ordered_status_of(row("changes", 1), 0).stuck == {1: "start g1-0"}
    for number in (0, 2, 2**63):
        with pytest.raises(Malformed, match=rf"changes names stuck segments \[{number}\]"):
            ordered_status_of(row("changes", 1, number), 0)


def test_status_of_one_ordered_topic_has_its_one_row() -> None:
    for rows in ([], [row("events")], [row(), row()]):
        with pytest.raises(Malformed, match="status of ordered topic changes has"):
            asyncio.run(ordered(admin_pb2.OrderedStatusReply(topics=rows)).switch("changes"))


@pytest.mark.parametrize("rows", [[], [row("changes")]])
def test_page_of_ordered_topics_without_progress_is_malformed(
    rows: list[admin_pb2.OrderedTopicStatus],
) -> None:
    first = admin_pb2.OrderedStatusReply(topics=[row("changes")], has_more=True)
    second = admin_pb2.OrderedStatusReply(topics=rows, has_more=True)
    with pytest.raises(Malformed, match="page of ordered topics"):
        asyncio.run(ordered(first, second).status())


@pytest.mark.parametrize("rows", [[], [admin_pb2.QueueOffsets(topic="orders", queue_id=1)]])
def test_page_of_offsets_without_progress_is_malformed(
    rows: list[admin_pb2.QueueOffsets], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [admin_pb2.QueueOffsets(topic="orders", queue_id=n) for n in range(2)]
    left = [admin_pb2.OffsetsReply(queues=q, has_more=True) for q in (first, rows)]

    async def ask(*_: Any) -> Any:
        return left.pop(0)

    admin = Admin(cast(Any, None), cast(Any, None), cast(Any, None))
    monkeypatch.setattr(admin._calls, "ask_reader", ask)
    with pytest.raises(Malformed, match="page of offsets in group g1"):
        asyncio.run(admin._rows(G1, "orders", ""))


def test_role_without_the_sequence_of_any_queue_is_malformed() -> None:
    assert not role_of(client_pb2.SenderState(active=False)).active
    with pytest.raises(Malformed, match="segment 3 has no first sequence"):
        role_of(client_pb2.SenderState(active=True, chain_segment=3))


async def test_headers_that_do_not_decode_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = partial(encode, headers=[b"\x01"])
    monkeypatch.setattr("fmqclient.tests.test_session_replies.encode", wrong)
    delivery = piece(0, 1, batch(0, b"a"))
    _, (got,), _ = await replied(client_pb2.ConsumeReply(deliveries=[delivery]))
    with pytest.raises(Malformed, match="orders: group g1 queue 0 offset 0: headers"):
        _ = Message(got, 0).headers
