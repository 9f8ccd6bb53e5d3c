"""The journal's state: the sum of the batches, SNAP and replay, the producer table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.errors import Malformed, OutOfSequence, ProducerFenced
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.producers import IDLE_KEPT, IDLE_MS, KEPT_BATCHES, ProducerTable
from fmqcore.journal.scan import Cursor, Scan
from fmqcore.journal.snap_entries import HOUR_MS
from fmqcore.journal.snap_payload import snap_next_offsets
from fmqcore.journal.state import MAX_EPOCHS, TOMBSTONE_MS, JournalState
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqcore.turns import finish

T7 = TopicId(7)
KEY = OffsetKey("billing", T7, 0)
DAY_MS = 24 * 3600 * 1000


def replayed(writer: JournalWriter, base: Position) -> JournalState:
    """Return the state from the SNAP of the segment at `base` on."""
    state, cursor = JournalState(), Cursor(base)
    for at, data in writer.segments.items():
        if at >= base:
            cursor.segment = None
            scan = Scan(bytes(data), at, cursor)
            for header in scan:
                apply_batch(state, header, scan.payload(header))
    return state


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, 3), st.integers(1, 6), st.integers(0, 3)),
        st.tuples(st.just("offsets"), st.integers(0, 3), st.integers(1, 9), st.booleans()),
        st.tuples(st.just("topic"), st.integers(1, 3), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("epoch"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("roll"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("days"), st.just(0), st.integers(1, 2), st.just(0)),
    ),
    max_size=40,
)


def _play(writer: JournalWriter, operations: list[tuple[str, int, int, int]]) -> None:
    sequences: dict[tuple[int, int], int] = {}
    for kind, a, b, c in operations:
        match kind:
            case "data":
                sequence = sequences.get((c, a), 0)
                writer.data(
                    7, a, [b"v"] * b, producer_id=c, producer_epoch=1, base_sequence=sequence
                )
                sequences[c, a] = sequence + b
            case "offsets":
                entry = tombstone(b) if c else OffsetEntry(b, Offset(b))
                writer.offsets({OffsetKey("g", T7, a): entry})
            case "topic":
                writer.topic(a, f"t{a}", b)
            case "epoch":
                writer.open_epoch(writer.epoch + 1)
            case "roll":
                writer.roll()
            case "days":
                writer.now_ms += b * DAY_MS


@given(OPERATIONS)
@settings(max_examples=60, deadline=None)
def test_any_snap_with_later_batches_equals_the_whole_journal(
    operations: list[tuple[str, int, int, int]],
) -> None:
    writer = JournalWriter()
    _play(writer, operations)
    for base in writer.segments:
        assert replayed(writer, base) == writer.state
    again = JournalState.from_snap(writer.state.to_snap(writer.now_ms))
    assert again.to_snap(writer.now_ms) == writer.state.to_snap(writer.now_ms)


@given(OPERATIONS, st.integers(0, 3000), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_settled_snapshot_equals_its_decoded_bytes(
    operations: list[tuple[str, int, int, int]], max_bytes: int, days: int
) -> None:
    writer = JournalWriter()
    _play(writer, operations)
    state, now_ms = writer.state, writer.now_ms + days * DAY_MS
    snapshot = state.snapshot(now_ms, max_bytes)
    decoded = JournalState.from_snap(snapshot.payload)
    state.settle(snapshot)
    finish(state.dropping())
    assert state == decoded
    again = state.to_snap(now_ms, max_bytes)
    assert again == decoded.to_snap(now_ms, max_bytes) == snapshot.payload


def test_snap_holds_the_whole_state() -> None:
    writer = sample()
    state = writer.state
    assert JournalState.from_snap(state.to_snap(writer.now_ms)) == state
    assert state.topics == {T7: ("orders", 4)}
    assert [epoch for epoch, _ in state.epochs] == [1, 2]
    assert len(state.next_offsets) == 4
    assert len(state.producers) == 4
    assert snap_next_offsets(state.to_snap(0)) == state.next_offsets
    headers = [h for h in writer.headers if h.type == BatchType.EPOCH]
    assert state.epochs == [(h.epoch, h.position) for h in headers]


def test_snap_truncated_anywhere_is_malformed() -> None:
    writer = sample(batches=12)
    snap = writer.state.to_snap(writer.now_ms)
    for end in range(len(snap)):
        with pytest.raises(Malformed):
            JournalState.from_snap(snap[:end])
    with pytest.raises(Malformed, match="left over"):
        JournalState.from_snap(snap + b"\0")
    with pytest.raises(Malformed, match="version is 2"):
        JournalState.from_snap(b"\x02" + snap[1:])


def test_data_needs_no_payload() -> None:
    writer = JournalWriter()
    header = writer.data(7, 2, [b"a", b"b"], producer_id=5, base_sequence=9)
    state = JournalState()
    apply_batch(state, header, b"")
    assert state.next_offsets == {(T7, 2): 2}
    assert state.check_sequence(5, 0, (T7, 2), 9, 2) is not None


def test_deleted_topic_keeps_next_offsets_and_loses_progress() -> None:
    writer = JournalWriter()
    writer.topic(7, "orders", 4)
    writer.data(7, 0, [b"a"])
    other = KEY._replace(topic_id=TopicId(8))
    writer.offsets({KEY: OffsetEntry(1, Offset(1)), other: OffsetEntry(1, Offset(1))})
    writer.topic(7, "orders", 0)
    assert writer.state.topics == {}
    assert list(writer.state.offsets) == [other]
    assert writer.state.next_offsets == {(T7, 0): 1}


def test_group_that_never_consumed_has_no_progress() -> None:
    assert JournalState().progress(KEY) is None


def test_tombstone_is_removed_after_a_day() -> None:
    writer = JournalWriter()
    writer.offsets({KEY: OffsetEntry(1, Offset(1))})
    assert writer.state.progress(KEY) == OffsetEntry(1, Offset(1))
    deleted = writer.offsets({KEY: tombstone(2)})
    assert writer.state.progress(KEY) is None
    writer.offsets({KEY: OffsetEntry(1, Offset(5))})  # stale: changes nothing
    assert writer.state.progress(KEY) is None
    for now_ms, kept in (
        (deleted.store_ms + TOMBSTONE_MS, True),
        (deleted.store_ms + TOMBSTONE_MS + HOUR_MS, False),
    ):
        snap = JournalState.from_snap(writer.state.to_snap(now_ms))
        assert (KEY in snap.offsets) is kept
        assert (KEY in snap.deleted_ms) is kept
    writer.offsets({KEY: OffsetEntry(3, Offset(0))})
    assert writer.state.progress(KEY) == OffsetEntry(3, Offset(0))
    assert not writer.state.deleted_ms
    size = writer.state.progress_bytes
    assert size == JournalState.from_snap(writer.state.to_snap(deleted.store_ms)).progress_bytes


def test_epochs_are_bounded_and_opened_once() -> None:
    writer = JournalWriter(segment_bytes=1 << 20)
    for epoch in range(1, MAX_EPOCHS + 3):
        header = writer.open_epoch(epoch)
    writer.open_epoch(epoch)
    assert len(writer.state.epochs) == MAX_EPOCHS
    assert writer.state.epochs[-1] == (Epoch(epoch), header.position)


# ---- producers
QUEUE = (T7, 0)


def produced(*counts: int, producer_epoch: int = 1, first: int = 0) -> JournalWriter:
    writer = JournalWriter()
    sequence = first
    for count in counts:
        writer.data(
            7,
            0,
            [b"v"] * count,
            producer_id=5,
            producer_epoch=producer_epoch,
            base_sequence=sequence % 2**32,
        )
        sequence += count
    return writer


def test_next_sequence_is_new_and_retry_gets_its_first_answer() -> None:
    writer = produced(3, 2, 4)
    check = writer.state.check_sequence
    assert check(5, 1, QUEUE, 9, 1) is None
    headers = [h for h in writer.headers if h.type == BatchType.DATA]
    for header in headers:
        found = check(5, 1, QUEUE, header.base_sequence, header.record_count)
        assert found is not None
        assert (found.base_offset, found.end) == (header.base_offset, header.end)
        assert (found.store_ms, found.record_count) == (header.store_ms, header.record_count)


def test_only_the_last_five_batches_are_known() -> None:
    writer = produced(*[1] * (KEPT_BATCHES + 1))
    check = writer.state.check_sequence
    assert check(5, 1, QUEUE, 1, 1) is not None
    with pytest.raises(OutOfSequence, match="expected 6"):
        check(5, 1, QUEUE, 0, 1)


@pytest.mark.parametrize(("sequence", "count"), [(10, 1), (4, 1), (3, 3), (8, 5)])
def test_gaps_and_other_batches_are_out_of_sequence(sequence: int, count: int) -> None:
    with pytest.raises(OutOfSequence, match="expected 9"):
        produced(3, 2, 4).state.check_sequence(5, 1, QUEUE, sequence, count)


def test_sequences_wrap() -> None:
    assert produced(2, first=2**32 - 2).state.check_sequence(5, 1, QUEUE, 0, 1) is None
    writer = produced(2, 3, first=2**32 - 2)
    check = writer.state.check_sequence
    assert check(5, 1, QUEUE, 3, 1) is None
    retry = check(5, 1, QUEUE, 2**32 - 2, 2)
    assert retry is not None
    assert retry.base_offset == 0


def test_newer_session_fences_and_restarts_sequences() -> None:
    writer = produced(3, producer_epoch=4)
    check = writer.state.check_sequence
    with pytest.raises(ProducerFenced, match="session 4 is active"):
        check(5, 3, QUEUE, 3, 1)
    assert check(5, 5, QUEUE, 700, 1) is None
    writer.data(7, 0, [b"v"], producer_id=5, producer_epoch=5, base_sequence=700)
    assert check(5, 5, QUEUE, 701, 1) is None
    with pytest.raises(OutOfSequence):
        check(5, 5, QUEUE, 0, 3)  # the old session's batch is not this one's
    with pytest.raises(ProducerFenced):
        check(5, 4, QUEUE, 3, 1)


def test_unknown_producer_may_start_at_any_sequence() -> None:
    writer = produced(3)
    check = writer.state.check_sequence
    assert check(6, 1, QUEUE, 99, 1) is None
    assert check(5, 1, (T7, 1), 99, 1) is None
    assert check(0, 0, QUEUE, 99, 1) is None
    writer.data(7, 0, [b"v"], producer_id=0, base_sequence=99)
    assert len(writer.state.producers) == 1


def test_longest_idle_producer_is_evicted_first() -> None:
    writer = JournalWriter()
    table = ProducerTable(limit=3)
    for producer in (1, 2, 3, 1, 4):  # 2 is idle for longest when 4 comes
        table.note(writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0))
    known = [p for p in (1, 2, 3, 4) if table.check(p, 0, QUEUE, 0, 1) is not None]
    assert known == [1, 3, 4]


def test_newest_producers_stay_despite_a_clock_jump() -> None:
    """The clock was set a day ahead: their retries are known nevertheless."""
    writer, table = JournalWriter(), ProducerTable()
    for producer in range(1, IDLE_KEPT + 3):
        table.note(writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0))
    _, left_out = table.encode(writer.now_ms + 2 * IDLE_MS, 1 << 22)
    assert left_out == 2
    assert table.encode(writer.now_ms, 1 << 22)[1] == 0


def test_snap_omits_idle_producers_and_those_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fmqcore.journal.producers.IDLE_KEPT", 0)
    writer = JournalWriter()
    for producer in range(1, 9):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    state, now_ms = writer.state, writer.now_ms - 1000  # when the newest batch was stored
    whole = state.to_snap(now_ms)
    small = JournalState.from_snap(state.to_snap(now_ms, len(whole) - 1))
    known = [p for p in range(1, 9) if small.check_sequence(p, 0, QUEUE, 0, 1) is not None]
    assert known == [2, 3, 4, 5, 6, 7, 8]
    assert len(JournalState.from_snap(state.to_snap(now_ms, 10)).producers) == 0
    assert len(JournalState.from_snap(state.to_snap(now_ms + IDLE_MS)).producers) == 1
    assert small.next_offsets == state.next_offsets


def test_idle_order_of_producers_survives_a_snap() -> None:
    writer = JournalWriter()
    for producer in (1, 2, 3, 1):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)
    again = JournalState.from_snap(writer.state.to_snap(writer.now_ms))
    assert again.producers == writer.state.producers
    newest = JournalState.from_snap(again.to_snap(writer.now_ms, len(again.to_snap(0)) - 1))
    assert newest.check_sequence(2, 0, QUEUE, 0, 1) is None
    assert newest.check_sequence(1, 0, QUEUE, 0, 1) is not None


def test_the_bytes_of_a_snap_are_those_of_the_file_format() -> None:
    """Pinned: a change here is a new version of the format."""
    state = JournalState(
        next_offsets={QUEUE: Offset(9)},
        offsets=ProgressTable({OffsetKey("b", T7, 1): tombstone(2)}),
        topics={T7: ("t", 4)},
        epochs=[(Epoch(3), Position(120))],
        deleted_ms={OffsetKey("b", T7, 1): 1000},
    )
    writer = JournalWriter()
    writer.now_ms = 5
    header = writer.data(7, 0, [b"v"], producer_id=5, producer_epoch=6, base_sequence=8)
    state.producers.note(header._replace(position=Position(256), total_len=64))
    assert state.to_snap(1000).hex(" ") == (
        "01 00 00 00 01 00 00 00 01 00 00 00 01 00 00 00 01 00 00 00 "
        "07 00 00 00 00 00 09 00 00 00 00 00 00 00 "
        "03 00 00 00 78 00 00 00 00 00 00 00 "
        "07 00 00 00 04 00 01 74 "
        "01 62 07 00 00 00 01 00 02 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff 00 00 00 00 "
        "e8 03 00 00 00 00 00 00 "
        "01 00 00 00 05 00 00 00 00 00 00 00 07 00 00 00 00 00 06 00 01 00 00 00 "
        "08 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 40 01 00 00 00 00 00 00 "
        "05 00 00 00 00 00 00 00"
    )
