"""Topic ids: numbers that are never given twice, counted in the topics node (`{"next_id": n}`).

Whoever makes a topic takes one first, by compare-and-set: brokers, and the operator. An id whose
topic was not made after all is lost. Not the topic's own node. Leaves the count in ZooKeeper.
"""

import json

from fmqcore.errors import Unavailable
from fmqcore.words import TopicId
from fmqport.coordination import BadVersion, Coordination, NodeExists


async def next_topic_id(coordination: Coordination, node: str) -> TopicId:
    """Take the next one of the topics node at this path. Raises `Unavailable`."""
    while True:
        found = await coordination.get(node)
        try:
            if found is None:
                await coordination.create(node, _encoded(2), make_parents=True)
                return TopicId(1)
            taken = _decoded(node, found.data)
            await coordination.set(node, _encoded(taken + 1), found.version)
        except (BadVersion, NodeExists):
            continue  # somebody else took it
        return TopicId(taken)


async def next_id(coordination: Coordination, node: str) -> int:
    """All numbers below it have been given. Raises `Unavailable`."""
    found = await coordination.get(node)
    return 1 if found is None else _decoded(node, found.data)


def _encoded(next_id: int) -> bytes:
    return json.dumps({"next_id": next_id}).encode()


def _decoded(node: str, raw: bytes) -> int:
    """An empty node (made as a parent) counts from 1."""
    if not raw:
        return 1
    try:
        return int(json.loads(raw)["next_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"{node} in ZooKeeper does not decode, so no topic can be made: {error!r}; "
            'it says {"next_id": N}, N above every topic\'s id'
        ) from error
