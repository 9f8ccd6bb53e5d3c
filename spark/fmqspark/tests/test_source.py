"""The source without Spark: all committed records, once; only what can match is read."""

import copy
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fmqcore.batch.columns import Records, decode
from fmqcore.batch.header import HEADER_LEN, BatchHeader, BatchType
from fmqcore.errors import CorruptJournal, InvalidArgument, NotFound
from fmqcore.ids import Position, TopicId
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.scan import payloads
from fmqcore.scan.payloads import BORN, BYTES_COLUMNS, Slab
from fmqcore.scan.selection import Range, Wanted
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqspark.source.files import Throttle
from fmqspark.source.options import Request, understand
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader, Tally
from fmqspark.source.survey import survey
from fmqspark.tests.kit import data_batch, file_of, flip, journal, write

Row = tuple[str, int, int, bytes]
ALL = (*BYTES_COLUMNS, BORN)
WHOLE = Wanted()


def rows_of(slab: Slab, names: dict[TopicId, str]) -> Iterator[Row]:
    headers = slab.headers
    value = slab.columns["value"]
    for i, header in enumerate(headers.headers()):
        offsets, data = value.offsets[i].cast("I"), bytes(value.data[i])
        for n in range(header.record_count):
            piece = data[offsets[n] : offsets[n + 1]]
            yield names[header.topic_id], header.queue_id, header.base_offset + n, piece


def read(
    directories: Sequence[Path],
    wanted: Wanted = WHOLE,
    split_bytes: int = 40_000,
    tally: Tally | None = None,
    *,
    uncommitted: bool = False,
) -> list[Row]:
    found = survey([str(d) for d in directories], uncommitted=uncommitted)
    rows: list[Row] = []
    for split in plan(found, wanted, split_bytes):
        reader = SplitReader(split, ALL, Throttle(0), tally)
        rows += itertools.chain.from_iterable(rows_of(slab, reader.names) for slab in reader)
    return rows


def truth(
    writer: JournalWriter, wanted: Wanted = WHOLE, until: int = 2**63
) -> tuple[list[Row], list[BatchHeader]]:
    """By the plain decoder: rows, and the batches that must be read."""
    rows, batches = [], []
    for header in writer.headers:
        if (
            header.type != BatchType.DATA
            or header.end > until
            or not wanted.takes((header.topic_id, header.queue_id))
            or Range(header.base_offset, header.end_offset).cut(wanted.offsets).empty
            or not wanted.store_ms.first <= header.store_ms < wanted.store_ms.end
        ):
            continue
        batches.append(header)
        records = records_of(writer, header)
        rows += [
            ("orders", header.queue_id, header.base_offset + i, value)
            for i, value in enumerate(records.values)
        ]
    return rows, batches


def records_of(writer: JournalWriter, header: BatchHeader) -> Records:
    base = Position(header.position // MIN_SEGMENT * MIN_SEGMENT)
    at = header.position - base + HEADER_LEN
    payload = bytes(writer.segments[base][at : at + header.payload_len])
    return decode(header.attrs, header.record_count, payload)


MIDDLE_MS = 1_700_000_150_000
SOME = [
    Wanted(),
    Wanted(queues=frozenset({2})),
    Wanted(queues=frozenset({0, 3}), offsets=Range(50, 120)),
    Wanted(offsets=Range(7, 8)),
    Wanted(offsets=Range(10_000)),
    Wanted(store_ms=Range(MIDDLE_MS, MIDDLE_MS + 30_000)),
    Wanted(queues=frozenset({1}), store_ms=Range(end=MIDDLE_MS)),
    Wanted(topics=frozenset({TopicId(9)})),
    Wanted(topics=frozenset({TopicId(7)}), queues=frozenset()),
]


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("split_bytes", [3_000, 10**9])
@pytest.mark.parametrize("wanted", SOME)
def test_selected_records_come_once_and_in_order(
    tmp_path: Path, wanted: Wanted, split_bytes: int, with_index: bool
) -> None:
    a = write(tmp_path / "a")
    if not with_index:
        for path in a.glob("*.index"):
            path.unlink()
    tally = Tally()
    expected, batches = truth(journal(), wanted)
    assert read([a], wanted, split_bytes, tally) == expected
    assert tally.batches == len(batches)


@pytest.mark.parametrize("wanted", SOME)
def test_batches_that_cannot_match_are_never_read(tmp_path: Path, wanted: Wanted) -> None:
    a = write(tmp_path / "a")
    expected, batches = truth(journal(), wanted)
    keep = {header.position for header in batches}
    last = journal().last_base
    for header in journal().headers:
        if header.type == BatchType.DATA and header.position not in keep and header.end <= last:
            path, at = file_of(a, header.position)
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"\xff" * header.total_len)
    tally = Tally()
    assert read([a], wanted, tally=tally) == expected
    full = {h.position // MIN_SEGMENT for h in batches if h.position < last}
    indexes = sum((a / index_name(Position(n * MIN_SEGMENT))).stat().st_size for n in full)
    of_open = MIN_SEGMENT  # for the open segment all headers, and these batches are small
    most = sum(h.total_len for h in batches) + 3 * indexes + 2 * of_open
    assert tally.bytes_read <= most


def test_a_segment_that_cannot_match_is_not_even_opened(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    wanted = Wanted(queues=frozenset({1}), store_ms=Range(MIDDLE_MS, MIDDLE_MS + 5_000))
    splits = plan(survey([str(a)]), wanted, 10**9)
    assert len(splits) == 1 < len(journal().segments)
    early = plan(survey([str(a)]), Wanted(offsets=Range(0, 5)), 10**9)
    assert [split.segment.base for split in early] == [0]


@pytest.mark.parametrize("number", [0, 3, 150, 200, -1])
def test_nothing_above_the_known_commit_end_is_shown(tmp_path: Path, number: int) -> None:
    end = [h for h in journal().headers if h.type == BatchType.DATA][number].end
    a = write(tmp_path / "a", commit_end=end)
    assert read([a]) == truth(journal(), until=end)[0]
    assert read([a], uncommitted=True) == truth(journal())[0]


def test_diverged_tail_is_not_shown_beside_the_committed_one(tmp_path: Path) -> None:
    """A former master has other, good batches where its slaves continued without it."""
    lost = sample(batches=150)
    won, agreed = copy.deepcopy(lost), lost.end
    won.open_epoch(3, "g1-1")
    for n in range(120):
        lost.data(7, n % 4, [b"lost-%d" % n + b"x" * 900] * 3)
        won.data(7, n % 4, [b"won-%d" % n + b"x" * 900] * 3)
    a = write(tmp_path / "a", lost, commit_end=agreed)
    b = write(tmp_path / "b", won)
    assert read([a]) == truth(lost, until=agreed)[0]
    expected = truth(won)[0]
    assert read([b, a]) == expected
    assert read([a, b]) == expected
    assert agreed + 3 * MIN_SEGMENT < lost.end


def test_commit_end_above_the_journal_end_is_no_damage(tmp_path: Path) -> None:
    end = journal().headers[-2].end
    a = write(tmp_path / "a", durable_end=journal().headers[-20].end, commit_end=10**9)
    path, at = file_of(a, end)
    path.write_bytes(path.read_bytes()[:at] + bytes(MIN_SEGMENT - at))
    assert read([a]) == truth(journal(), until=end)[0]
    b = write(tmp_path / "b", durable_end=journal().end, commit_end=10**9)
    os.truncate(b / segment_name(journal().last_base), at - 8)
    with pytest.raises(CorruptJournal, match="damaged at position"):
        read([b])


def test_damage_is_an_error_and_a_good_replica_continues(tmp_path: Path) -> None:
    victim = data_batch(120)
    expected = truth(journal())[0]
    for part, at in (("header", 20), ("payload", 100)):
        a, b = write(tmp_path / f"a-{part}"), write(tmp_path / f"b-{part}")
        flip(a, victim.position + at)
        with pytest.raises(
            CorruptJournal, match=f"damaged at position {victim.position} "
        ) as raised:
            read([a])
        assert file_of(a, victim.position)[0].name in str(raised.value)
        assert read([a, b]) == expected
        for path in (*a.glob("*.index"), *b.glob("*.index")):
            path.unlink()
        with pytest.raises(CorruptJournal, match=f"damaged at position {victim.position} "):
            read([a])
        assert read([a, b]) == expected
        flip(b, victim.position + at)
        with pytest.raises(CorruptJournal):
            read([a, b])


@pytest.mark.parametrize("with_index", [True, False])
def test_replica_continues_behind_the_rows_already_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_index: bool
) -> None:
    monkeypatch.setattr(payloads, "_SLAB_RECORDS", 5)
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    for number in (20, 60, 120):
        flip(a, data_batch(number).position + 100)
    if not with_index:
        for path in (*a.glob("*.index"), *b.glob("*.index")):
            path.unlink()
    assert read([a, b], split_bytes=10**9) == truth(journal())[0]


@pytest.mark.parametrize("cut", [0, 40, 96, 1000, MIN_SEGMENT // 2, MIN_SEGMENT - 8])
@pytest.mark.parametrize("number", [0, 4, -1])
def test_segment_truncated_anywhere_gives_all_rows_or_an_error(
    tmp_path: Path, cut: int, number: int
) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    base = sorted(journal().segments)[number]
    os.truncate(a / segment_name(base), cut)
    expected = truth(journal())[0]
    try:
        rows = read([a])
    except CorruptJournal:
        rows = expected
    assert rows == expected
    assert read([a, b]) == expected


def test_index_without_a_batch_is_not_trusted(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    inside = [h for h in journal().headers if MIN_SEGMENT <= h.position < 2 * MIN_SEGMENT]
    for leave_out in range(1, len(inside) - 1):
        index = SegmentIndex(Position(MIN_SEGMENT))
        for i, header in enumerate(inside):
            if i != leave_out:
                index.add(header)
        (a / index_name(Position(MIN_SEGMENT))).write_bytes(index.encode())
        assert read([a]) == truth(journal())[0]


def test_a_fresh_replica_is_no_gap(tmp_path: Path) -> None:
    start = sorted(journal().segments)[3]
    a, b = write(tmp_path / "a", journal_start=start), write(tmp_path / "b", JournalWriter())
    expected = [row for row in truth(journal())[0] if row not in truth(journal(), until=start)[0]]
    assert read([a]) == expected
    assert read([b]) == []
    (b / CHECKPOINT).write_bytes(encode_checkpoint(JournalWriter().checkpoint(commit_end=0)))
    assert read([b, a]) == expected


@pytest.mark.parametrize("what", ["another segment's bytes", "a stray file", "an odd index"])
def test_fault_of_one_replica_is_read_from_the_other(tmp_path: Path, what: str) -> None:
    """A stray file, and an unreadable index, hide nothing even in a lone replica."""
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    first, second = sorted(journal().segments)[:2]
    match what:
        case "a stray file":
            (a / segment_name(Position(8))).write_bytes((a / segment_name(first)).read_bytes())
        case "an odd index":
            (a / index_name(second)).unlink()
            (a / index_name(second)).mkdir()
        case _:
            (a / segment_name(second)).write_bytes((a / segment_name(first)).read_bytes())
            with pytest.raises(CorruptJournal, match="damaged at position"):
                read([a])
            assert read([a, b]) == read([b, a]) == truth(journal())[0]
            return
    assert read([a]) == read([a, b]) == truth(journal())[0]


def test_two_groups_are_not_taken_for_replicas(tmp_path: Path) -> None:
    other = JournalWriter()
    other.segments.clear()
    other.headers.clear()
    other.end, other.now_ms = Position(0), other.now_ms + 1
    other._begin()
    other.data(7, 0, [b"x"])
    a, b = write(tmp_path / "a"), write(tmp_path / "b", other)
    with pytest.raises(InvalidArgument, match=r"are not replicas of one journal: .* at 0 start"):
        read([a, b])


def test_a_missing_segment_is_an_error_unless_a_replica_has_it(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    (a / segment_name(Position(3 * MIN_SEGMENT))).unlink()
    with pytest.raises(CorruptJournal, match="positions 196608 to 262144 are on none"):
        read([a])
    (b / segment_name(Position(5 * MIN_SEGMENT))).unlink()
    assert read([a, b]) == truth(journal())[0]


def test_segment_removed_by_retention_meanwhile_is_reported(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    splits = plan(survey([str(a)]), Wanted())
    (a / segment_name(Position(0))).unlink()
    with pytest.raises(NotFound, match="retention removed it"):
        list(SplitReader(splits[0], ALL, Throttle(0)))


def test_topic_deleted_within_its_segment_keeps_its_name(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.topic(1, "brief", 1)
    writer.data(1, 0, [b"x"])
    writer.topic(1, "brief", 0)
    writer.roll()
    writer.topic(2, "later", 1)
    writer.data(2, 0, [b"y"])
    a = write(tmp_path / "a", writer)
    assert read([a]) == [("brief", 0, 0, b"x"), ("later", 0, 0, b"y")]


def test_read_of_new_positions_opens_only_new_segments(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    wanted = Wanted(positions=Range(since := data_batch(200).position))
    whole = plan(survey([str(a)]), wanted)
    for base in sorted(journal().segments)[: since // MIN_SEGMENT]:
        (a / segment_name(base)).write_bytes(b"")
    assert plan(survey([str(a)], since=since), wanted) == whole


def test_two_halves_at_any_position_are_the_whole(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    expected = truth(journal())[0]
    chance = random.Random(5)
    for at in [0, 1, MIN_SEGMENT, *(chance.randrange(journal().end) for _ in range(20))]:
        halves = [Wanted(positions=Range(0, at)), Wanted(positions=Range(at))]
        rows = list(itertools.chain.from_iterable(read([a], half) for half in halves))
        assert rows == expected


def test_without_a_checkpoint_nothing_is_known_to_be_committed(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    (a / CHECKPOINT).write_bytes(b"nonsense")
    with pytest.raises(CorruptJournal, match="the commit end is unknown"):
        read([a])
    assert read([a], uncommitted=True) == read([a, b]) == truth(journal())[0]


def test_unknown_topic_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    request = Request((str(a),), topics=("order",))
    with pytest.raises(InvalidArgument, match="no topic 'order' in this journal; its topics: ord"):
        request.wanted_in(survey(request.directories))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing names a journal"),
        ({"path": "/x", "topics": "a"}, "unknown option topics"),
        ({"path": "/x", "queues": "1-"}, "like 0,3-5"),
        ({"path": "/x", "queues": "5-3"}, "like 0,3-5"),
        ({"path": "/x", "queues": " , "}, "option queues is empty"),
        ({"path": "/x", "topic": ""}, "option topic is empty"),
        ({"path": "/x", "columns": ","}, "option columns is empty"),
        ({"path": "/x", "fromOffset": "7", "toOffset": "6"}, "fromOffset 7 is above toOffset 6"),
        ({"path": "/x", "fromOffset": "-1"}, "fromOffset '-1'"),
        ({"path": "/x", "fromOffset": "9", "toOffset": "3"}, "fromOffset 9 is above toOffset 3"),
        ({"path": "/x", "fromTime": "noon"}, "fromTime 'noon'"),
        ({"path": "/x", "fromTime": "20260131"}, "fromTime '20260131' may be a date"),
        ({"path": "/x", "toTime": "2026"}, "toTime '2026' may be a date"),
        ({"path": "/x", "splitBytes": "big"}, "splitBytes 'big'"),
        ({"path": "/x", "uncommitted": "yes"}, "true or false"),
        ({"paths": "[", "path": "/x"}, "paths"),
        ({"path": "/x", "provider": "fmq", "option.topic": "a"}, "CREATE TEMPORARY VIEW"),
    ],
)
def test_invalid_options_are_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        understand(options)


def test_options_are_understood() -> None:
    given = {
        "paths": '["/a", "/b"]',
        "topic": "x, y",
        "queues": "0,3-5",
        "toOffset": "7",
        "fromTime": "2026-01-01",
        "toTime": "2026-01-01T00:00:00.0005+00:00",
        "columns": "offset,value",
        "splitBytes": "1m",
    }
    request = understand(given)
    assert request.directories == ("/a", "/b")
    assert request.topics == ("x", "y")
    assert request.wanted.queues == frozenset({0, 3, 4, 5})
    assert request.wanted.offsets == Range(0, 7)
    assert request.wanted.store_ms == Range(1767225600000, 1767225600001)
    assert (request.columns, request.split_bytes) == (("offset", "value"), 1024**2)
