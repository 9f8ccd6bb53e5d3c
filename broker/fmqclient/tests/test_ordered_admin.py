"""`Admin.ordered`: what is checked before a broker is asked, and what the broker decides."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.admin.ordered import OrderedAdmin
from fmqcore.errors import InvalidArgument
from fmqproto.v1 import admin_pb2

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
