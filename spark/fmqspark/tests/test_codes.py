"""Each code: planted damage is found exactly, at that range, on that replica."""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from fmqcore.batch.control import encode_offsets
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.side_journal import NAME as SIDE_JOURNAL
from fmqcore.consume.offsets.side_journal import encode_frame, encode_head
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqspark.check.replicas import read_block
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.files import LOCK
from fmqspark.tests.kit import Misfit, check, codes, data_batch, flip, journal, write

T = TypeVar("T")
R = TypeVar("R")
KEY = OffsetKey("billing", TopicId(7), 1)
INDEX = index_name(Position(MIN_SEGMENT))


@pytest.mark.parametrize("level", Level)
def test_nothing_planted_nothing_found(a: Path, b: Path, level: Level) -> None:
    outcome = check(a, b, level=level)
    assert codes(outcome) == []
    assert outcome.exit_code == 0
    by_state = outcome.bytes_by_state()
    assert by_state.pop("checked") == 2 * journal().end
    assert by_state.pop("empty") == 2 * (MIN_SEGMENT * len(journal().segments) - journal().end)
    assert not any(by_state.values())


# ---- J
def j001(directory: Path) -> tuple[int, int]:
    victim = data_batch(50)
    flip(directory, victim.position + 64)
    return victim.position, victim.end


def j002(directory: Path) -> tuple[int, int]:
    victim = data_batch(60)
    flip(directory, victim.position + 100)
    return victim.position, victim.end


@pytest.mark.parametrize(("plant", "code"), [(j001, "J001"), (j002, "J002")])
def test_a_flipped_bit_is_one_finding_on_one_replica(
    a: Path, b: Path, plant: Callable[[Path], tuple[int, int]], code: str
) -> None:
    begin, end = plant(b)
    outcome = check(a, b)
    assert codes(outcome) == [(code, "b", begin)]
    assert outcome.findings[0].end == end
    assert outcome.exit_code == 2
    state = "unread" if code == "J001" else "damaged"
    assert (begin, end, state) in [(c.begin, c.end, c.state) for c in outcome.coverage]


def test_payloads_are_the_deep_levels_alone(a: Path) -> None:
    j002(a)
    assert check(a, level=Level.QUICK).exit_code == 0
    assert check(a, level=Level.STANDARD).exit_code == 0


def test_a_control_payload_is_the_standard_levels(a: Path) -> None:
    victim = next(h for h in journal().headers if h.type == BatchType.OFFSETS)
    flip(a, victim.position + 97)
    assert codes(check(a, level=Level.QUICK)) == []
    assert codes(check(a, level=Level.STANDARD)) == [("J002", "a", victim.position)]


def test_j003_a_chain_that_breaks(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(150):
        if n == 30:
            place, writer._prev_crc = writer.end, writer._prev_crc ^ 1
        writer.data(7, n % 4, [b"x" * 900])
    for level in Level:
        outcome = check(write(tmp_path / "a", writer), level=level)
        assert codes(outcome) == [("J003", "a", place)]


def test_j003_is_reported_where_two_segments_meet(tmp_path: Path) -> None:
    writer = Misfit()
    writer.open_epoch(1)
    for n in range(250):
        writer.data(7, n % 4, [b"x" * 900])
    place = sorted(writer.segments)[2]
    for level in Level:
        assert codes(check(write(tmp_path / "a", writer), level=level)) == [("J003", "a", place)]


def test_j004_offsets_with_a_gap(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(40):
        skip = {"base_offset": 99} if n == 39 else {}
        last = writer.data(7, 0, [b"x" * 900], **skip)
    assert codes(check(write(tmp_path / "a", writer))) == [("J004", "a", last.position)]


def test_j005_a_segment_that_is_missing(a: Path, b: Path) -> None:
    (b / segment_name(Position(3 * MIN_SEGMENT))).unlink()
    (b / index_name(Position(3 * MIN_SEGMENT))).unlink()
    outcome = check(a, b)
    assert codes(outcome) == [("J005", "b", 3 * MIN_SEGMENT)]
    unread = [(c.replica, c.begin, c.end) for c in outcome.coverage if c.state == "unread"]
    assert unread == [(str(b), 3 * MIN_SEGMENT, 4 * MIN_SEGMENT)]


# ---- I
def i001(directory: Path) -> None:
    (directory / INDEX).unlink()


def i002(directory: Path) -> None:
    data = bytearray((directory / INDEX).read_bytes())
    data[60] ^= 1
    (directory / INDEX).write_bytes(data)


def _index_of(headers: list[object]) -> bytes:
    index = SegmentIndex(Position(MIN_SEGMENT))
    for header in headers:
        index.add(header)  # type: ignore[arg-type]
    return index.encode()


def _headers() -> list[object]:
    return [h for h in journal().headers if MIN_SEGMENT <= h.position < 2 * MIN_SEGMENT]


def i003(directory: Path) -> None:
    left = [h for i, h in enumerate(_headers()) if i != 5]
    (directory / INDEX).write_bytes(_index_of(left))


def i004(directory: Path) -> None:
    headers = _headers()
    more = headers[4]._replace(position=headers[4].position + 8)  # type: ignore[attr-defined]
    (directory / INDEX).write_bytes(_index_of([*headers[:5], more, *headers[5:]]))


def i005(directory: Path) -> None:
    headers = _headers()
    headers[4] = headers[4]._replace(store_ms=1)  # type: ignore[attr-defined]
    (directory / INDEX).write_bytes(_index_of(headers))


@pytest.mark.parametrize(
    ("plant", "code", "exit_code"),
    [(i001, "I001", 1), (i002, "I002", 1), (i003, "I003", 2), (i004, "I004", 2), (i005, "I005", 2)],
)
def test_an_index_that_is_not_the_journals(
    a: Path, b: Path, plant: Callable[[Path], None], code: str, exit_code: int
) -> None:
    plant(b)
    for level in Level:
        outcome = check(a, b, level=level)
        assert [(f.code, Path(f.replica).name, f.file) for f in outcome.findings] == [
            (code, "b", INDEX)
        ]
        assert outcome.exit_code == exit_code


# ---- R
def parted(epoch: int = 1, *, other: bool = False, batches: int = 220) -> JournalWriter:
    """Two journals that are equal up to a point, then perhaps have batches of their own."""
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(batches):
        if n == 180 and epoch > 1:
            writer.open_epoch(epoch)
        value = b"other" if n >= 190 and other else b"value"
        writer.data(7, n % 4, [value + b"x" * 900])
    return writer


def test_r001_other_content_in_the_same_place(tmp_path: Path) -> None:
    one, two = parted(), parted(other=True)
    a, b = write(tmp_path / "a", one), write(tmp_path / "b", two)
    first = next(x for x, y in zip(one.headers, two.headers, strict=True) if x != y)
    for level in Level:
        outcome = check(a, b, level=level)
        assert codes(outcome) == [("R001", "b", first.position)]
        assert outcome.findings[0].end == two.end
        assert outcome.exit_code == 2


def test_r001_the_majority_is_right(tmp_path: Path) -> None:
    writers = {"a": parted(other=True), "b": parted(), "c": parted()}
    paths = [write(tmp_path / name, writer) for name, writer in writers.items()]
    assert {code[:2] for code in codes(check(*paths))} == {("R001", "a")}


def test_r002_histories_that_part(tmp_path: Path) -> None:
    one, two = parted(), parted(epoch=3)
    fork = next(x for x, y in zip(one.headers, two.headers, strict=False) if x != y)
    a = write(tmp_path / "a", one, commit_end=one.end)
    b = write(tmp_path / "b", two, commit_end=fork.position)
    outcome = check(a, b)
    assert ("R002", "b", fork.position) in codes(outcome)
    assert outcome.exit_code == 2
    above = check(write(tmp_path / "a", one, commit_end=fork.position), b)
    assert [(f.code, f.severity) for f in above.findings] == [("R002", "warning")]
    assert above.exit_code == 1


def test_r003_a_replica_that_is_behind(tmp_path: Path) -> None:
    one, two = parted(), parted(batches=150)
    outcome = check(write(tmp_path / "a", one), write(tmp_path / "b", two))
    assert codes(outcome) == [("R003", "b", two.end)]
    assert outcome.findings[0].end == one.end
    assert outcome.exit_code == 1
    alone = [(Path(c.replica).name, c.begin, c.end) for c in outcome.coverage if "not" in c.state]
    assert alone == [("a", two.end, one.end)]


def test_damaged_replica_is_not_compared(a: Path, b: Path) -> None:
    victim = data_batch(50)
    flip(b, victim.position + 64)
    outcome = check(a, b, level=Level.QUICK)
    assert codes(outcome) == [("J001", "b", victim.position)]
    alone = [(Path(c.replica).name, c.begin, c.end) for c in outcome.coverage if "not" in c.state]
    assert alone == [("a", victim.position, victim.end)]


def test_only_what_differs_is_read_again(tmp_path: Path) -> None:
    one, two = parted(), parted(other=True)
    a, b = write(tmp_path / "a", one), write(tmp_path / "b", two)
    engine = Counting()
    check(a, b, engine=engine)
    assert 0 < engine.drilled <= 4
    engine = Counting()
    check(a, write(tmp_path / "c", one), engine=engine)
    assert engine.drilled == 0


class Counting(LocalEngine):
    def __init__(self) -> None:
        self.drilled = 0

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        self.drilled += len(tasks) if work is read_block else 0
        return super().run(work, tasks)


def test_r004_nothing_in_common(tmp_path: Path, a: Path) -> None:
    far = sample(batches=50, base=100 * MIN_SEGMENT)
    outcome = check(a, write(tmp_path / "b", far, commit_end=0))
    assert ("R004", "b", far.headers[0].position) in codes(outcome)
    not_compared = sum(c.bytes for c in outcome.coverage if c.state == "not compared")
    assert not_compared >= journal().end


# ---- O
def with_progress(entries: dict[OffsetKey, OffsetEntry], *, twice: bool = False) -> JournalWriter:
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 4)
    for n in range(8):
        writer.data(7, n % 4, [b"value"])
    writer.offsets(entries)
    if twice:
        writer.offsets({k: e._replace(floor=Offset(e.floor + 1)) for k, e in entries.items()})
    return writer


@pytest.mark.parametrize(
    ("key", "floor", "twice", "code", "exit_code"),
    [
        (KEY, 3, False, "O001", 2),
        (KEY._replace(topic_id=TopicId(8)), 1, False, "O002", 1),
        (KEY._replace(queue_id=4), 0, False, "O002", 1),
        (KEY, 1, True, "O003", 1),
    ],
)
def test_progress_that_cannot_be(
    tmp_path: Path, key: OffsetKey, floor: int, twice: bool, code: str, exit_code: int
) -> None:
    writer = with_progress({key: OffsetEntry(5, Offset(floor))}, twice=twice)
    outcome = check(write(tmp_path / "a", writer), level=Level.STANDARD)
    assert [f.code for f in outcome.findings] == [code]
    assert outcome.exit_code == exit_code


def test_progress_as_it_should_be(tmp_path: Path) -> None:
    writer = with_progress({KEY: OffsetEntry(5, Offset(2))})
    directory = write(tmp_path / "a", writer)
    frame = encode_frame(encode_offsets({KEY: OffsetEntry(6, Offset(2))}))
    (directory / SIDE_JOURNAL).write_bytes(encode_head(Epoch(1)) + frame)
    assert codes(check(directory)) == []


def test_group_on_a_topic_without_messages_is_no_finding(tmp_path: Path) -> None:
    new = {KEY._replace(topic_id=TopicId(8)): OffsetEntry(5, Offset(0))}
    assert codes(check(write(tmp_path / "a", with_progress(new)))) == []


@pytest.mark.parametrize(
    ("raw", "severity"),
    [
        (b"nonsense", "warning"),
        (encode_head(Epoch(1)) + b"torn", "warning"),
        (
            encode_head(Epoch(1)) + encode_frame(encode_offsets({KEY: OffsetEntry(6, Offset(9))})),
            "error",
        ),
    ],
)
def test_o004_the_side_journal(tmp_path: Path, raw: bytes, severity: str) -> None:
    directory = write(tmp_path / "a", with_progress({}))
    (directory / SIDE_JOURNAL).write_bytes(raw)
    found = check(directory).findings
    assert [(f.code, f.severity) for f in found] == [("O004", severity)]


# ---- M
def test_m001_the_checkpoint(a: Path, b: Path) -> None:
    (b / CHECKPOINT).write_bytes(b"nonsense")
    outcome = check(a, b)
    assert {c[:2] for c in codes(outcome)} == {("M001", "b")}
    assert outcome.exit_code == 1


def test_m001_a_snap_that_is_not_what_came_before(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 4)
    for n in range(150):
        if len(writer.segments) == 2:
            writer.state.topics[TopicId(9)] = ("ghost", 1)
        writer.data(7, n % 4, [b"x" * 900])
    base = sorted(writer.segments)[2]
    assert codes(check(write(tmp_path / "a", writer)))[0] == ("M001", "a", base)


def test_m002_a_file_that_belongs_to_nothing(a: Path, b: Path) -> None:
    shutil.copy(b / INDEX, b / index_name(Position(77 * MIN_SEGMENT)))
    outcome = check(a, b)
    assert [(f.code, Path(f.replica).name) for f in outcome.findings] == [("M002", "b")]
    assert outcome.exit_code == 1


@pytest.mark.parametrize("stays", [True, False])
def test_m002_beside_a_broker_at_work(
    b: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    """Its retention first records what will go, and then removes it."""
    left = b / index_name(Position(77 * MIN_SEGMENT))
    shutil.copy(b / INDEX, left)
    monkeypatch.setattr(time, "sleep", lambda _: None if stays else left.unlink())
    with (b / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = check(b)
    assert [f.code for f in outcome.findings] == ["M002"] * stays
