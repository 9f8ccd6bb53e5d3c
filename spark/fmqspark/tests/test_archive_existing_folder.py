"""Archiving into a folder that already holds an archive: what is found, and what is refused."""

import json
from pathlib import Path

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import InvalidArgument
from fmqspark.archive import ledger
from fmqspark.tests.kit import write
from fmqspark.tests.test_archive import archive, everything, other_journal, small, truth

pytestmark = pytest.mark.spark


def test_a_topic_that_is_named_twice_is_one(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    bills = [row for row in truth(small()) if row[0] == "bills"]
    archive(out, a, topics=("bills", "bills"))
    for topics in (("bills",), ("bills", "bills", "bills")):
        assert archive(out, a, topics=topics).exit_code == 0
        assert everything(out) == bills


def test_topic_listed_twice_by_an_earlier_version_is_one(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    archive(out, a, topics=("orders", "bills"))
    path = out / ledger.FOLDER / "journal.ledger"
    first, rest = path.read_text().split("\n", 1)
    row = json.loads(first) | {"topics": ["bills", "bills", "orders"]}
    path.write_text(f"{json.dumps(row)}\n{rest}")
    assert archive(out, a, topics=("bills", "orders")).exit_code == 0
    assert everything(out) == truth(small())


# ---- the ledger is lost, or its end
def damaged(path: Path, how: str) -> None:
    raw = path.read_bytes()
    lines = raw.splitlines(keepends=True)
    kinds = {
        "gone": None,
        "empty": b"",
        "zeros": b"\0" * len(raw),
        "cut in its plan": raw[: len(lines[0]) + 20],
        "cut behind its first line": lines[0],
        "of a backup": b"".join(lines[: lines.index(next(x for x in lines[2:] if b"plan" in x))]),
    }
    kept = kinds[how]
    path.unlink()
    if kept is not None:
        path.write_bytes(kept)


@pytest.mark.parametrize(
    "how",
    ["gone", "empty", "zeros", "cut in its plan", "cut behind its first line", "of a backup"],
)
def test_files_missing_in_the_ledger_are_not_archived_again(tmp_path: Path, how: str) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    ends = [h.end for h in small().headers if h.type == BatchType.DATA]
    for end in (ends[2], ends[3], ends[-1]):
        archive(out, write(a, small(), commit_end=end))
    path = out / ledger.FOLDER / "journal.ledger"
    whole = path.read_bytes()
    damaged(path, how)
    for _ in range(2):
        with pytest.raises(InvalidArgument) as raised:
            archive(out, a)
        assert f"{path}" in str(raised.value)
        assert "journal-00000000000000" in str(raised.value), "which file, for one"
        assert "another folder" in str(raised.value)
        assert everything(out) == truth(small())
    path.write_bytes(whole)
    assert archive(out, a).rows == 0
    assert everything(out) == truth(small())


def test_archive_can_be_started_again(tmp_path: Path) -> None:
    """In another folder; or in this one once its files are gone. Other groups' do not matter."""
    a, out = tmp_path / "a", tmp_path / "out"
    archive(out, write(a, small()), group="g")
    archive(out, other_journal(tmp_path / "b"), group="g-1")
    (out / ledger.FOLDER / "g.ledger").unlink()
    with pytest.raises(InvalidArgument, match=r"holds 10 file\(s\) of 'g' "):
        archive(out, a, group="g")
    assert archive(out, tmp_path / "b", group="g-1").rows == 0
    assert archive(tmp_path / "other", a, group="g").rows == 72
    for file in out.glob("topic=*/date=*/g-0*.parquet"):
        file.unlink()
    assert archive(out, a, group="g").rows == 72
    assert everything(out) == sorted(truth(small()) * 2)


@pytest.mark.parametrize(
    "line",
    [
        b"what?",
        b"\xff\xfe",
        b"[1]",
        b"5",
        b'{"planned": [["a", "b"]], "marks": []}',
        b'{"planned": [[0, true]], "marks": []}',
        b'{"done": [0, 65536], "files": [[1, 2, 3, 4, 5]]}',
        b'{"done": [0, 65536], "files": [["p", "t", "d", 4, 5]], "crc": ["x"]}',
        b'{"done": [0, 65536], "files": [["p", "t", "d", 4, 5]], "crc": []}',
        b'{"done": [0, 65536], "files": [["p", "t", "d", 4, 5, 6]]}',
        b'{"lost": [5, 5]}',
        b'{"archive": 1, "topics": [5]}',
        b'{"archive": 2, "topics": null}',
        b"[" * 100_000,
    ],
)
def test_undecodable_ledger_is_reported(tmp_path: Path, line: bytes) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    archive(out, a)
    path = out / ledger.FOLDER / "journal.ledger"
    number = path.read_bytes().count(b"\n") + 1
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InvalidArgument) as raised:
        archive(out, a)
    assert str(raised.value).startswith(f"{path} line {number} cannot be decoded (")
    assert str(raised.value).endswith("another folder")


def test_ledger_without_its_first_line_is_refused(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    archive(out, a, topics=("bills",))
    path = out / ledger.FOLDER / "journal.ledger"
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(InvalidArgument, match="line 1 cannot be decoded"):
        archive(out, a)
