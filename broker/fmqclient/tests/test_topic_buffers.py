"""Records of one key keep their order while groups come and go (L6): one topic alone."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from fmqclient.producer.batches import PendingBatch
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqclient.producer.topic_buffers import HOLD_MS, Topic
from fmqcore.ids import GroupName, TopicId
from fmqcore.placement import Place, Placements
from fmqcore.zk.topic import TopicConfig, TopicGroup

G1, G2, G3 = GroupName("g1"), GroupName("g2"), GroupName("g3")
ORDERS = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 1), TopicGroup(G2, 1)))
DEADLINE_MS = 10_000


def topic_on(group: GroupName) -> Topic:
    """Return a topic whose keys go to that group."""
    topic = Topic("orders", lambda of, place: QueueBuffer(of, place[0], TopicId(1), place[1]))
    topic.set_config(ORDERS, 0, {group}, 0)
    assert topic.lift(HOLD_MS) == []
    return topic


class Last:
    """A placement that could be added: the last queue of the last group, whatever the key."""

    def __init__(self, groups: Sequence[TopicGroup]) -> None:
        self._group = groups[-1] if groups else None

    def place(self, _: bytes, writable: Collection[GroupName]) -> Place | None:
        group = self._group
        ok = group is not None and group.group in writable
        return (group.group, group.queues - 1) if ok and group is not None else None


def test_topic_places_records_by_the_placements_given_to_it() -> None:
    topic = Topic(
        "orders",
        lambda of, place: QueueBuffer(of, place[0], TopicId(1), place[1]),
        lambda groups, _: Placements(Last(groups), Last(groups)),
    )
    wide = replace(ORDERS, groups=(TopicGroup(G1, 2), TopicGroup(G2, 3)))
    topic.set_config(wide, 0, {G1, G2}, 0)
    for key in (b"a", b"b", b""):
        buffer = topic.buffer_for(key)
        assert buffer is not None
        assert (buffer.group, buffer.queue) == (G2, 2)


def put(topic: Topic, number: int) -> QueueBuffer:
    """Put the record of that number, of one key, where it belongs now."""
    buffer = topic.buffer_for(b"key")
    assert buffer is not None
    record: Any = (b"%d" % number, b"key", b"", b"", None, False, number)
    buffer.begin(PendingBatch(DEADLINE_MS, 0)).records.append(record)
    return buffer


def numbers(moved: "list[tuple[Any, PendingBatch, QueueBuffer | None]] | None") -> list[int]:
    assert moved is not None
    return [record[6] for record, _, _ in moved]


def test_records_placed_again_keep_their_send_order() -> None:
    """Even when the newer group holds older records."""
    topic = topic_on(G1)
    assert put(topic, 1).group == G1
    topic.remap({G2}, 0)
    assert put(topic, 2).group == G2
    assert numbers(topic.lift(HOLD_MS)) == [1, 2]
    put(topic, 1)
    put(topic, 2)
    topic.remap({G1}, 0)
    assert put(topic, 3).group == G1
    assert numbers(topic.lift(HOLD_MS)) == [1, 2, 3]


def test_unanswered_batch_stays_with_its_group() -> None:
    """Later records have gone elsewhere by then: if refused, it must not follow them."""
    topic = topic_on(G1)
    buffer = put(topic, 1)
    batch = buffer.depart(buffer.pending.popleft())
    put(topic, 2)
    topic.remap({G2}, 0)
    assert not buffer.may_send(0)
    assert topic.lift(HOLD_MS - 1) is None
    assert not batch.stays
    assert numbers(topic.lift(HOLD_MS)) == [2]
    assert batch.stays
    assert put(topic, 2).group == G2
    buffer.refused(batch)
    topic.remap({G1}, 0)
    topic.remap({G2}, 0)
    moved = topic.lift(2 * HOLD_MS)
    assert moved is not None
    places = [(record[6], own) for record, _, own in moved]
    assert places == [(1, buffer), (2, None)], "to its own buffer"


def test_refused_batch_moves_unless_later_records_of_a_key_did() -> None:
    """Its buffer has others in flight meanwhile, whose answers come in other messages."""
    topic = topic_on(G1)
    buffer = put(topic, 1)
    other: Any = (b"2", b"other", b"", b"", None, False, 2)
    buffer.pending[0].records.append(other)
    first = buffer.depart(buffer.pending.popleft())
    assert put(topic, 3) is buffer
    second = buffer.depart(buffer.pending.popleft())
    first.unknown = second.unknown = True
    topic.remap({G2}, 0)
    assert topic.lift(0) == []
    buffer.refused(first)
    assert not topic.held
    assert topic.buffer_for(b"other") is not buffer, "a later record of that key"
    buffer.refused(second)
    assert topic.held
    moved = topic.lift(1)
    assert moved is not None
    places = [(record[6], own) for record, _, own in moved]
    assert places == [(1, None), (2, buffer), (3, None)]


def test_batch_that_stays_over_a_second_move_keeps_its_place() -> None:
    """A later record of that key is stored elsewhere: refused now, it must not follow."""
    topic = topic_on(G1)
    buffer = put(topic, 1)
    batch = buffer.depart(buffer.pending.popleft())
    batch.unknown = True
    topic.remap({G2}, 0)
    assert topic.lift(0) == []
    other = put(topic, 2)
    other.accepted(other.depart(other.pending.popleft()))
    topic.remap({G1}, 1)
    assert topic.lift(1) == []
    topic.remap({G2}, 2)
    assert topic.lift(2) == []
    buffer.refused(batch)
    moved = topic.lift(3)
    assert moved is not None
    assert [(record[6], own) for record, _, own in moved] == [(1, buffer)]


def test_refused_batch_stays_free_while_others_are_unanswered() -> None:
    """The groups change again between two answers, and no later record was placed."""
    topic = topic_on(G1)
    buffer = put(topic, 1)
    first = buffer.depart(buffer.pending.popleft())
    assert put(topic, 2) is buffer
    second = buffer.depart(buffer.pending.popleft())
    first.unknown = second.unknown = True
    topic.remap({G2}, 0)
    assert topic.lift(0) == []
    buffer.refused(first)
    topic.remap({G1}, 1)
    assert topic.lift(1) == []
    topic.remap({G2}, 2)
    assert topic.lift(2) == []
    buffer.refused(second)
    moved = topic.lift(3)
    assert moved is not None
    assert [(record[6], own) for record, _, own in moved] == [(1, None), (2, None)]


def test_flight_of_unknown_outcome_is_not_awaited() -> None:
    topic = topic_on(G1)
    buffer = put(topic, 1)
    batch = buffer.depart(buffer.pending.popleft())
    topic.remap({G2}, 0)
    batch.unknown = True
    assert topic.lift(0) == []
    assert batch.stays


def test_new_records_wait_until_moving_records_have_moved() -> None:
    topic = topic_on(G1)
    buffer = put(topic, 1)
    assert buffer.may_send(0)
    topic.remap({G2}, 0)
    assert not buffer.may_send(0)
    topic.lift(0)
    assert buffer.may_send(0)


def test_added_groups_wait_until_earlier_flights_are_answered() -> None:
    """A key may go to another group than before, though its old group is still there."""
    topic = topic_on(G1)
    buffer = put(topic, 1)
    batch = buffer.depart(buffer.pending.popleft())
    much_later = 100 * HOLD_MS
    topic.remap({G1, G2}, much_later)
    assert topic.lift(much_later + HOLD_MS - 1) is None
    buffer.accepted(batch)
    assert topic.lift(much_later + HOLD_MS - 1) == []


def test_awaited_flights_stay_awaited_when_groups_change_again() -> None:
    """The returned group may still refuse it, and later records are elsewhere."""
    topic = topic_on(G1)
    buffer = put(topic, 1)
    batch = buffer.depart(buffer.pending.popleft())
    topic.remap({G2}, 0)
    topic.remap({G1}, 1)
    topic.remap({G2}, 2)
    assert topic.lift(3) is None
    topic.lift(2 + HOLD_MS)
    assert batch.stays


def test_awaited_flights_stay_awaited_when_more_groups_come() -> None:
    """It is refused, and would follow later records to their group."""
    wider = replace(ORDERS, groups=(*ORDERS.groups, TopicGroup(G3, 1)))
    topic = topic_on(G1)
    topic.set_config(wider, 0, {G1}, 0)
    topic.lift(HOLD_MS)
    buffer = put(topic, 1)
    batch = buffer.depart(buffer.pending.popleft())
    put(topic, 2)
    topic.remap({G2}, 0)
    topic.remap({G2, G3}, 1)
    assert topic.lift(2) is None
    assert numbers(topic.lift(1 + HOLD_MS)) == [2]
    assert batch.stays
