"""Batches of kinds that only a next version knows: skipped by their bit, else a stop."""

import pytest

from fmqcore.batch.control import (
    Deliver,
    Seal,
    TopicSetting,
    encode_deliver,
    encode_epoch,
    encode_offsets,
    encode_seal,
    encode_topic,
)
from fmqcore.batch.header import (
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    UnknownKind,
    seal_header,
)
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.errors import CorruptJournal, Malformed, NewerJournal
from fmqcore.ids import BrokerId, Epoch, Offset, Position, TopicId
from fmqcore.journal.findings import Code, refusal
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.kinds import apply_batch, kind_of
from fmqcore.journal.recovery import Cut, Refuse, SegmentFile, judge, judge_sealed, replay
from fmqcore.journal.scan import Cursor, Fault, Scan, Sealed, Stop, begin_next, check_batches
from fmqcore.journal.segments import MIN_SEGMENT, Segment
from fmqcore.journal.state import MAX_SEALS, JournalState
from fmqcore.properties import NONE, Properties
from fmqcore.scan.headers import ScanRange, scan_headers
from fmqcore.tests.journal.writer import SKIPPED, UNKNOWN, JournalWriter, newer
from fmqcore.verify.directory import Verifier


def replayed(writer: JournalWriter) -> tuple[JournalState, Stop]:
    """Replay all segments as a start does, and return state and end."""
    state, cursor, stop = JournalState(), Cursor(Position(0), 0), None
    for base, data in writer.segments.items():
        begin_next(cursor)
        index = SegmentIndex(base)
        stop = replay(Scan(bytes(data) + bytes(200), base, cursor), state, index)
        if isinstance(stop, Sealed):
            assert index.encode() == writer.index(base)
    assert stop is not None
    return state, stop


def without(writer: JournalWriter) -> JournalState:
    """Return the state of the same batches without those of the next version."""
    state = JournalState()
    for header in writer.headers:
        if header.type in set(BatchType):
            at = header.position - base_of(writer, header)
            data = writer.segments[Position(base_of(writer, header))]
            apply_batch(state, header, bytes(data[at + 96 : at + 96 + header.payload_len]))
    return state


def base_of(writer: JournalWriter, header: BatchHeader) -> int:
    return header.position // MIN_SEGMENT * MIN_SEGMENT


def verified(writer: JournalWriter, *, live: bool = False) -> Verifier:
    files = writer.files(writer.checkpoint())
    listing = [(name, len(data)) for name, data in files.items()]
    verifier = Verifier(listing, files["checkpoint"], live=live)
    for file in verifier.segments:
        index = files.get(file.name.replace(".journal", ".index"))
        verifier.segment(file, files[file.name], index)
    verifier.finish()
    return verifier


@pytest.mark.parametrize("kind", [SKIPPED, 0x80, 0xFF])
def test_skipped_kinds_change_nothing_and_stay(kind: int) -> None:
    writer = newer(kind)
    state, stop = replayed(writer)
    assert stop.position == writer.end
    assert state == without(writer)
    assert len([h for h in writer.headers if h.type == kind]) == 21
    verifier = verified(writer)
    assert verifier.findings == []
    assert verifier.state == state


def test_a_skipped_kind_is_checked_like_all_others() -> None:
    writer = newer()
    header = next(h for h in writer.headers if h.type == SKIPPED and h.payload_len > 100)
    base = Position(base_of(writer, header))
    writer.segments[base][header.position - base + 120] ^= 1
    (found,) = verified(writer).findings
    assert (found.code, found.position) == (Code.J002, header.position)
    cursor = Cursor(base)
    scan = Scan(bytes(writer.segments[base]), base, cursor)
    assert len(list(scan)) > 0
    assert isinstance(scan.stop, Fault)
    assert scan.stop[:2] == (header.position, BatchFault.PAYLOAD_CRC)


def test_skipped_kind_opens_no_segment_and_raises_no_epoch() -> None:
    writer = newer()
    first = writer.headers[0]._replace(type=SKIPPED)
    raw = bytearray(writer.segments[Position(0)])
    raw[:96] = seal_header(first)[0]
    with pytest.raises(BadBatch, match="a segment begins with a SNAP, not a KIND_145"):
        check_batches(bytes(raw), Cursor(Position(0), 0))
    _, scan = scan_headers(
        lambda length, at: bytes(raw[at : at + length]),
        ScanRange(Segment(Position(0), Position(MIN_SEGMENT)), Position(0), Position(MIN_SEGMENT)),
    )
    assert isinstance(scan.stop, Fault)
    assert scan.stop.sentence == "a KIND_145 batch is not allowed here"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("below", [True, False], ids=["below the durable end", "above"])
def test_unknown_kind_stops_a_start_and_is_not_truncated(*, clean: bool, below: bool) -> None:
    writer = newer(UNKNOWN)
    at = writer.headers[-1].position
    _, stop = replayed(writer)
    assert isinstance(stop, Fault)
    assert stop[:2] == (at, BatchFault.KIND)
    durable_end = writer.end if below else at
    verdict = judge(stop, "0.journal", durable_end=Position(durable_end), clean=clean)
    assert isinstance(verdict, Refuse)
    assert verdict.finding.code is Code.J006
    error = refusal("/data", verdict.finding)
    assert isinstance(error, NewerJournal)
    assert str(error).startswith(f"/data: J006 0.journal, position {at}: FMQ ")
    assert "kind 9 and must not skip" in str(error)
    assert "upgrade this broker or tool" in str(error)


@pytest.mark.parametrize("kept", [96, 104])
@pytest.mark.parametrize("clean", [True, False])
def test_unknown_kind_torn_behind_its_header_is_truncated(kept: int, *, clean: bool) -> None:
    """The bytes are missing, whatever they would mean to the version that wrote them."""
    writer = newer(UNKNOWN)
    header = writer.headers[-1]
    assert header.payload_len > 8
    at, data = header.position - writer.last_base + kept, writer.segments[writer.last_base]
    data[at:] = bytes(len(data) - at)
    _, stop = replayed(writer)
    assert isinstance(stop, Fault)
    assert stop[:2] == (header.position, BatchFault.PAYLOAD_CRC)
    verdict = judge(stop, "0.journal", durable_end=header.position, clean=clean)
    assert isinstance(verdict, Refuse if clean else Cut)
    assert verdict.finding.code is Code.J002
    below = judge(stop, "0.journal", durable_end=writer.end, clean=clean)
    assert isinstance(below, Refuse)


def test_unknown_kind_in_a_sealed_segment_is_no_damage() -> None:
    stop = Fault(Position(200), BatchFault.KIND, "kind 9")
    refused = judge_sealed(stop, SegmentFile(Position(0), MIN_SEGMENT))
    assert refused is not None
    assert isinstance(refusal("/data", refused.finding), NewerJournal)
    damage = judge_sealed(stop._replace(fault=BatchFault.CHAIN), SegmentFile(Position(0), 9))
    assert damage is not None
    assert type(refusal("/data", damage.finding)) is CorruptJournal


@pytest.mark.parametrize("live", [True, False])
def test_verifier_names_an_unknown_kind_at_the_end(*, live: bool) -> None:
    writer = newer(UNKNOWN)
    found = verified(writer, live=live).findings
    assert [f.code for f in found][:1] == [Code.J006]
    assert found[0].position == writer.headers[-1].position
    assert "upgrade" in found[0].remedy


def test_received_unknown_kind_is_refused_with_its_position() -> None:
    writer = newer(UNKNOWN)
    base = writer.last_base
    cursor = Cursor(base)
    with pytest.raises(UnknownKind, match=f"at position {writer.headers[-1].position}: .*kind 9"):
        check_batches(bytes(writer.segments[base]), cursor)
    assert cursor == Cursor(base)


@pytest.mark.parametrize("kind", list(BatchType))
def test_each_kind_has_a_row_that_refuses_garbage(kind: BatchType) -> None:
    row = kind_of(kind)
    assert (row.name, row.type) == (kind.name, kind)
    assert row.frame == (kind in (BatchType.SNAP, BatchType.EOF))
    by_payload = (BatchType.SNAP, BatchType.OFFSETS, BatchType.CONFIG, BatchType.SEAL)
    assert row.by_payload == (kind in by_payload)
    assert (row.decode is None) == (kind in (BatchType.DATA, BatchType.EOF))
    if row.decode is not None:
        with pytest.raises(Malformed):
            row.decode(b"\xff")


def test_rows_show_their_content() -> None:
    header = newer().headers[1]
    assert kind_of(BatchType.EPOCH).show(header, encode_epoch(Epoch(3), BrokerId("g1-0"))) == {
        "master": "g1-0"
    }
    topic = {"topic_id": 7, "name": "orders", "queues": 8}
    properties = Properties.decode(b'{"x": [1]}')
    for given, shown in ((NONE, {}), (properties, {"properties": {"x": [1]}})):
        config = encode_topic(TopicId(7), "orders", 8, given)
        assert kind_of(BatchType.CONFIG).show(header, config) == topic | shown
    deliver = Deliver(Position(1), 2, 3, 4)
    due = kind_of(BatchType.DELIVER).show(header, encode_deliver(deliver))
    assert due == deliver._asdict()
    seal = kind_of(BatchType.SEAL).show(header, encode_seal(Seal(TopicId(7), 2, (3, 4))))
    assert seal == {"topic_id": 7, "segment": 2, "ends": [3, 4]}
    skipped = kind_of(SKIPPED).show(header, b"")
    assert skipped == {"skipped": "a newer FMQ wrote it", "payload_bytes": header.payload_len}


def test_row_of_offsets_shows_progress_and_deleted_progress() -> None:
    header, row = newer().headers[1], kind_of(BatchType.OFFSETS)
    assert row.show(header, encode_offsets({})) == {"progress": []}
    entries = {
        OffsetKey("g", TopicId(7), 1): OffsetEntry(5, Offset(10), ((Offset(12), Offset(15)),)),
        OffsetKey("g", TopicId(7), 2): tombstone(6),
    }
    common = {"group": "g", "topic_id": 7}
    assert row.show(header, encode_offsets(entries))["progress"] == [
        common | {"queue": 1, "version": 5, "floor": 10, "ranges": [[12, 15]]},
        common | {"queue": 2, "version": 6, "floor": None, "ranges": []},
    ]


def test_seal_stays_over_a_snap_and_goes_with_its_topic() -> None:
    """SNAP has no seals (ADR 0064): what this process has seen stays, the newest of a topic."""
    state, header = JournalState(), newer().headers[1]
    for number in range(1, MAX_SEALS + 2):
        seal = Seal(TopicId(7), number, (number, 0))
        apply_batch(state, header._replace(type=BatchType.SEAL), encode_seal(seal))
    assert list(state.seals[TopicId(7)]) == list(range(2, MAX_SEALS + 2))
    state.follow_snap(header, JournalState.from_snap(state.to_snap(0)))
    assert state.seals[TopicId(7)][2] == ((2, 0), header.end)
    assert state == JournalState.from_snap(state.to_snap(0)), "seals are no part of the state"
    state.set_topic(TopicSetting(TopicId(7), "changes", 0))
    assert state.seals == {}
