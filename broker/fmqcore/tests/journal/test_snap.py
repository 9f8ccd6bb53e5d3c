"""Repeated SNAPs of one state, made as a broker makes them.

Each is stored and settled, and must equal what a decoding replica holds. Each test covers a line
that no other test needs.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fmqcore.batch.control import TopicSetting
from fmqcore.batch.fields import Fields
from fmqcore.batch.offset_entry import MAX_RANGES, OffsetEntry, OffsetKey, encode_entry, tombstone
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.errors import Malformed, OutOfSequence, Overloaded, ProducerFenced
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.producers import (
    IDLE_MS,
    KEPT_BATCHES,
    MAX_PRODUCERS,
    RETRY_MS,
    ProducerTable,
)
from fmqcore.journal.segments import producer_room, snap_room
from fmqcore.journal.snap_entries import HOUR_MS
from fmqcore.journal.state import (
    PRESENCE_QUEUE,
    TEMPORARY_QUEUE,
    TOMBSTONE_MS,
    JournalState,
)
from fmqcore.tests.journal.writer import JournalWriter
from fmqcore.turns import finish

T7 = TopicId(7)
QUEUE = (T7, 0)
KEYS = [OffsetKey(group, T7, 0) for group in ("a", "b", "c", "d")]
A, B, C, D = KEYS


def settled(state: JournalState, now_ms: int, max_bytes: int = 1 << 20) -> bytes:
    """Roll as a broker does: the SNAP is stored, and decodes to the continuing state."""
    snapshot = state.snapshot(now_ms, max_bytes)
    state.settle(snapshot)
    finish(state.dropping())
    assert JournalState.from_snap(snapshot.payload) == state
    return snapshot.payload


def test_deleted_topic_removes_its_progress_tombstones() -> None:
    """Otherwise the next SNAP counts a tombstone's time without its entry, and is malformed."""
    writer = JournalWriter()
    writer.topic(7, "orders", 4)
    writer.offsets({A: tombstone(2), B: OffsetEntry(2, Offset(1))})
    writer.topic(7, "orders", 0)
    assert not writer.state.deleted_ms
    settled(writer.state, writer.now_ms + 2 * TOMBSTONE_MS)
    writer.topic(7, "orders", 4)  # the group has it back and reads it again
    writer.offsets({A: OffsetEntry(3, Offset(1))})
    settled(writer.state, writer.now_ms)


def test_progress_changes_between_snaps_are_returned_in_order() -> None:
    """As many entries as before, but others: one was deleted a day ago, another is new."""
    writer = JournalWriter()
    writer.offsets({B: OffsetEntry(1, Offset(1)), C: tombstone(2)})
    settled(writer.state, writer.now_ms)
    settled(writer.state, writer.now_ms + 2 * TOMBSTONE_MS)
    assert list(writer.state.offsets) == [B]
    writer.offsets({A: OffsetEntry(1, Offset(5))})
    snap = settled(writer.state, writer.now_ms)
    assert list(JournalState.from_snap(snap).offsets) == [A, B], "ascending, whatever came when"
    assert JournalState.from_snap(snap).to_snap(writer.now_ms) == snap


def test_each_entry_is_returned_with_its_own_bytes() -> None:
    """A SNAP joins the bytes that came in OFFSETS batches, mostly of many entries."""
    writer = JournalWriter()
    first = {key: OffsetEntry(n, Offset(10 * n)) for n, key in enumerate(KEYS, 1)}
    writer.offsets(first)
    assert JournalState.from_snap(writer.state.to_snap(0)).offsets == first
    ranges = ((Offset(70), Offset(71)), (Offset(80), Offset(90)))
    second = {D: OffsetEntry(9, Offset(60), ranges, 9, 4), A: OffsetEntry(9, Offset(2))}
    writer.offsets(second)
    assert JournalState.from_snap(writer.state.to_snap(0)).offsets == first | second


def test_a_tombstone_stays_for_a_day_after_the_last_deletion() -> None:
    writer = JournalWriter()
    writer.offsets({A: tombstone(2)})
    writer.now_ms += TOMBSTONE_MS
    again = writer.offsets({A: tombstone(5)})
    settled(writer.state, again.store_ms + TOMBSTONE_MS)
    assert writer.state.offsets == {A: tombstone(5)}


@pytest.mark.parametrize("left_out", [0, 1, 3])
def test_producer_left_out_of_a_snap_is_forgotten_at_the_writer(left_out: int) -> None:
    """Otherwise master and slaves would answer a retry differently."""
    writer = JournalWriter()
    for producer in (1, 2, 3, 4):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    whole = len(writer.state.to_snap(writer.now_ms))
    one = (whole - len(JournalState(writer.state.next_offsets).to_snap(writer.now_ms))) // 4
    settled(writer.state, writer.now_ms, whole - left_out * one)
    check = writer.state.check_sequence
    known = [p for p in (1, 2, 3, 4) if check(p, 0, QUEUE, 0, 1) is not None]
    assert known == [1, 2, 3, 4][left_out:]


def test_producer_idle_time_counts_from_its_newest_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that sends every few hours is active, though its oldest kept batch is days old."""
    monkeypatch.setattr("fmqcore.journal.producers.IDLE_KEPT", 0)
    writer = JournalWriter()
    for sequence in range(3):
        writer.now_ms += IDLE_MS
        writer.data(7, 0, [b"v"], producer_id=5, base_sequence=sequence)
    settled(writer.state, writer.now_ms)
    assert writer.state.check_sequence(5, 0, QUEUE, 2, 1) is not None, "a retry is still known"


def test_an_older_session_is_refused_also_with_its_first_batch() -> None:
    """P7: it comes late, nothing from it was ever stored, and a newer session is active."""
    writer = JournalWriter()
    writer.data(7, 0, [b"v"], producer_id=5, producer_epoch=4, base_sequence=8)
    with pytest.raises(ProducerFenced):
        writer.state.check_sequence(5, 3, QUEUE, 0, 1)
    with pytest.raises(OutOfSequence):
        writer.state.check_sequence(5, 4, QUEUE, 0, 1)


def test_producers_compare_by_their_batches() -> None:
    def one(count: int) -> JournalState:
        writer = JournalWriter()
        writer.data(7, 0, [b"v"] * count, producer_id=5, base_sequence=0)
        return writer.state

    assert one(2).producers == one(2).producers
    assert one(2).producers != one(3).producers


def test_progress_has_no_more_ranges_than_every_reader_takes() -> None:
    def ranges(count: int) -> OffsetEntry:
        done = tuple((Offset(2 * n + 1), Offset(2 * n + 2)) for n in range(count))
        return OffsetEntry(1, Offset(0), done)

    encode_entry(A, ranges(MAX_RANGES))
    with pytest.raises(Malformed, match=f"at most {MAX_RANGES}"):
        encode_entry(A, ranges(MAX_RANGES + 1))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (JournalState(topics={T7: ("t", 0)}), "has not 1 to"),
        (JournalState(topics={T7: ("t", 1025)}), "has not 1 to"),
        (JournalState(epochs=[(Epoch(2), Position(0)), (Epoch(1), Position(8))]), "do not rise"),
        (JournalState(epochs=[(Epoch(2), Position(0))] * 2), "do not rise"),
    ],
)
def test_impossible_snap_is_malformed(state: JournalState, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        JournalState.from_snap(state.to_snap(0))


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 2, "a producer occurs twice"),
        (0, 0, "producer 0 has 1 batches"),  # 0 is a batch without a producer
        (16, 0, "producer 1 has 0 batches"),
        (16, KEPT_BATCHES + 1, f"producer 1 has {KEPT_BATCHES + 1} batches"),
    ],
)
def test_impossible_producer_table_is_malformed(at: int, value: int, reason: str) -> None:
    writer = JournalWriter()
    for producer in (1, 2):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    table = bytearray(writer.state.producers.encode(writer.now_ms, 1 << 20)[0])
    assert finish(ProducerTable.decoding(Fields(bytes(table), "SNAP"))) == writer.state.producers
    table[4 + at] = value
    with pytest.raises(Malformed, match=reason):
        finish(ProducerTable.decoding(Fields(bytes(table), "SNAP")))


def test_a_producer_is_known_by_its_number_and_its_queue() -> None:
    writer = JournalWriter()
    writer.data(7, 0, [b"v"], producer_id=5, base_sequence=0)
    knows = writer.state.producers.knows
    assert knows(5, QUEUE)
    assert not knows(6, QUEUE)
    assert not knows(5, (T7, 1))


# ---- each table has its own room
def test_progress_does_not_push_producers_out_of_snap() -> None:
    """50 services read 50 topics of 16 queues each."""
    state = JournalState()
    writer = JournalWriter(state=state)
    for producer in (1, 2):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    state.offsets = ProgressTable(
        {
            OffsetKey(f"{service:050}", TopicId(topic), queue): OffsetEntry(1, Offset(9), (), 1)
            for service in range(50)
            for topic in range(50)
            for queue in range(16)
        }
    )
    segment_bytes = 128 * 1024 * 1024
    again = JournalState.from_snap(state.to_snap(writer.now_ms, *snap_room(segment_bytes)))
    assert again.progress_bytes == state.progress_bytes > 3 << 20
    for producer in (1, 2):
        assert again.check_sequence(producer, 0, (TopicId(7), 0), 0, 1) is not None


def test_a_full_table_of_producers_fits_its_room() -> None:
    writer, state = JournalWriter(1 << 26), JournalState()
    header = writer.data(7, 0, [b"v"], producer_id=1, base_sequence=0)
    for producer in range(1, MAX_PRODUCERS + 1):
        for sequence in range(KEPT_BATCHES):
            state.producers.note(header._replace(producer_id=producer, base_sequence=sequence))
    segment_bytes = 128 * 1024 * 1024
    state.settle(state.snapshot(writer.now_ms, *snap_room(segment_bytes)))
    assert (
        len(state.producers) == MAX_PRODUCERS == state.producers.limit(producer_room(segment_bytes))
    )
    assert state.forgotten_producers == 0


def test_a_new_producer_never_pushes_out_one_that_may_retry() -> None:
    writer, table = JournalWriter(), ProducerTable(limit=3)
    first, *_ = [
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0) for producer in (1, 2, 3)
    ]
    for header in writer.headers[1:]:
        table.note(header)
    queue, now_ms, room = (TopicId(7), 0), first.store_ms, 1 << 20
    with pytest.raises(Overloaded, match="at most 3 are remembered"):
        table.require_room(4, queue, now_ms + RETRY_MS - 1, room)
    table.require_room(3, queue, now_ms, room)  # it is known
    table.require_room(0, queue, now_ms, room)  # it is not idempotent
    table.require_room(4, queue, now_ms + RETRY_MS, room)
    with pytest.raises(Overloaded, match="within 0 s"):
        table.require_room(4, queue, now_ms, room)
    table.require_room(4, queue, now_ms - 1, room)  # the clock was set back: it proves nothing
    with pytest.raises(Overloaded, match="at most 2 are remembered"):
        table.require_room(4, queue, now_ms, 2 * 180)
    writer.now_ms += RETRY_MS
    table.note(writer.data(7, 0, [b"v"], producer_id=4, base_sequence=0))
    assert (len(table), table.forgotten) == (3, 1)
    writer.now_ms += 2 * IDLE_MS
    table.note(writer.data(7, 0, [b"v"], producer_id=5, base_sequence=0))
    assert table.forgotten == 1, "one that is idle for a day is not missed"


def test_producers_left_out_of_a_snap_are_counted() -> None:
    writer = JournalWriter()
    for producer in range(1, 9):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    state = writer.state
    state.settle(state.snapshot(writer.now_ms, 1 << 20, 300))
    assert state.forgotten_producers == 8 - len(state.producers) > 0
    forgotten = state.forgotten_producers
    writer.roll()
    assert state.forgotten_producers == forgotten, "a counter does not fall at a roll"


def test_bytes_of_progress_follow_the_table() -> None:
    state = JournalState()
    writer = JournalWriter(state=state)
    keys = [OffsetKey("billing", TopicId(topic), 0) for topic in (7, 8)]
    writer.topic(7, "orders", 1)
    writer.offsets(dict.fromkeys(keys, OffsetEntry(1, Offset(5), ((Offset(7), Offset(8)),))))
    one = len(encode_entry(keys[0], state.offsets[keys[0]]))
    assert state.progress_bytes == 2 * one
    writer.offsets({keys[0]: OffsetEntry(2, Offset(9))})
    assert state.progress_bytes == 2 * one - 16
    writer.topic(7, "orders", 0)
    assert state.progress_bytes == one
    writer.offsets({keys[1]: tombstone(3)})
    assert 0 < state.progress_bytes < one
    state.settle(state.snapshot(writer.now_ms + 2 * IDLE_MS))
    assert state.progress_bytes == 0


def test_last_presence_of_a_group_is_known_while_it_has_progress() -> None:
    """Forgotten earlier, the group would never count as idle, and its progress would stay."""
    note = OffsetKey("a", T7, PRESENCE_QUEUE)
    elsewhere = OffsetKey("a", TopicId(8), PRESENCE_QUEUE)
    writer = JournalWriter()
    noted = writer.offsets({A: OffsetEntry(1, Offset(1)), note: tombstone(1)}).store_ms
    writer.offsets({elsewhere: tombstone(1), B: tombstone(1)})
    assert writer.state.present_ms("a", T7) == noted
    assert writer.state.present_ms("b", T7) is None
    writer.now_ms += 2 * TOMBSTONE_MS
    settled(writer.state, writer.now_ms)
    assert set(writer.state.offsets) == {A, note}
    later = writer.offsets({note._replace(queue_id=TEMPORARY_QUEUE): tombstone(1)}).store_ms
    assert writer.state.present_ms("a", T7) == later > noted, "the newest of both notes"
    writer.offsets({A: tombstone(2)})
    settled(writer.state, writer.now_ms)
    assert set(writer.state.offsets) == {A, note._replace(queue_id=TEMPORARY_QUEUE)}


def test_a_roll_looks_at_no_queue_of_a_group_with_an_old_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of thousands of groups, all queues were looked at in one turn of the broker's loop."""
    queues, seen, queues_of = 1000, list[int](), ProgressTable.queues_of

    def watched(self: ProgressTable, group: str, topic: TopicId) -> Iterator[int]:
        for queue in queues_of(self, group, topic):
            seen.append(queue)
            yield queue

    monkeypatch.setattr(ProgressTable, "queues_of", watched)
    writer, note = JournalWriter(), A._replace(queue_id=PRESENCE_QUEUE)
    writer.offsets({A._replace(queue_id=q): OffsetEntry(1, Offset(1)) for q in range(queues)})
    writer.offsets({note: tombstone(1)})
    writer.now_ms += 2 * TOMBSTONE_MS
    writer.state.snapshot(writer.now_ms)
    assert not seen


# ---- old tombstones leave the tables some time after the SNAP
def test_clock_set_back_then_the_same_hour_leaves_twice() -> None:
    """The first tombstones of that hour are still in the tables when the second ones leave."""
    writer, days = JournalWriter(), 3 * TOMBSTONE_MS
    for key in (A, B):
        writer.offsets({key: tombstone(5)})
        writer.state.settle(writer.state.snapshot(writer.now_ms + days))
    finish(writer.state.dropping())
    assert not writer.state.offsets


def test_another_hour_leaves_while_the_first_is_still_there() -> None:
    """Nothing is dropped at once for it: that would be the long turn of the loop to avoid."""
    writer, days = JournalWriter(), 3 * TOMBSTONE_MS
    for key in (A, B):
        writer.offsets({key: tombstone(5)})
        writer.state.settle(writer.state.snapshot(writer.now_ms + days))
        writer.now_ms += HOUR_MS
    assert set(writer.state.offsets) == {A, B}


ENTRIES = st.dictionaries(
    st.builds(OffsetKey, st.sampled_from("ab"), st.just(T7), st.sampled_from((0, PRESENCE_QUEUE))),
    st.tuples(st.integers(1, 9), st.booleans()),
    min_size=1,
    max_size=2,
)
MOVES = st.sampled_from([0, 0, HOUR_MS // 2, 2 * TOMBSTONE_MS, 2 * TOMBSTONE_MS, -3 * TOMBSTONE_MS])
WORK = ["roll", "roll", "roll", "drop a piece", "drop all", "delete the topic", "decode"]
STEPS = st.lists(st.tuples(MOVES, st.one_of(ENTRIES, ENTRIES, st.sampled_from(WORK))), max_size=30)


DAYS, DELETED, AGAIN = (
    2 * TOMBSTONE_MS,
    {A: (5, True), B: (5, True)},
    {A: (3, False), B: (3, False)},
)


@example([(0, DELETED), (DAYS, "roll"), (0, "delete the topic"), (0, AGAIN), (0, "drop all")])
@example(
    [
        (0, DELETED),
        (DAYS, "roll"),
        (0, "drop a piece"),
        (0, "decode"),
        (0, AGAIN),
        (0, "drop a piece"),
    ]
)
@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_a_broker_that_drops_late_agrees_with_one_that_decodes(
    steps: list[tuple[int, Any]],
) -> None:
    late, other, now_ms = JournalState(), JournalState(), 1_750_000_000_000
    dropping = late.dropping(1)
    for move_ms, step in steps:
        now_ms += move_ms
        if isinstance(step, dict):
            entries = {key: entry_of(key, *of) for key, of in step.items()}
            packed = {key: (entry, encode_entry(key, entry)) for key, entry in entries.items()}
            late.merge_offsets(packed, now_ms)
            other.merge_offsets(packed, now_ms)
        elif step == "roll":
            snapshot, same, kept = (
                late.snapshot(now_ms),
                other.to_snap(now_ms),
                kept_of(other, now_ms),
            )
            assert snapshot.payload == same, "a slave recognizes it as its own"
            late.settle(snapshot)
            other = JournalState.from_snap(same)
            assert set(other.offsets) == kept
            dropping = late.dropping(1)
        elif step == "delete the topic":
            late.set_topic(TopicSetting(T7, "t", 0))
            other.set_topic(TopicSetting(T7, "t", 0))
        elif step == "decode":
            late.replace(JournalState.from_snap(other.to_snap(0)))
        elif step == "drop all":
            finish(late.dropping())
        else:
            next(dropping, None)
        progress = {key for key, entry in late.offsets.items() if not entry.deleted}
        assert progress == {key for key, entry in other.offsets.items() if not entry.deleted}
        for group, topic_id, _ in progress:
            assert late.present_ms(group, topic_id) == other.present_ms(group, topic_id)
        assert late.progress_bytes == other.progress_bytes == bytes_of(other)
    finish(late.dropping())
    assert late == other


def entry_of(key: OffsetKey, version: int, deleted: bool) -> OffsetEntry:
    note = key.queue_id == PRESENCE_QUEUE
    return tombstone(version) if deleted or note else OffsetEntry(version, Offset(version))


def kept_of(state: JournalState, now_ms: int) -> set[OffsetKey]:
    """Return the keys of a SNAP: all but old tombstones, and of those the notes of live groups."""
    before = (now_ms - TOMBSTONE_MS) // HOUR_MS
    live = {key.group for key, entry in state.offsets.items() if not entry.deleted}
    old = {key for key, ms in state.deleted_ms.items() if ms // HOUR_MS < before}
    return {
        key
        for key in state.offsets
        if key not in old or (key.queue_id == PRESENCE_QUEUE and key.group in live)
    }


def bytes_of(state: JournalState) -> int:
    """Return the bytes of all entries, as SNAP holds them: a tombstone with its time."""
    items = state.offsets.items()
    return sum(len(encode_entry(key, entry)) + 8 * entry.deleted for key, entry in items)
