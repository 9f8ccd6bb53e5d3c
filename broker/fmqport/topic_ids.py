"""Topic numbers in the topics node, none given twice (`fmqcore.zk.topic_numbers` decides).

A broker or operator that creates a topic takes its number first, by compare-and-set. If the topic
is not created after all, the number is lost. The topic's own node is written elsewhere; this module
leaves the count in ZooKeeper.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from fmqcore.errors import Malformed, Unavailable
from fmqcore.ids import TopicId
from fmqcore.zk.topic_numbers import Noted, TopicNumbers, numbers_from_json, numbers_to_json
from fmqport.coordination import BadVersion, Coordination, NodeExists, NoNode


async def next_topic_id(
    coordination: Coordination, node: str, name: str, wanted: int = 0, *, ordered: bool = False
) -> TopicId:
    """Take the number for a topic of that name: its own if it was lost, else the next one.

    `wanted`: the number that the topic is known to have had. Raises `Unavailable`, and
    `InvalidArgument` if it was lost as a topic of the other kind.
    """
    assigned = TopicId(0)

    def assign(numbers: TopicNumbers) -> TopicNumbers:
        nonlocal assigned
        assigned, after = numbers.assign(name, wanted, ordered=ordered)
        return after

    await _change(coordination, node, assign)
    return assigned


async def claim_topic_ids(
    coordination: Coordination, node: str, noted: Noted, ordered: AbstractSet[TopicId]
) -> TopicNumbers:
    """Note the topics of a journal that this ZooKeeper does not know. Raises `Unavailable`.

    `ordered`: those that are ordered.
    """
    return await _change(coordination, node, lambda numbers: numbers.claim(noted, ordered))


async def forget_topic_id(
    coordination: Coordination, node: str, name: str, number: TopicId
) -> None:
    """Forget a topic before its deletion: a later one of the same name gets another number."""
    await _change(coordination, node, lambda numbers: numbers.forget(name, number))


async def topic_numbers(coordination: Coordination, node: str) -> TopicNumbers:
    """Return what the node holds now. Raises `Unavailable`."""
    found = await coordination.get(node)
    return TopicNumbers() if found is None else _decoded(node, found.data)


async def _change(
    coordination: Coordination, node: str, edit: Callable[[TopicNumbers], TopicNumbers]
) -> TopicNumbers:
    """Compare-and-set, again after a concurrent change; writes only a difference."""
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
        except NoNode:  # ZooKeeper was emptied: what claimed numbers has to be asked again first
            raise Unavailable(f"{node} is gone from ZooKeeper: try again") from None
        return after


def _decoded(node: str, raw: bytes) -> TopicNumbers:
    try:
        return numbers_from_json(raw)
    except Malformed as error:
        raise Unavailable(
            f"{node} in ZooKeeper does not decode, so no topic can be made: {error}; "
            'it must be {"next_id": N}, N above every topic\'s id'
        ) from error
