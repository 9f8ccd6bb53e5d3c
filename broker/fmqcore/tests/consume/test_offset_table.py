"""The table of progress and its index."""

import copy
from collections.abc import Callable
from random import Random

import pytest

from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.ids import Offset, TopicId


def by_scan(table: ProgressTable) -> dict[TopicId, dict[str, set[int]]]:
    found: dict[TopicId, dict[str, set[int]]] = {}
    for group, topic, queue in table:
        found.setdefault(topic, {}).setdefault(group, set()).add(queue)
    return found


def by_index(table: ProgressTable) -> dict[TopicId, dict[str, set[int]]]:
    return {
        topic: {g: set(table.queues_of(g, topic)) for g in table.groups_in(topic)}
        for topic in table.topics()
    }


def test_index_equals_a_full_scan() -> None:
    random, table = Random(1), ProgressTable()
    for n in range(2000):
        key = OffsetKey(random.choice("abc"), TopicId(random.randrange(3)), random.randrange(4))
        if key in table and random.random() < 0.5:
            del table[key]
        elif random.random() < 0.2:
            gone = {key.queue_id, random.randrange(4)}
            left = {k: e for k, e in table.items() if k[:2] != key[:2] or k[2] not in gone}
            table.drop(key.group, key.topic_id, gone)
            assert table == left
        else:
            table[key] = OffsetEntry(n + 1, Offset(n))
        assert by_index(table) == by_scan(table)
    again = copy.deepcopy(table)
    assert (again, by_index(again)) == (table, by_scan(table))
    for key in list(table):
        del table[key]
    assert by_index(table) == {}
    again.clear()
    assert (len(again), by_index(again)) == (0, {})


def test_every_dict_operation_updates_the_index() -> None:
    key = OffsetKey("a", TopicId(1), 0)
    table = ProgressTable({key: OffsetEntry(1, Offset(1))})
    changes: list[Callable[[], object]] = [
        lambda: table.pop(key),
        table.popitem,
        lambda: table.update(),
        lambda: table.setdefault(key, OffsetEntry(2, Offset(2))),
    ]
    for change in changes:
        with pytest.raises(TypeError):
            change()
