"""The limits of each code: the first, the last, one beyond; and no unread byte counts as read."""

from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import HEADER_LEN, BatchHeader, BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.side_journal import NAME as SIDE_JOURNAL
from fmqcore.consume.offsets.side_journal import encode_frame, encode_head
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.damage_note import SUSPECT, encode_suspect
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.resume_file import RESUME, Resume, encode_resume
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check.rows import Level
from fmqspark.tests.kit import (
    alike,
    check,
    code_rows,
    codes,
    file_of,
    flip,
    journal,
    put,
    rows,
    write,
)

BASES = sorted(journal().segments)
KEY = OffsetKey("billing", TopicId(7), 1)
SEALED = [h for h in journal().headers if MIN_SEGMENT <= h.position < 2 * MIN_SEGMENT]
INDEX = index_name(Position(MIN_SEGMENT))


# ---- J
@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("number", [0, 1, -2, -1])
@pytest.mark.parametrize("byte", [0, HEADER_LEN - 1])
def test_headers_at_a_segments_ends(a: Path, b: Path, number: int, byte: int, level: Level) -> None:
    victim = SEALED[number]
    flip(b, victim.position + byte)
    outcome = check(a, b, level=level)
    assert {f.code for f in outcome.findings} == {"J001"}
    assert (outcome.findings[0].replica, outcome.findings[0].begin) == (str(b), victim.position)
    until = 2 * MIN_SEGMENT if number == -1 else victim.end
    assert rows(outcome, "unread") == [("b", victim.position, until)]
    assert rows(outcome, "not compared") == [("a", victim.position, until)]


@pytest.mark.parametrize("number", [0, 1, -2])
def test_payloads_at_a_segments_ends(a: Path, number: int) -> None:
    victim = SEALED[number]
    flip(a, victim.position + HEADER_LEN + victim.payload_len - 1)
    outcome = check(a)
    assert code_rows(outcome)[0] == ("J002", "error", victim.position)
    assert rows(outcome, "damaged") == [("a", victim.position, victim.end)]


def test_the_last_batch_of_all(a: Path) -> None:
    last = journal().headers[-1]
    flip(a, last.position + HEADER_LEN + last.payload_len - 1)
    assert code_rows(check(a)) == [("J002", "error", last.position)]


@pytest.mark.parametrize("level", Level)
def test_zeros_in_the_middle_hide_nothing_behind_them(a: Path, b: Path, level: Level) -> None:
    victim = SEALED[5]
    put(b, victim.position, bytes(victim.total_len))
    flip(b, SEALED[9].position + 64)
    outcome = check(a, b, level=level)
    assert codes(outcome) == [("J001", "b", v.position) for v in (victim, SEALED[9])]
    unread = [("b", v.position, v.end) for v in (victim, SEALED[9])]
    assert rows(outcome, "unread") == unread


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("number", [1, -1])
def test_zeros_to_the_end_are_not_an_end(a: Path, b: Path, number: int, level: Level) -> None:
    """Where all is known to be stored; and the range that they hide is not called empty."""
    base = BASES[number]
    first = [h for h in journal().headers if h.position >= base][1]
    put(b, first.position, bytes(base + MIN_SEGMENT - first.position))
    outcome = check(a, b, level=level)
    assert codes(outcome) == [("J001", "b", first.position)]
    assert rows(outcome, "unread") == [("b", first.position, base + MIN_SEGMENT)]


@pytest.mark.parametrize("level", Level)
def test_a_torn_tail_is_void_and_a_stored_one_is_damage(tmp_path: Path, level: Level) -> None:
    last = journal().headers[-1]
    a = write(tmp_path / "a", durable_end=last.position, commit_end=last.position)
    flip(a, last.position + 64)
    torn = check(a, level=level)
    assert code_rows(torn) == [("J001", "warning", last.position)]
    assert rows(torn, "void") == [("a", last.position, BASES[-1] + MIN_SEGMENT)]
    write(a, durable_end=last.position + 8)
    flip(a, last.position + 64)
    stored = check(a, level=level)
    assert code_rows(stored) == [("J001", "error", last.position)]
    assert rows(stored, "unread") == [("a", last.position, BASES[-1] + MIN_SEGMENT)]


@pytest.mark.parametrize("level", Level)
def test_bytes_behind_a_torn_write_are_void_too(tmp_path: Path, level: Level) -> None:
    writer = alike(9)
    torn = writer.headers[-2]
    a = write(tmp_path / "a", writer, durable_end=torn.position, commit_end=torn.position)
    flip(a, torn.position + 64)
    outcome = check(a, level=level)
    assert code_rows(outcome) == [("J001", "warning", torn.position)]
    assert rows(outcome, "void") == [("a", torn.position, MIN_SEGMENT)]


@pytest.mark.parametrize(("clean", "severity"), [(False, "warning"), (True, "error")])
@pytest.mark.parametrize("at", [0, 200, -1])
def test_bytes_behind_the_end(tmp_path: Path, clean: bool, severity: str, at: int) -> None:
    a = write(tmp_path / "a", clean=clean)
    place = journal().end + HEADER_LEN + at if at >= 0 else BASES[-1] + MIN_SEGMENT - 1
    put(a, place, b"\1")
    for level in Level:
        assert code_rows(check(a, level=level)) == [("J001", severity, journal().end)]


@pytest.mark.parametrize("at", [HEADER_LEN, -1])
def test_bytes_behind_an_eof_are_the_deep_levels(a: Path, at: int) -> None:
    eof = next(h for h in journal().headers if h.type == BatchType.EOF and h.total_len > 200)
    place = eof.position + at if at > 0 else eof.end - 1
    put(a, place, b"\1")
    assert code_rows(check(a)) == [("J005", "warning", place)]
    assert check(a, level=Level.STANDARD).exit_code == 0


def test_files_that_are_too_long(a: Path) -> None:
    for base in (BASES[2], BASES[-1]):
        path = a / segment_name(base)
        path.write_bytes(path.read_bytes() + bytes(HEADER_LEN))
    places = [("J005", "error", base + MIN_SEGMENT) for base in (BASES[2], BASES[-1])]
    assert code_rows(check(a)) == places


@pytest.mark.parametrize(
    ("gone", "holes"),
    [
        ([0], [(0, 1)]),
        ([3, 4], [(3, 4), (4, 5)]),
        ([2, 6], [(2, 3), (6, 7)]),
        ([len(BASES) - 1], [(len(BASES) - 1, None)]),
    ],
)
def test_every_missing_file_is_reported_and_covered(
    a: Path, gone: list[int], holes: list[tuple[int, int | None]]
) -> None:
    for number in gone:
        (a / segment_name(BASES[number])).unlink()  # its index is there: not an empty file
    outcome = check(a)
    assert code_rows(outcome) == [("J005", "error", BASES[number]) for number in gone]
    assert rows(outcome, "unread") == [
        ("a", BASES[one], journal().end if two is None else BASES[two]) for one, two in holes
    ]


def test_missing_part_of_a_short_file_is_unread(a: Path) -> None:
    """The file ends at the end of a batch, so the whole file is good."""
    second = [h for h in journal().headers if h.position >= BASES[-1]][1]
    path, at = file_of(a, second.position)
    path.write_bytes(path.read_bytes()[:at])
    outcome = check(a)
    assert outcome.exit_code == 2
    assert rows(outcome, "unread") == [("a", second.position, journal().end)]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("back", [1, 8, 500])
@pytest.mark.parametrize("number", [-1, -2])
def test_file_ending_within_a_batch_is_damage_at_every_level(
    a: Path, number: int, back: int, level: Level
) -> None:
    victim = SEALED[-2] if number == -2 else journal().headers[-1]
    path, at = file_of(a, victim.position)
    size = at + HEADER_LEN + victim.payload_len - back
    path.write_bytes(path.read_bytes()[:size])
    outcome = check(a, level=level)
    assert ("J001", "error", victim.position) in code_rows(outcome)
    assert outcome.exit_code == 2
    end = victim.position - at + size
    assert ("a", victim.position, end) in rows(outcome, "unread")
    assert ("a", victim.position - at, victim.position) in rows(outcome, "checked")
    reported = [c for c in outcome.coverage if c.file == path.name]
    assert sum(c.bytes for c in reported if c.begin < end) == size


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("back", [1, 100])
def test_file_ending_behind_its_eof_is_checked_to_its_end(a: Path, back: int, level: Level) -> None:
    path, at = file_of(a, SEALED[-1].position)
    size = MIN_SEGMENT - back
    assert at + HEADER_LEN < size
    path.write_bytes(path.read_bytes()[:size])
    outcome = check(a, level=level)
    assert {f.code for f in outcome.findings} == {"J005"}
    assert MIN_SEGMENT + size in {f.begin for f in outcome.findings}
    covered = [(c.begin, c.end, c.state) for c in outcome.coverage if c.begin // MIN_SEGMENT == 1]
    assert sorted(covered) == [
        (MIN_SEGMENT, MIN_SEGMENT + size, "checked"),
        (MIN_SEGMENT + size, 2 * MIN_SEGMENT, "unread"),
    ]


def test_a_newest_file_of_zeros_that_the_checkpoint_knows(a: Path) -> None:
    (a / segment_name(BASES[-1])).write_bytes(bytes(MIN_SEGMENT))
    outcome = check(a)
    assert code_rows(outcome) == [("J001", "error", BASES[-1])]
    assert rows(outcome, "unread") == [("a", BASES[-1], BASES[-1] + MIN_SEGMENT)]


@pytest.mark.parametrize("base_offset", [0, 8, 10])
def test_j004_offsets_given_twice_or_left_out(tmp_path: Path, base_offset: int) -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    for _ in range(9):
        writer.data(7, 0, [b"x"])
    last = writer.data(7, 0, [b"x"], base_offset=base_offset)
    assert code_rows(check(write(tmp_path / "a", writer)))[0] == ("J004", "error", last.position)


def test_j003_an_epoch_that_goes_back(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.open_epoch(5)
    writer.data(7, 0, [b"x"])
    writer.epoch = Epoch(4)
    last = writer.data(7, 0, [b"x"])
    for level in Level:
        outcome = check(write(tmp_path / "a", writer), level=level)
        assert code_rows(outcome) == [("J003", "error", last.position)]


# ---- I
DATA = [number for number, header in enumerate(SEALED) if header.type == BatchType.DATA]


def index_of(headers: list[BatchHeader]) -> bytes:
    index = SegmentIndex(Position(MIN_SEGMENT))
    for header in headers:
        index.add(header)
    return index.encode()


@pytest.mark.parametrize("number", [DATA[0], DATA[1], DATA[-1]])
def test_index_without_one_batch(a: Path, number: int) -> None:
    left = [header for i, header in enumerate(SEALED) if i != number]
    (a / INDEX).write_bytes(index_of(left))
    for level in Level:
        outcome = check(a, level=level)
        assert code_rows(outcome) == [("I003", "error", SEALED[number].position)]


def test_index_that_ends_early_or_late(a: Path) -> None:
    (a / INDEX).write_bytes(index_of(SEALED[:-1]))
    assert code_rows(check(a)) == [("I003", "error", SEALED[-1].position)]
    more = SEALED[DATA[-1]]._replace(position=SEALED[-1].end)
    (a / INDEX).write_bytes(index_of([*SEALED, more]))
    assert code_rows(check(a)) == [("I004", "error", SEALED[-1].end)]


def test_an_index_of_another_segment(a: Path) -> None:
    (a / INDEX).write_bytes((a / index_name(BASES[2])).read_bytes())
    assert [f.code for f in check(a).findings] == ["I005"]


# ---- O
def with_progress(*entries: OffsetEntry) -> JournalWriter:
    """Each queue of topic 7 holds two messages."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 4)
    for n in range(8):
        writer.data(7, n % 4, [b"value"])
    for entry in entries:
        writer.offsets({KEY: entry})
    return writer


def span(first: int, end: int) -> OffsetEntry:
    return OffsetEntry(5, Offset(0), ((Offset(first), Offset(end)),))


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (OffsetEntry(5, Offset(2)), []),
        (OffsetEntry(5, Offset(3)), ["O001"]),
        (span(1, 2), []),
        (span(1, 3), ["O001"]),
    ],
)
def test_progress_up_to_its_queues_end_and_beyond(
    tmp_path: Path, entry: OffsetEntry, found: list[str]
) -> None:
    assert [f.code for f in check(write(tmp_path / "a", with_progress(entry))).findings] == found
    side = write(tmp_path / "b", with_progress())
    frame = encode_frame(encode_offsets({KEY: entry}))
    (side / SIDE_JOURNAL).write_bytes(encode_head(Epoch(1)) + frame)
    assert [f.code for f in check(side).findings] == ["O004" for _ in found]


def test_several_findings_at_one_place_are_all_reported(tmp_path: Path) -> None:
    writer = with_progress()
    keys = [KEY._replace(group=group) for group in ("billing", "shipping")]
    writer.offsets({key: OffsetEntry(5, Offset(3)) for key in keys})
    assert [f.code for f in check(write(tmp_path / "a", writer)).findings] == ["O001", "O001"]


# ---- M
@pytest.mark.parametrize("level", Level)
def test_m001_a_checkpoint_of_another_end(tmp_path: Path, level: Level) -> None:
    """After an orderly stop it names the last batch of the journal."""
    crc = journal().headers[-1].header_crc
    assert codes(check(write(tmp_path / "a", clean=True), level=level)) == []
    a = write(tmp_path / "a", clean=True, last_header_crc=crc ^ 1)
    assert code_rows(check(a, level=level)) == [("M001", "error", journal().end)]


def test_m002_a_segment_from_before_the_journals_beginning(a: Path, tmp_path: Path) -> None:
    late: dict[str, Any] = {"journal_start": BASES[2], "bases": BASES[2:]}
    (a / CHECKPOINT).write_bytes(write(tmp_path / "x", **late).joinpath(CHECKPOINT).read_bytes())
    names = [n for base in BASES[:2] for n in (segment_name(base), index_name(base))]
    assert sorted(f.file for f in check(a).findings if f.code == "M002") == sorted(names)


def resume() -> Resume:
    """Return what a broker would write at the journal's end."""
    base, last, index = journal().last_base, journal().headers[-1], SegmentIndex(BASES[-1])
    for header in journal().headers:
        if header.position >= base:
            index.add(header)
    return Resume(
        base,
        Position(base + MIN_SEGMENT),
        journal().end,
        last.store_ms,
        crc32c(bytes(journal().segments[base][: journal().end - base])),
        last.header_crc,
        journal().epoch,
        journal().state.to_snap(0, 1 << 40),
        index.encode(),
    )


@pytest.mark.parametrize("level", Level)
def test_m001_resume_file(a: Path, level: Level) -> None:
    for raw, severities in (
        (encode_resume(resume()), []),
        (b"nonsense", ["warning"]),
        (
            encode_resume(resume()._replace(position=Position(journal().end + MIN_SEGMENT))),
            ["warning"],
        ),
        (encode_resume(resume()._replace(raw_crc=1)), ["warning"] if level is Level.DEEP else []),
        (encode_resume(resume()._replace(last_ms=1)), ["error"] if level is Level.DEEP else []),
        # A former master whose clock ran ahead, truncated since, continues from that time.
        (encode_resume(resume()._replace(last_ms=resume().last_ms + 60_000)), []),
    ):
        (a / RESUME).write_bytes(raw)
        assert [(f.code, f.file, f.severity) for f in check(a, level=level).findings] == [
            ("M001", RESUME, severity) for severity in severities
        ]
    last = journal().headers[-1]
    flip(a, last.position + HEADER_LEN)  # the resume file cannot fit then, and is not reported too
    (a / RESUME).write_bytes(encode_resume(resume()))
    assert {f.code for f in check(a, level=level).findings} <= {"J002"}


def test_m001_damage_note(a: Path) -> None:
    (a / SUSPECT).write_bytes(encode_suspect(Position(MIN_SEGMENT)))
    assert (
        check(a, level=Level.STANDARD).exit_code == 0
    )  # this level has not read the whole journal
    assert code_rows(check(a)) == [("M001", "warning", None)]
    flip(a, SEALED[5].position + HEADER_LEN)
    assert code_rows(check(a)) == [("J002", "error", SEALED[5].position)]
    (a / SUSPECT).write_bytes(b"nonsense")
    assert code_rows(check(a)) == [("M001", "warning", None), ("J002", "error", SEALED[5].position)]
    (a / SUSPECT).unlink()
    (a / SUSPECT).mkdir()
    assert ("suspect", "unread") in [(c.file, c.state) for c in check(a).coverage]
