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


async def test_node_that_goes_before_the_write_is_reported(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper is emptied at that moment. A duty of each broker makes the same write."""
    one = await harness.session()
    assert await next_topic_id(one, NODE, "orders") == 1
    with monkeypatch.context() as emptied:

        async def write(path: str, data: bytes, version: int) -> int:
            emptied.undo()
            await one.delete(path)
            return await one.set(path, data, version)

        emptied.setattr(one, "set", write)
        with pytest.raises(Unavailable, match="is gone from ZooKeeper"):
            await next_topic_id(one, NODE, "audit")
    assert await one.get(NODE) is None, "no number that was given before"


@pytest.mark.parametrize("garbage", [b"7", b"{", b'{"next": 3}', b'{"next_id": null}', b"\xff"])
async def test_garbage_is_reported_and_left_unchanged(harness: Harness, garbage: bytes) -> None:
    one = await harness.session()
    await one.create(NODE, garbage, make_parents=True)
    with pytest.raises(Unavailable, match="/fmq/dev/topics in ZooKeeper does not decode"):
        await next_topic_id(one, NODE, "audit")
    node = await one.get(NODE)
    assert node is not None
    assert node.data == garbage
