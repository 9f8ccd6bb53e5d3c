"""Topic numbers: those that ZooKeeper has given, and those that only the journals know. Pure.

The numbers are in the topics node as JSON: `next_id`, and, only after ZooKeeper lost its content
(its data was removed, or an older backup was restored), `skipped` and `lost`:

    {"next_id": 8, "skipped": [[1, 3]], "lost": {"orders": 2}}

A number is never given to two topics. Every broker compares the numbers in its journal with this
node before it serves (`claim`). A number that this ZooKeeper has not given belongs to a topic that
was lost: the count skips past it, and a topic recreated under that name gets it back (`assign`).
Lost ordered topics are also in `lost_ordered`: they must be recreated as what they were.
Numbers that the count passed without giving them are `skipped`: the journal of another group may
still claim them.

A version of FMQ that does not know `skipped` and `lost` drops them when it creates a topic. The
count stays, so no number is given twice; a lost topic then gets a new number.
"""

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from fmqcore.errors import InvalidArgument, Malformed, UnknownTopic
from fmqcore.ids import TopicId
from fmqcore.names import is_name
from fmqcore.zk.topic import TopicConfig

Noted = Mapping[TopicId, tuple[str, int]]
"""The topics in a journal: number -> (name, queues)."""


_OTHER_KIND = {
    False: (
        "topic {name} is an ordered topic in the brokers' journals, which ZooKeeper has lost: "
        "recreate it by `fmq topic create {name} --ordered --groups GROUP,GROUP`"
    ),
    True: (
        "topic {name} is an ordinary topic in the brokers' journals, which ZooKeeper has lost: "
        "recreate it by `fmq topic create {name}`, without --ordered"
    ),
}
"""Why a lost topic is not recreated as a topic of the other kind; True: as an ordered one."""


@dataclass(frozen=True, slots=True)
class TopicNumbers:
    """`next_id`: the next number. `skipped`: ranges [first, end) below it that were not given.

    `lost`: topics, with their numbers, that a journal holds and this ZooKeeper does not know.
    `lost_ordered`: which of them are ordered topics.
    """

    next_id: int = 1
    skipped: tuple[tuple[int, int], ...] = ()
    lost: Mapping[str, TopicId] = field(default_factory=dict)
    lost_ordered: frozenset[str] = frozenset()

    def was_given(self, number: int) -> bool:
        """Whether a topic was ever created with this id in this ZooKeeper."""
        return number < self.next_id and not any(a <= number < b for a, b in self.skipped)

    def claim(self, noted: Noted, ordered: AbstractSet[TopicId] = frozenset()) -> "TopicNumbers":
        """Return the numbers including a journal's topics that this ZooKeeper does not know.

        A name with several such numbers was deleted and recreated: the newest number counts.
        `ordered`: those among the journal's topics that are ordered.
        """
        numbers = self
        taken = {number: name for name, number in self.lost.items()}
        for number, (name, _) in sorted(noted.items()):
            if numbers.was_given(number) or taken.get(number, name) != name:
                continue
            numbers = numbers._past(number)
            taken[number] = name
            known = numbers.lost.get(name, number)
            newest, older = max(known, number), min(known, number)
            skipped = _without(numbers.skipped, older) if older < newest else numbers.skipped
            kinds = numbers.lost_ordered
            if number == newest:
                kinds = kinds | {name} if number in ordered else kinds - {name}
            lost = {**numbers.lost, name: newest}
            numbers = replace(numbers, skipped=skipped, lost=lost, lost_ordered=kinds)
        return numbers

    def assign(
        self, name: str, wanted: int = 0, *, ordered: bool = False
    ) -> tuple[TopicId, "TopicNumbers"]:
        """Return the id for a new topic, and the node's content after the assignment.

        The topic gets its own number if the journals show one; else `wanted`, the number that it is
        known to have had, unless that may be another topic's; else the next one. Raises
        `InvalidArgument` if the journals show it as a topic of the other kind.
        """
        if name in self.lost and ordered != (name in self.lost_ordered):
            raise InvalidArgument(_OTHER_KIND[ordered].format(name=name))
        number: int | None = self.lost.get(name)
        if number is None and wanted and not self.was_given(wanted):
            number = None if wanted in self.lost.values() else wanted
        if number is None:
            return TopicId(self.next_id), replace(self, next_id=self.next_id + 1)
        # Kept in `lost`: if creating the topic fails after this, the retry gets the same number.
        past = self._past(number)
        own = TopicId(number)
        return own, replace(
            past, skipped=_without(past.skipped, number), lost={**self.lost, name: own}
        )

    def forget(self, name: str, number: TopicId) -> "TopicNumbers":
        """Return the numbers without a deleted topic: a later one of that name is another topic.

        A topic deleted under a number that is not its own may still get its own back.
        """
        if self.lost.get(name) != number:
            return self
        lost = {other: n for other, n in self.lost.items() if other != name}
        skipped, kinds = _without(self.skipped, number), self.lost_ordered - {name}
        return replace(self, skipped=skipped, lost=lost, lost_ordered=kinds)

    def _past(self, number: int) -> "TopicNumbers":
        if number < self.next_id:
            return self
        return replace(
            self, next_id=number + 1, skipped=(*self.skipped, (self.next_id, number + 1))
        )


def conflict(topic: TopicConfig, noted: Noted) -> UnknownTopic | None:
    """Return why this journal must not serve the topic under its id; None if it may."""
    known = noted.get(topic.id)
    if known is None or known[0] == topic.name:
        return None
    return UnknownTopic(
        f"topic {topic.name} has the number {topic.id}, under which this journal holds messages of "
        f"topic {known[0]}: ZooKeeper was lost or restored from an older backup; delete topic "
        f"{topic.name} and create it again: it then gets another number"
    )


def numbers_to_json(numbers: TopicNumbers) -> bytes:
    """Encode the numbers; a ZooKeeper that lost nothing has only `next_id`."""
    data: dict[str, object] = {"next_id": numbers.next_id}
    if numbers.skipped:
        data["skipped"] = [list(pair) for pair in numbers.skipped]
    if numbers.lost:
        data["lost"] = dict(sorted(numbers.lost.items()))
    if numbers.lost_ordered:
        data["lost_ordered"] = sorted(numbers.lost_ordered)
    return json.dumps(data).encode()


def numbers_from_json(raw: bytes) -> TopicNumbers:
    """Decode the numbers; an empty node (created as a parent) counts from 1. Raise `Malformed`."""
    if not raw:
        return TopicNumbers()
    try:
        data = json.loads(raw)
        lost = {str(name): TopicId(int(n)) for name, n in data.get("lost", {}).items()}
        if not all(map(is_name, lost)):
            raise ValueError("a lost topic has no valid name")
        skipped = tuple((int(a), int(b)) for a, b in data.get("skipped", ()))
        ordered = frozenset(map(str, data.get("lost_ordered", ())))
        return TopicNumbers(int(data["next_id"]), skipped, lost, ordered & lost.keys())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(f"topic numbers do not decode: {error!r}") from error


def _without(ranges: Iterable[tuple[int, int]], number: int) -> tuple[tuple[int, int], ...]:
    pieces: list[tuple[int, int]] = []
    for first, end in ranges:
        if first <= number < end:
            pieces += [(first, number), (number + 1, end)]
        else:
            pieces.append((first, end))
    return tuple((a, b) for a, b in pieces if a < b)
