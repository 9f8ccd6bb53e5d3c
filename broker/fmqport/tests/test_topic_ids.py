"""Topic ids on a real ZooKeeper: none is given twice, even to concurrent callers."""

import asyncio

import pytest

from fmqcore.errors import Unavailable
from fmqport.tests.coordination_kit import Harness
from fmqport.topic_ids import next_topic_id

pytestmark = pytest.mark.processes
NODE = "/fmq/dev/topics"


async def test_concurrent_callers_get_different_ids(harness: Harness) -> None:
    sessions = [await harness.session() for _ in range(3)]
    taken = await asyncio.gather(
        *(next_topic_id(session, NODE, f"t{n}") for session in sessions for n in range(4))
    )
    assert sorted(taken) == list(range(1, 13))


async def test_a_node_that_was_made_as_a_parent_counts_from_one(harness: Harness) -> None:
    one = await harness.session()
    await one.create(f"{NODE}/orders", b"", make_parents=True)
    assert [await next_topic_id(one, NODE, "audit") for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("garbage", [b"7", b"{", b'{"next": 3}', b'{"next_id": null}', b"\xff"])
async def test_garbage_is_reported_and_left_unchanged(harness: Harness, garbage: bytes) -> None:
    one = await harness.session()
    await one.create(NODE, garbage, make_parents=True)
    with pytest.raises(Unavailable, match="/fmq/dev/topics in ZooKeeper does not decode"):
        await next_topic_id(one, NODE, "audit")
    node = await one.get(NODE)
    assert node is not None
    assert node.data == garbage
