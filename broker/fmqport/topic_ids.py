"""Topic numbers in the topics node: never given twice (`fmqcore.zk.topic_numbers` decides).

Whoever makes a topic takes its number first, by compare-and-set: brokers, and the operator. A
number whose topic was not made after all is lost. Not the topic's own node. Leaves the count in
ZooKeeper.
"""

from collections.abc import Callable

from fmqcore.errors import Malformed, Unavailable
from fmqcore.ids import TopicId
from fmqcore.zk.topic_numbers import Noted, TopicNumbers, numbers_from_json, numbers_to_json
from fmqport.coordination import BadVersion, Coordination, NodeExists


async def next_topic_id(
    coordination: Coordination, node: str, name: str, wanted: int = 0
) -> TopicId:
    """Take the number for a topic of that name: its own if it was lost, else the next one.

    `wanted`: the number that it is known to have had. Raises `Unavailable`.
    """
    taken = TopicId(0)

    def take(numbers: TopicNumbers) -> TopicNumbers:
        nonlocal taken
        taken, after = numbers.take(name, wanted)
        return after

    await _change(coordination, node, take)
    return taken


async def claim_topic_ids(coordination: Coordination, node: str, noted: Noted) -> TopicNumbers:
    """Note the topics of a journal that this ZooKeeper does not know. Raises `Unavailable`."""
    return await _change(coordination, node, lambda numbers: numbers.claim(noted))


async def forget_topic_id(
    coordination: Coordination, node: str, name: str, number: TopicId
) -> None:
    """Before that topic is deleted: one of its name that is made later gets another number."""
    await _change(coordination, node, lambda numbers: numbers.forget(name, number))


async def topic_numbers(coordination: Coordination, node: str) -> TopicNumbers:
    """What the node says now. Raises `Unavailable`."""
    found = await coordination.get(node)
    return TopicNumbers() if found is None else _decoded(node, found.data)


async def _change(
    coordination: Coordination, node: str, edit: Callable[[TopicNumbers], TopicNumbers]
) -> TopicNumbers:
    """Compare-and-set, again if somebody else was quicker; writes only a difference."""
    while True:
        found = await coordination.get(node)
        before = TopicNumbers() if found is None else _decoded(node, found.data)
        after = edit(before)
        if after == before:
            return after
        try:
            if found is None:
                await coordination.create(node, numbers_to_json(after), make_parents=True)
            else:
                await coordination.set(node, numbers_to_json(after), found.version)
        except (BadVersion, NodeExists):
            continue
        return after


def _decoded(node: str, raw: bytes) -> TopicNumbers:
    try:
        return numbers_from_json(raw)
    except Malformed as error:
        raise Unavailable(
            f"{node} in ZooKeeper does not decode, so no topic can be made: {error}; "
            'it says {"next_id": N}, N above every topic\'s id'
        ) from error
