"""A fault of one replica does not end a read where another replica is good; and it is reported."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fmqcore.errors import CorruptJournal, InvalidArgument
from fmqcore.ids import Position
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, segment_name
from fmqcore.scan.selection import Range, Wanted
from fmqcore.tests.journal.writer import sample
from fmqspark.source import planning
from fmqspark.source.files import Throttle, directory_lock
from fmqspark.source.options import Request
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader
from fmqspark.source.survey import Survey, survey
from fmqspark.tests.kit import file_of, flip, write
from fmqspark.tests.test_source import ALL, read, rows_of, truth

JOURNAL = sample(batches=310)
LAST = max(JOURNAL.segments)
IN_LAST = [h for h in JOURNAL.headers if h.position >= LAST]
ALL_ROWS = truth(JOURNAL)[0]
END = JOURNAL.end


def surveyed(*paths: Path, **options: Any) -> Survey:
    return survey([str(path) for path in paths], **options)


def both_orders(good: Path, bad: Path) -> list[tuple[Path, Path]]:
    return [(good, bad), (bad, good)]


@pytest.mark.parametrize("uncommitted", [False, True])
def test_damage_below_a_durable_end_below_the_commit_end(tmp_path: Path, uncommitted: bool) -> None:
    """As a checkpoint is with interval flushes, and a slave's."""
    good = write(tmp_path / "good", JOURNAL)
    bad = write(tmp_path / "bad", JOURNAL, durable_end=IN_LAST[6].position, commit_end=END)
    flip(bad, IN_LAST[2].position + 64)
    for paths in both_orders(good, bad):
        assert read(paths, uncommitted=uncommitted) == ALL_ROWS
    assert str(bad) in "".join(surveyed(bad, good).notices)
    with pytest.raises(CorruptJournal, match=f"damaged at position {IN_LAST[2].position}"):
        read([bad], uncommitted=uncommitted)


def test_damage_does_not_hide_records_above_the_durable_end(tmp_path: Path) -> None:
    """The replica with the damaged range is behind, and no other has the rest."""
    behind = write(tmp_path / "behind", JOURNAL, commit_end=IN_LAST[4].position)
    bad = write(tmp_path / "bad", JOURNAL, durable_end=IN_LAST[6].position, commit_end=END)
    flip(bad, IN_LAST[2].position + 64)
    for paths in both_orders(behind, bad):
        assert read(paths) == ALL_ROWS
    assert surveyed(bad, behind).end == END


def test_damage_of_a_full_segment_above_an_old_durable_end(tmp_path: Path) -> None:
    """All below a newer segment is durable, as in recovery, whatever the checkpoint knows."""
    middle = [h for h in JOURNAL.headers if h.position < LAST - MIN_SEGMENT][-9]
    good = write(tmp_path / "good", JOURNAL)
    bad = write(tmp_path / "bad", JOURNAL, durable_end=middle.position, commit_end=END)
    flip(bad, middle.end + 20)
    for paths in both_orders(good, bad):
        assert read(paths) == ALL_ROWS
    with pytest.raises(CorruptJournal, match=f"damaged at position {middle.end}"):
        read([bad])
    os.truncate(bad / segment_name(Position(LAST - MIN_SEGMENT)), 5000)
    with pytest.raises(CorruptJournal, match="damaged at position"):
        read([bad])


def test_replicas_with_different_faults_complete_each_other(tmp_path: Path) -> None:
    good = write(tmp_path / "good", JOURNAL)
    bad = write(tmp_path / "bad", JOURNAL, durable_end=IN_LAST[6].position, commit_end=END)
    flip(bad, IN_LAST[2].position + 64)
    (good / segment_name(Position(MIN_SEGMENT))).unlink()
    for paths in both_orders(good, bad):
        assert read(paths) == ALL_ROWS


@pytest.mark.parametrize("durable", [IN_LAST[6].position, END])
def test_a_segment_file_that_cannot_be_read(
    tmp_path: Path, durable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = (
        write(tmp_path / "good", JOURNAL),
        write(tmp_path / "bad", JOURNAL, durable_end=durable),
    )
    refuse(monkeypatch, bad / segment_name(LAST))
    for uncommitted in (False, True):
        for paths in both_orders(good, bad):
            assert read(paths, uncommitted=uncommitted) == ALL_ROWS
        assert str(bad) in "".join(surveyed(bad, good, uncommitted=uncommitted).notices)
        with pytest.raises(OSError, match="Input/output error"):
            read([bad], uncommitted=uncommitted)


def test_unreadable_checkpoint_is_reported_and_is_no_damage(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", JOURNAL), write(tmp_path / "bad", JOURNAL)
    loop(bad / CHECKPOINT)
    for paths in both_orders(good, bad):
        assert read(paths) == ALL_ROWS
        assert "symbolic links" in "".join(surveyed(*paths).notices)
    with pytest.raises(OSError, match="symbolic links"):
        read([bad])
    assert read([bad], uncommitted=True) == ALL_ROWS


def refuse(patched: pytest.MonkeyPatch, victim: Path) -> None:
    real = os.open

    def opened(path: Any, *rest: Any, **named: Any) -> int:
        if Path(path) == victim:
            raise OSError(5, "Input/output error", str(victim))
        return real(path, *rest, **named)

    patched.setattr(os, "open", opened)


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def test_a_segment_name_that_leads_nowhere(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", JOURNAL), write(tmp_path / "bad", JOURNAL)
    loop(bad / segment_name(Position(0)))
    for paths in both_orders(good, bad):
        assert read(paths) == ALL_ROWS
    with pytest.raises((OSError, CorruptJournal)):
        read([bad])


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil", [no_file, pipe, Path.unlink, lambda path: path.write_bytes(b"nonsense")]
)
def test_directory_without_a_commit_end(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    good, bad = write(tmp_path / "good", JOURNAL), write(tmp_path / "bad", JOURNAL)
    spoil(bad / CHECKPOINT)
    for paths in both_orders(good, bad):
        assert read(paths) == ALL_ROWS
        assert str(bad) in "".join(surveyed(*paths).notices)
    with pytest.raises((OSError, CorruptJournal)) as caught:
        read([bad])
    assert str(bad) in str(caught.value)


def test_wrong_directory_name_is_no_damage(tmp_path: Path) -> None:
    good = write(tmp_path / "good", JOURNAL)
    (tmp_path / "empty").mkdir()
    for wrong in ("nowhere", "empty"):
        with pytest.raises(InvalidArgument, match=wrong):
            read([good, tmp_path / wrong])


def test_good_replicas_then_nothing_is_reported(tmp_path: Path) -> None:
    assert surveyed(write(tmp_path / "a", JOURNAL), write(tmp_path / "b", JOURNAL)).notices == []


@pytest.mark.parametrize("behind", [IN_LAST[6].position, LAST])
def test_a_replica_that_is_a_moment_behind_is_not_damaged(tmp_path: Path, behind: int) -> None:
    """As a slave's checkpoint is, or a slave under traffic."""
    good = write(tmp_path / "good", JOURNAL)
    slow = write(tmp_path / "slow", JOURNAL, commit_end=behind, durable_end=behind)
    for paths in both_orders(good, slow):
        assert read(paths) == ALL_ROWS
        assert surveyed(*paths).notices == []


def test_directory_shorter_than_its_checkpoint_is_reported(tmp_path: Path) -> None:
    """Another replica has to give it; a running slave is still to get it."""
    end = IN_LAST[6].position
    a = write(tmp_path / "a", JOURNAL, durable_end=end, commit_end=END)
    file, at = file_of(a, end)
    os.truncate(file, at)
    assert read([a]) == truth(JOURNAL, until=end)[0]
    (notice,) = surveyed(a).notices
    assert notice.startswith(f"{a} knows that all below position {END} is committed, and what is")
    assert surveyed(a, uncommitted=True).notices == []
    with directory_lock(str(a)):
        assert surveyed(a).notices == []
    whole = write(tmp_path / "b", JOURNAL)
    assert "is committed, and" not in "".join(surveyed(a, whole).notices)


def test_non_batch_below_the_commit_end_is_an_error(tmp_path: Path) -> None:
    """It was silently shown as the end; only while it is being written it is one."""
    a = write(tmp_path / "a", JOURNAL, durable_end=IN_LAST[2].position, commit_end=END)
    flip(a, IN_LAST[6].position + 20)
    with pytest.raises(CorruptJournal, match=f"damaged at position {IN_LAST[6].position}"):
        read([a])
    assert read([a], uncommitted=True) == truth(JOURNAL, until=IN_LAST[6].position)[0]
    for paths in both_orders(write(tmp_path / "b", JOURNAL), a):
        assert read(paths) == ALL_ROWS
    with directory_lock(str(a)):
        assert read([a]) == truth(JOURNAL, until=IN_LAST[6].position)[0]


@pytest.mark.parametrize("many", [False, True])
def test_replicas_damaged_in_turn_still_give_all_records(
    tmp_path: Path, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replica continues where another one ended, behind what that one lacks."""
    monkeypatch.setattr(planning, "_MOST", 0 if many else planning._MOST)
    a, b = write(tmp_path / "a", JOURNAL), write(tmp_path / "b", JOURNAL)
    middle = [h for h in JOURNAL.headers if MIN_SEGMENT <= h.position < 2 * MIN_SEGMENT]
    for number, header in enumerate(middle):  # payloads; the SNAP is the first of them
        if number % 4 in (0, 1):
            flip((a, b)[number % 4], header.end - 9)
    for paths in both_orders(a, b):
        assert read(paths, split_bytes=10**9) == ALL_ROWS
        assert read(paths, split_bytes=20_000) == ALL_ROWS
    flip(b, middle[4].end - 9)
    for paths in both_orders(a, b):
        with pytest.raises(CorruptJournal, match=f"damaged at position {middle[4].position} "):
            read(paths)


@pytest.mark.parametrize("hurt", [LAST + 130, IN_LAST[3].position + 20])
def test_lagging_replica_identifies_the_segment(tmp_path: Path, hurt: int) -> None:
    """A stream continues behind the damage, and behind the slave that has that part good."""
    bad = write(tmp_path / "bad", JOURNAL)
    behind = IN_LAST[6].position
    slow = write(tmp_path / "slow", JOURNAL, commit_end=behind, durable_end=behind)
    flip(bad, hurt)
    wanted = Wanted(positions=Range(behind))
    rest = [row for row in ALL_ROWS if row not in truth(JOURNAL, until=behind)[0]]
    for paths in both_orders(slow, bad):
        splits = plan(surveyed(*paths, since=behind), wanted)
        readers = [SplitReader(split, ALL, Throttle(0)) for split in splits]
        rows = [row for one in readers for slab in one for row in rows_of(slab, one.names)]
        assert rows == rest
    with pytest.raises(CorruptJournal, match="damaged at position"):
        surveyed(bad, since=behind)


@pytest.mark.spark
def test_query_logs_bad_replicas_and_a_stream_logs_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fmqspark.spark.source import FmqReader
    from fmqspark.spark.stream import FmqStreamReader

    good, bad = write(tmp_path / "good", JOURNAL), write(tmp_path / "bad", JOURNAL)
    no_file(bad / CHECKPOINT)
    request = Request((str(bad), str(good)))
    assert FmqReader(request, ("value",)).partitions()
    assert capsys.readouterr().err.startswith(f"fmq: {bad} is left out: ")
    stream = FmqStreamReader(request, ("value",))
    assert [stream.initialOffset()["position"] for _ in range(3)] == [0] * 3
    assert capsys.readouterr().err.count("is left out") == 1
