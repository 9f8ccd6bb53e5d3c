"""SNAPs of one state, made again and again as a broker makes them: each is stored and settled, and
must be what a replica that decodes it holds. Each test is about a line that nothing else needs."""

import pytest

from fmqcore.errors import Malformed, OutOfSequence, ProducerFenced
from fmqcore.journal.offsets import MAX_RANGES, OffsetEntry, OffsetKey, encode_entry, tombstone
from fmqcore.journal.producers import IDLE_MS
from fmqcore.journal.state import TOMBSTONE_MS, JournalState
from fmqcore.tests.journal_writer import JournalWriter
from fmqcore.words import Epoch, Offset, Position, TopicId

T7 = TopicId(7)
QUEUE = (T7, 0)
KEYS = [OffsetKey(group, T7, 0) for group in ("a", "b", "c", "d")]
A, B, C, D = KEYS


def settled(state: JournalState, now_ms: int, max_bytes: int = 1 << 20) -> bytes:
    """What a segment's change does: the SNAP is stored, and decodes to what goes on."""
    snapshot = state.snapshot(now_ms, max_bytes)
    state.settle(snapshot)
    assert JournalState.from_snap(snapshot.payload) == state
    return snapshot.payload


def test_a_deleted_topic_takes_the_tombstones_of_its_progress_along() -> None:
    """A tombstone's time without its entry is counted by the next SNAP, which nobody can read."""
    writer = JournalWriter()
    writer.topic(7, "orders", 4)
    writer.offsets({A: tombstone(2), B: OffsetEntry(2, Offset(1))})
    writer.topic(7, "orders", 0)
    assert not writer.state.deleted_ms
    settled(writer.state, writer.now_ms + 2 * TOMBSTONE_MS)
    writer.topic(7, "orders", 4)  # the group has it back, and somebody reads it again
    writer.offsets({A: OffsetEntry(3, Offset(1))})
    settled(writer.state, writer.now_ms)


def test_progress_that_comes_and_goes_between_two_snaps_is_told_in_order() -> None:
    """As many entries as before, but others: one was deleted a day ago, another one is new."""
    writer = JournalWriter()
    writer.offsets({B: OffsetEntry(1, Offset(1)), C: tombstone(2)})
    settled(writer.state, writer.now_ms)
    settled(writer.state, writer.now_ms + 2 * TOMBSTONE_MS)
    assert list(writer.state.offsets) == [B]
    writer.offsets({A: OffsetEntry(1, Offset(5))})
    snap = settled(writer.state, writer.now_ms)
    assert list(JournalState.from_snap(snap).offsets) == [A, B], "ascending, whatever came when"
    assert JournalState.from_snap(snap).to_snap(writer.now_ms) == snap


def test_each_entry_of_a_batch_is_told_with_its_own_bytes() -> None:
    """A SNAP is a join of the bytes that came in OFFSETS batches, of many entries mostly."""
    writer = JournalWriter()
    first = {key: OffsetEntry(n, Offset(10 * n)) for n, key in enumerate(KEYS, 1)}
    writer.offsets(first)
    assert JournalState.from_snap(writer.state.to_snap(0)).offsets == first
    ranges = ((Offset(70), Offset(71)), (Offset(80), Offset(90)))
    second = {D: OffsetEntry(9, Offset(60), ranges, 9), A: OffsetEntry(9, Offset(2))}
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
def test_who_is_left_out_for_want_of_room_is_forgotten_here_too(left_out: int) -> None:
    """Else master and slaves would answer a retry differently."""
    writer = JournalWriter()
    for producer in (1, 2, 3, 4):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    whole = len(writer.state.to_snap(writer.now_ms))
    one = (whole - len(JournalState(writer.state.next_offsets).to_snap(writer.now_ms))) // 4
    settled(writer.state, writer.now_ms, whole - left_out * one)
    check = writer.state.check_sequence
    known = [p for p in (1, 2, 3, 4) if check(p, 0, QUEUE, 0, 1) is not None]
    assert known == [1, 2, 3, 4][left_out:]


def test_a_producer_is_as_idle_as_its_newest_batch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends every few hours is at work, though the oldest batch kept is days old."""
    monkeypatch.setattr("fmqcore.journal.producers.IDLE_KEPT", 0)
    writer = JournalWriter()
    for sequence in range(3):
        writer.now_ms += IDLE_MS
        writer.data(7, 0, [b"v"], producer_id=5, base_sequence=sequence)
    settled(writer.state, writer.now_ms)
    assert writer.state.check_sequence(5, 0, QUEUE, 2, 1) is not None, "a retry is still known"


def test_an_older_session_is_refused_also_with_its_first_batch() -> None:
    """P7: it comes late, nothing of it was ever stored, and a newer session is at work."""
    writer = JournalWriter()
    writer.data(7, 0, [b"v"], producer_id=5, producer_epoch=4, base_sequence=8)
    with pytest.raises(ProducerFenced):
        writer.state.check_sequence(5, 3, QUEUE, 0, 1)
    with pytest.raises(OutOfSequence):
        writer.state.check_sequence(5, 4, QUEUE, 0, 1)


def test_producers_are_equal_by_what_they_sent() -> None:
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
    ("state", "why"),
    [
        (JournalState(topics={T7: ("t", 0)}), "has not 1 to"),
        (JournalState(topics={T7: ("t", 1025)}), "has not 1 to"),
        (JournalState(epochs=[(Epoch(2), Position(0)), (Epoch(1), Position(8))]), "do not rise"),
        (JournalState(epochs=[(Epoch(2), Position(0))] * 2), "do not rise"),
    ],
)
def test_a_snap_that_says_what_cannot_be_is_malformed(state: JournalState, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        JournalState.from_snap(state.to_snap(0))
