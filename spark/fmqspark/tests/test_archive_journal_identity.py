"""A journal is recognised by its batches: under another name it is not archived again."""

import json
import shutil
from pathlib import Path

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import InvalidArgument
from fmqcore.journal.segments import segment_name
from fmqspark.archive import ledger
from fmqspark.tests.kit import write
from fmqspark.tests.test_archive import archive, everything, other_journal, small, truth
from fmqspark.tests.test_archive_absent_replica import BASES, full, younger

pytestmark = pytest.mark.spark
REFUSED = r"holds this journal already as 'journal', under 'g1' .* twice: use --group journal"


def test_another_name_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    archive(out, full(tmp_path / "a", BASES[2]))
    for replica in (full(tmp_path / "b"), younger(tmp_path / "c")):
        if replica.name == "c":
            archive(out, tmp_path / "b")
        with pytest.raises(InvalidArgument, match=REFUSED):
            archive(out, replica, group="g1")
    assert everything(out) == truth(small())
    assert ledger.groups(out) == ["journal"], "a replay need not say which one"
    assert archive(tmp_path / "other", tmp_path / "b", group="g1").rows == 72


def test_another_directory_of_the_same_journal_continues(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a", BASES[2]), tmp_path / "out"
    archive(out, a)
    full(a).rename(tmp_path / "moved")
    assert archive(out, tmp_path / "moved").exit_code == 0
    assert archive(out, full(tmp_path / "replica")).rows == 0
    assert everything(out) == truth(small())


def test_journal_started_in_the_same_millisecond_is_another(tmp_path: Path) -> None:
    a, b, out = full(tmp_path / "a"), other_journal(tmp_path / "b"), tmp_path / "out"
    assert (
        a.joinpath(segment_name(BASES[0])).read_bytes()[:96]
        == b.joinpath(segment_name(BASES[0])).read_bytes()[:96]
    )
    for journal, group in ((a, "g1"), (b, "g2")):
        assert archive(out, journal, group=group).rows == 72
    with pytest.raises(InvalidArgument, match="already as 'g2', under 'g1'"):
        archive(out, b, group="g1")


def test_journals_with_one_segment_are_not_confused(tmp_path: Path) -> None:
    ends = [header.end for header in small().headers if header.type == BatchType.DATA]
    a, b = (
        full(tmp_path / "a", ends[0]),
        write(tmp_path / "b", small(master="x"), commit_end=ends[0]),
    )
    for journal, group in ((a, "g1"), (b, "g2")):
        assert archive(tmp_path / "out", journal, group=group).exit_code == 0


def test_other_topics_of_a_journal_may_use_another_name(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    archive(out, a, group="g1", topics=("bills",))
    assert archive(out, a, group="g2", topics=("orders",)).exit_code == 0
    assert everything(out) == truth(small())
    for topics in (None, ("bills",), ("orders", "bills")):
        with pytest.raises(InvalidArgument, match="holds this journal already"):
            archive(out, a, group="g3", topics=topics)


def test_an_archive_of_an_earlier_version_is_known_too(tmp_path: Path) -> None:
    """Its marks are only the starts of segments."""
    a, out = full(tmp_path / "a"), tmp_path / "out"
    archive(out, a)
    path = ledger.ledger_path(out, "journal")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if "marks" in row:
            row["marks"] = [mark for mark in row["marks"] if mark[0] in BASES]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InvalidArgument, match=REFUSED):
        archive(out, a, group="g1")
    assert archive(out, a).exit_code == 0


def test_journal_archived_twice_already_is_reported_as_such(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    archive(tmp_path / "other", a, group="g1")
    archive(out, a)
    shutil.copytree(tmp_path / "other", out, dirs_exist_ok=True)
    for group, other in (("g1", "journal"), ("journal", "g1")):
        with pytest.raises(InvalidArgument, match=f"as '{other}' and as '{group}' .*remove one"):
            archive(out, a, group=group)
    for file in [*out.glob("topic=*/date=*/g1-*"), ledger.ledger_path(out, "g1")]:
        file.unlink()
    assert archive(out, a).rows == 0


def test_segment_filled_into_a_gap_is_marked(tmp_path: Path) -> None:
    """That segment is the only one that the two have in common."""
    a, b, out = full(tmp_path / "a", BASES[2]), full(tmp_path / "b"), tmp_path / "out"
    (a / segment_name(BASES[1])).unlink()
    archive(out, a)
    archive(out, b)
    found = ledger.load(out, "journal")
    assert found is not None
    assert set(BASES) <= set(found.marks)


def test_neighbours_damaged_ledger_does_not_stop_an_archive(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a", BASES[2]), tmp_path / "out"
    archive(out, a)
    archive(out, other_journal(tmp_path / "b"), group="g2")
    ledger.ledger_path(out, "g2").write_text("what?\n")
    assert archive(out, full(a)).exit_code == 0
    with pytest.raises(InvalidArgument, match=r"g2.ledger line 1 cannot be decoded"):
        archive(out, a, group="g3")
