"""Progress of a replay that is invalid, or not of this archive: reported, and not used."""

import json
from pathlib import Path
from typing import Any

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.names import MAX_NAME, is_name
from fmqspark.archive.replay import Place, Replay, progress_name
from fmqspark.tests.test_replay_holes import ROWS, A, B, C, archive, of, replayed, sent

pytestmark = pytest.mark.spark
PATHS = [f"topic=t/date=2026-01-31/g-{u.begin}-{u.end}.parquet" for u in (A, B)]
GOOD: dict[str, Any] = {"files": 1, "rows": 2, "of": PATHS, "sender": {"producer": 9}}
WRONG: list[dict[str, Any]] = [
    {"files": "a"},
    {"files": 1.0},
    {"files": True},
    {"files": None},
    {"files": -1},
    {"files": [0]},
    {"rows": "2"},
    {"rows": -3},
    {"rows": {}},
    {"of": "ab"},
    {"of": None},
    {"of": {PATHS[0]: 1}},
    {"of": [[1]]},
    {"of": [5]},
    {"sender": 5},
    {"sender": None},
    {"sender": [["producer", 9]]},
]


def noted(folder: Path, raw: bytes, name: str = "x") -> Path:
    path = folder / "_fmq" / f"replay-{name}.json"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"5",
        b"null",
        b'"files"',
        b"{}",
        b"[" * 100_000,
        *(json.dumps(GOOD | wrong).encode() for wrong in WRONG),
    ],
)
def test_invalid_progress_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raw: bytes
) -> None:
    archive(tmp_path, A, B, planned=(A, B))
    path = noted(tmp_path, raw)
    with pytest.raises(InvalidArgument) as raised:
        Replay(tmp_path, "t", None, "x")
    assert str(raised.value).startswith(f"{path} cannot be decoded (")
    assert "--name" in str(raised.value)
    noted(tmp_path, raw, "all-t-to-t")
    assert replayed(tmp_path, monkeypatch) == (64, [])
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": 999},
        {"files": 2, "rows": 0},
        {"rows": ROWS + 1},
        {"files": 0, "rows": 1, "of": []},
        {"of": [PATHS[0], PATHS[0]]},
        {"of": [*PATHS, "other"]},
    ],
)
def test_progress_that_cannot_be_of_this_archive_is_not_believed(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    archive(tmp_path, A, B, planned=(A, B))
    noted(tmp_path, json.dumps(GOOD | wrong).encode())
    with pytest.raises(InvalidArgument, match=r"of a replay of other files: .*--name"):
        sent(tmp_path)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((0, 0), of(A, B)),
        ((0, ROWS), of(B)),
        ((1, 2), of(B)[2:]),
        ((1, ROWS), []),
    ],
)
def test_progress_that_can_be_is(
    tmp_path: Path, place: tuple[int, int], expected: list[int]
) -> None:
    archive(tmp_path, A, B, planned=(A, B))
    noted(tmp_path, json.dumps(GOOD | {"files": place[0], "rows": place[1]}).encode())
    units, replay = sent(tmp_path)
    assert (units, replay.state) == (expected, {"producer": 9})
    assert Replay(tmp_path, "t", None, "x").place == (Place(1, ROWS) if expected else place)


def test_progress_of_a_replay_that_has_nothing_to_send_yet_is(tmp_path: Path) -> None:
    archive(tmp_path, C, planned=(A, B, C))
    assert sent(tmp_path)[0] == []
    archive(tmp_path, A, B)
    assert sent(tmp_path)[0] == of(A, B, C)


def test_a_name_made_of_long_ones_fits_and_stays_its_own(tmp_path: Path) -> None:
    archive(tmp_path, A, planned=(A,))
    long = "t" * MAX_NAME
    names = [progress_name(tmp_path, topic, None, to) for topic, to in ((long, "x"), (long, "y"))]
    assert len(set(names)) == 2
    assert all(is_name(name) for name in names)
    assert progress_name(tmp_path, long, None, "x") == names[0]
    assert progress_name(tmp_path, "t", None, "x") == "all-t-to-x"
