"""Impossible batches with right checksums: reported, and the batches behind them are read."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from fmqcore.batch.columns import encode
from fmqcore.batch.header import Attrs, BatchHeader, BatchType
from fmqcore.ids import TopicId
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqspark.check.rows import Level
from fmqspark.engines.engines import open_engine
from fmqspark.tests.kit import alike, check, codes, flip, write


def test_misplaced_and_damaged_batch_hides_no_later_finding(
    tmp_path: Path,
) -> None:
    writer = sample(batches=20)
    bad = writer.data(7, 1, [b"value"], base_offset=99)
    behind = writer.data(7, 1, [b"value"] * 9)
    writer.data(7, 1, [b"value"], base_offset=0)
    a = write(tmp_path / "a", writer)
    flip(a, bad.position + 100)
    outcome = check(a)
    assert codes(outcome) == [
        ("J002", "a", bad.position),
        ("J004", "a", bad.position),
        ("J004", "a", behind.end),
    ]
    assert outcome.bytes_by_state()["damaged"] == bad.total_len


@pytest.mark.timeout(20)
@pytest.mark.parametrize("level", Level)
def test_j004_a_batch_without_records(tmp_path: Path, level: Level) -> None:
    writer = sample(batches=20)
    bad = writer.data(7, 1, [b"value"], record_count=0)
    writer.data(7, 2, [b"value"])
    outcome = check(write(tmp_path / "a", writer), level=level)
    [found] = outcome.findings
    assert (found.code, found.begin, found.end) == ("J004", bad.position, bad.end)
    assert outcome.bytes_by_state()["unread"] == bad.total_len


# ---- a payload that is no columns, under the CRC that its producer computed
def lengths_that_do_not_add_up() -> tuple[int, int, bytes]:
    return 0, 2, pack("<3I", 0, 4, 99) + b"value001" + bytes(4)


def offsets_that_fall() -> tuple[int, int, bytes]:
    return 0, 3, pack("<4I", 0, 6, 2, 8) + b"value001"


def offsets_that_fall_among_many() -> tuple[int, int, bytes]:
    attrs, payload = encode([b"value"] * 500, keys=[b"k"] * 500)
    return attrs, 500, payload[:1000] + pack("<I", 5) + payload[1004:]


def another_count() -> tuple[int, int, bytes]:
    attrs, payload = encode([b"value"] * 4)
    return attrs, 5, payload


def a_column_that_is_not_there() -> tuple[int, int, bytes]:
    attrs, payload = encode([b"value"] * 4)
    return attrs | Attrs.TAG, 4, payload


def a_column_too_many() -> tuple[int, int, bytes]:
    attrs, payload = encode([b"value"] * 4, born_ms=[1] * 4)
    return attrs & ~Attrs.BORN, 4, payload


def words() -> tuple[int, int, bytes]:
    return 0, 1, b"these are no columns"


NONSENSE = (
    *(lengths_that_do_not_add_up, offsets_that_fall, offsets_that_fall_among_many),
    *(another_count, a_column_that_is_not_there, a_column_too_many, words),
)


def send(writer: JournalWriter, made: tuple[int, int, bytes]) -> BatchHeader:
    attrs, count, payload = made
    end = writer.state.next_offsets[TopicId(7), 1]
    fields = {"attrs": attrs, "record_count": count, "base_offset": end}
    return writer.append(BatchType.DATA, payload, topic_id=7, queue_id=1, **fields)


@pytest.mark.parametrize("make", NONSENSE)
def test_j002_a_payload_that_does_not_decode_under_a_right_crc(
    tmp_path: Path, make: Callable[[], tuple[int, int, bytes]]
) -> None:
    """Only the deep level finds it; the batch behind it is read, and follows from it."""
    writer = alike(40)
    bad = send(writer, make())
    for n in range(80):
        writer.data(7, n % 4, [b"x" * 900])
    a, b = write(tmp_path / "a", writer), write(tmp_path / "b", alike(40))
    outcome = check(a, b)
    [found] = [each for each in outcome.findings if each.code != "R003"]
    assert (found.code, found.severity, Path(found.replica).name) == ("J002", "error", "a")
    assert (found.begin, found.end) == (bad.position, bad.end)
    assert "under a right CRC" in found.sentence
    assert "fmq group seek" in found.remedy
    assert outcome.bytes_by_state()["damaged"] == bad.total_len
    assert outcome.exit_code == 2
    for level in (Level.QUICK, Level.STANDARD):
        assert codes(check(a, level=level)) == []


def test_j002_of_the_last_batch_which_no_checkpoint_knows_yet(tmp_path: Path) -> None:
    """No start truncates it, as it would a torn one: its CRC is right."""
    writer = alike(40)
    bad = send(writer, words())
    outcome = check(write(tmp_path / "a", writer, durable_end=bad.position))
    assert codes(outcome) == [("J002", "a", bad.position)]
    assert (outcome.findings[0].severity, outcome.findings[0].end) == ("error", bad.end)


@pytest.mark.parametrize(
    "engine", ["local", "pool", pytest.param("spark", marks=pytest.mark.spark)]
)
def test_j002_of_columns_is_the_same_on_every_engine(tmp_path: Path, engine: str) -> None:
    """Both replicas hold it, as it was sent; each is reported."""
    writer = alike(40)
    bad = send(writer, offsets_that_fall_among_many())
    for n in range(120):
        writer.data(7, n % 4, [b"x" * 900])
    folders = [write(tmp_path / name, writer) for name in ("a", "b")]
    with open_engine(engine, 2) as opened:
        outcome = check(*folders, engine=opened)
    assert codes(outcome) == [("J002", "a", bad.position), ("J002", "b", bad.position)]
    assert {found.end for found in outcome.findings} == {bad.end}
