"""`Admin.ordered`: what is checked before a broker is asked, and what the broker decides."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.admin.ordered import OrderedAdmin
from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName
from fmqcore.zk.chain import Chain, ChainGroup, Segment
from fmqcore.zk.chain_json import chain_to_json
from fmqproto.v1 import admin_pb2
from fmqwire.methods import ORDERED_SWITCH

G1, G2 = GroupName("g1"), GroupName("g2")
ASKED: list[admin_pb2.AlterTopicRequest] = []


async def ask(_: Any, request: Any) -> Any:
    ASKED.append(request)
    raise InvalidArgument("the broker's sentence")


def set_groups(weight: Any) -> None:
    ASKED.clear()
    admin = OrderedAdmin(cast(Any, SimpleNamespace(ask_any=ask)), cast(Any, None))
    asyncio.run(admin.set_groups("changes", {"g1": weight, "g2": 2}))


def test_broker_refuses_a_weight_of_zero() -> None:
    with pytest.raises(InvalidArgument, match="the broker's sentence"):
        set_groups(0)
    (request,) = ASKED
    assert [(g.group, g.HasField("weight"), g.weight) for g in request.chain_groups] == [
        ("g1", True, 0),
        ("g2", True, 2),
    ]


@pytest.mark.parametrize("weight", [-1, 2**32, 1.5, None, "1"])
def test_weight_that_no_request_can_hold_is_not_sent(weight: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"weight of g1=.* must be a whole number"):
        set_groups(weight)
    assert not ASKED


def switched(off: str, closed: list[int]) -> int:
    """Switch in a cluster whose sends go to g1: the reported segment; `closed` gets the request."""
    chain = Chain("changes", 1, (ChainGroup(G1), ChainGroup(G2)), (Segment(3, G1, 1, (1,), (0,)),))
    row = admin_pb2.OrderedTopicStatus(topic="changes", chain=chain_to_json(chain))

    async def answer(method: Any, request: Any) -> Any:
        if method is ORDERED_SWITCH:
            closed.append(request.chain_segment)
            return admin_pb2.OrderedSwitchReply()
        return admin_pb2.OrderedStatusReply(topics=[row])

    admin = OrderedAdmin(cast(Any, SimpleNamespace(ask_any=answer)), cast(Any, None))
    return asyncio.run(admin.switch("changes", off=off)).switched_segment


@pytest.mark.parametrize(("off", "segment"), [("", 3), ("g1", 3), ("g2", 0)])
def test_switch_reports_the_segment_that_it_closed(off: str, segment: int) -> None:
    closed: list[int] = []
    assert switched(off, closed) == segment
    assert closed == [segment] * bool(segment)
