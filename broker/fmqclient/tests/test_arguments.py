"""Values of wrong types are refused with a clear error before anything is sent."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import fmqclient
from fmqclient.tests.double import cluster
from fmqclient.tests.memory import MemoryTransport


@pytest.fixture
async def client() -> AsyncIterator[fmqclient.Client]:
    transport: Any = MemoryTransport(1)
    async with (
        cluster(1, transport=transport) as double,
        fmqclient.connect(double.url, transport=transport) as c,
    ):
        yield c


@pytest.mark.parametrize(
    ("method", "given", "named"),
    [
        ("create_topic", {"name": "t", "queues": 2**40}, "queues=1099511627776 "),
        ("create_topic", {"name": "t", "queues": -1}, "queues=-1 must be a whole number from 1 to"),
        ("create_topic", {"name": "t", "queues": 0}, "queues=0 must be a whole number from 1 to"),
        ("create_topic", {"name": "t", "groups": {"g1": 2**40}}, "weight of g1="),
        ("create_topic", {"name": "t", "groups": "g1"}, "groups='g1'"),
        ("create_topic", {"name": "t", "groups": 5}, "groups=5"),
        ("create_topic", {"name": "t", "groups": [1]}, "group=1"),
        ("offsets", {"group": 5}, "group=5"),
        ("offsets", {"topic": 5}, "topic=5"),
        ("delete_group", {"group": "billing", "topic": 5}, "topic=5"),
        ("seek", {"group": "billing", "topic": 5, "to": "earliest"}, "topic=5"),
        ("seek", {"group": "billing", "topic": "orders", "to": True}, "start True must be"),
    ],
)
async def test_invalid_admin_arguments_are_refused(
    client: fmqclient.Client, method: str, given: dict[str, Any], named: str
) -> None:
    with pytest.raises(fmqclient.InvalidArgument, match=named):
        await getattr(client.admin(), method)(**given)


@pytest.mark.parametrize("queues", [5, [1], "g1", ["g1"], ("g1", 0), [("g1", "0")], [(1, 0)]])
async def test_queues_are_pairs(client: fmqclient.Client, queues: Any) -> None:
    async with client.consumer("orders", group="billing") as sub:
        for call in (sub.pause, sub.resume):
            with pytest.raises(fmqclient.InvalidArgument, match="must be pairs"):
                call(queues)
        with pytest.raises(fmqclient.InvalidArgument, match="must be pairs"):
            await sub.seek("earliest", queues=queues)


async def test_invalid_consumer_arguments_are_refused(client: fmqclient.Client) -> None:
    with pytest.raises(fmqclient.InvalidArgument, match="start True must be"):
        client.consumer("orders", group="billing", start=True)
    given: Any
    async with client.consumer("orders", group="billing") as sub:
        for given in ("5", 1.5, 0, None):
            with pytest.raises(fmqclient.InvalidArgument, match="max_messages="):
                await sub.fetch(given)
        for given in ("5", [1]):
            with pytest.raises(fmqclient.InvalidArgument, match="timeout="):
                await sub.fetch(1, given)
            with pytest.raises(fmqclient.InvalidArgument, match="timeout_s="):
                await sub.commit(given)


@pytest.mark.parametrize(
    "given",
    [{"url": 5}, {"url": ["fmq://h"]}, {"timeout_s": "x"}, {"timeout_s": None}, {"name": 5}],
)
def test_invalid_addresses_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(fmqclient.InvalidArgument):
        fmqclient.connect(transport=MemoryTransport(1), **given)
