"""The most advanced replica is damaged: what the others have still comes from them."""

import itertools
from pathlib import Path

import pytest

from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.errors import CorruptJournal
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqspark.source.planning import plan
from fmqspark.source.survey import survey
from fmqspark.tests.kit import alike, flip, put, write
from fmqspark.tests.test_source import WHOLE, read, truth

JOURNAL = sample(batches=310)
LAST = max(JOURNAL.segments)
IN_LAST = [h for h in JOURNAL.headers if h.position >= LAST]
END = JOURNAL.end
KNOWN = IN_LAST[8].position
"""The others know the range below as committed."""
HEADER, PAYLOAD = 64, 97


def replicas(path: Path, spoilt: list[BatchHeader], byte: int = HEADER) -> list[Path]:
    """The most advanced replica is damaged; of the two others one is as far as `KNOWN`."""
    ahead = write(path / "ahead", JOURNAL)
    for header in spoilt:
        flip(ahead, header.position + byte)
    behind = write(path / "behind", JOURNAL, commit_end=KNOWN, durable_end=KNOWN)
    least = IN_LAST[4].position
    return [ahead, behind, write(path / "least", JOURNAL, commit_end=least, durable_end=least)]


def data(header: BatchHeader) -> bool:
    return header.type == BatchType.DATA


@pytest.mark.parametrize("byte", [HEADER, PAYLOAD])
@pytest.mark.parametrize("turned", [False, True])
def test_damage_below_the_others_commit_end_is_read_from_them(
    tmp_path: Path, byte: int, turned: bool
) -> None:
    bad = [h for h in IN_LAST[1:8] if byte == HEADER or data(h)]
    paths = replicas(tmp_path, [bad[0], bad[-1]], byte)
    assert read(paths[::-1] if turned else paths) == truth(JOURNAL)[0]


def test_damaged_replica_is_named(tmp_path: Path) -> None:
    ahead, behind, _ = paths = replicas(tmp_path, [IN_LAST[2]])
    [notice] = survey([*map(str, paths)]).notices
    assert notice.startswith(f"{ahead} cannot give what {behind} can: ")
    assert f"damaged at position {IN_LAST[2].position}" in notice


def test_damage_in_a_full_segment_that_the_others_end_in(tmp_path: Path) -> None:
    within = [h for h in JOURNAL.headers if h.position < LAST][-30:]
    known = within[20].position
    ahead = write(tmp_path / "ahead", JOURNAL)
    for header in [h for h in within[:20] if data(h)][:2]:
        flip(ahead, header.position + PAYLOAD)
    flip(ahead, within[19].position + HEADER)
    (ahead / f"{min(b for b in JOURNAL.segments):020}.index").unlink(missing_ok=True)
    behind = write(tmp_path / "behind", JOURNAL, commit_end=known, durable_end=known)
    assert read([ahead, behind]) == truth(JOURNAL)[0]
    for index in ahead.glob("*.index"):
        index.unlink()
    assert read([ahead, behind]) == truth(JOURNAL)[0]


def test_range_no_replica_can_give_is_reported(tmp_path: Path) -> None:
    lost = IN_LAST[10].position
    paths = replicas(tmp_path, [IN_LAST[2], IN_LAST[10]])
    with pytest.raises(CorruptJournal, match=f"positions {lost} to {END} ") as caught:
        read(paths)
    assert f"damaged at position {lost} " in str(caught.value)
    assert str(paths[0]) in str(caught.value)
    found = survey([*map(str, paths)], around=True)
    assert [(gap.begin, gap.end) for gap in found.gaps] == [(lost, END)]
    assert found.segments[-1].until == lost
    assert (found.end, found.segments[-1].after) == (END, None)
    assert max(split.end for split in plan(found, WHOLE)) <= lost
    assert str(lost) in str(found.gaps[0].why)


def test_lone_replica_gives_the_records_before_its_damage(tmp_path: Path) -> None:
    [ahead, *_] = replicas(tmp_path, [IN_LAST[5]])
    found = survey([str(ahead)], around=True)
    assert [(gap.begin, gap.end) for gap in found.gaps] == [(IN_LAST[5].position, END)]


@pytest.mark.parametrize("where", [2, 8])
def test_range_another_replica_contradicts_is_refused(tmp_path: Path, where: int) -> None:
    """Both report it as committed; and the one with the higher commit end is damaged."""
    one, other = alike(), alike(other=(215,))
    last = [h for h in one.headers if h.position >= max(one.segments)]
    ahead = write(tmp_path / "ahead", one)
    flip(ahead, last[where].position + HEADER)
    known = last[-2].position
    behind = write(tmp_path / "behind", other, commit_end=known, durable_end=known)
    assert differ(one, other) > last[8].position
    found = survey([str(ahead), str(behind)], around=True)
    assert [(gap.begin, gap.end) for gap in found.gaps] == [(max(one.segments), one.end)]
    assert "contradict" in str(found.gaps[0].why)
    with pytest.raises(CorruptJournal, match="contradict"):
        read([ahead, behind])


@pytest.mark.parametrize("size", [2_000, 10**9])
@pytest.mark.parametrize("number", [0, 3])
def test_damage_before_the_end_of_who_is_behind_hides_nothing(
    tmp_path: Path, number: int, size: int
) -> None:
    """In a segment that is full on the other one, which has no index; with many splits or few."""
    base = sorted(JOURNAL.segments)[2]
    header, *_, last = [h for h in JOURNAL.headers if h.position >= base][number : number + 9]
    ahead = write(tmp_path / "ahead", JOURNAL)
    (ahead / index_name(base)).unlink()
    flip(ahead, header.position + HEADER)
    behind = write(tmp_path / "behind", JOURNAL, commit_end=last.end, durable_end=last.end)
    for paths in itertools.permutations([ahead, behind]):
        assert read(paths, split_bytes=size) == truth(JOURNAL)[0]


@pytest.mark.parametrize("uncommitted", [False, True])
@pytest.mark.parametrize("batches", [20, 40, 66, 100])
def test_two_histories_then_no_row_is_returned(
    tmp_path: Path, batches: int, *, uncommitted: bool
) -> None:
    """A master whose term was lost, and the replica behind it, both with a commit end there: it
    ends in the newest segment (before the other, or with it) or in one that is full there.
    """
    one = write(tmp_path / "one", parted(20, epoch=2))
    other = write(tmp_path / "other", parted(batches, epoch=3))
    for paths in itertools.permutations([one, other]):
        with pytest.raises(CorruptJournal, match="contradict each other in the batches around"):
            read(paths, uncommitted=uncommitted)
        found = survey([str(path) for path in paths], around=True)
        assert found.gaps[0].begin == 0
        assert "contradict" in str(found.gaps[0].why)


def test_damage_at_the_end_of_one_is_no_other_history(tmp_path: Path) -> None:
    """In a full segment of the other, and in the newest one."""
    whole = parted(100, epoch=2)
    last = [h for h in whole.headers if h.position < MIN_SEGMENT][20:23]
    other = write(tmp_path / "other", whole)
    expected = read([other])
    for header in last:
        name = f"one-{header.position}"
        one = write(tmp_path / name, whole, commit_end=last[1].end, durable_end=last[1].end)
        flip(one, header.position + 20)
        for paths in itertools.permutations([one, other]):
            assert read(paths) == expected


def parted(batches: int, epoch: int) -> JournalWriter:
    """The same ten batches each time, and then those of one term."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 1)
    for n in range(batches):
        if n == 10:
            writer.open_epoch(epoch)
        writer.data(7, 0, [b"%d" % (epoch if n >= 10 else 1) + b"x" * 900])
    return writer


def differ(one: JournalWriter, other: JournalWriter) -> int:
    return next(a.position for a, b in zip(one.headers, other.headers, strict=True) if a != b)


def test_bytes_above_a_commit_end_fill_no_hole(tmp_path: Path) -> None:
    """The replica that is behind has the batches, and does not know them as committed."""
    paths = replicas(tmp_path, [IN_LAST[10]])
    with pytest.raises(CorruptJournal, match=f"positions {IN_LAST[10].position} to {END} "):
        read(paths)
    put(paths[1], IN_LAST[10].position, b"\0" * 96)
    assert (paths[1] / CHECKPOINT).exists()
    found = survey([*map(str, paths)], around=True)
    assert found.segments[-1].until == IN_LAST[10].position


@pytest.mark.parametrize("size", [2_000, 40_000, 10**9])
def test_replica_is_read_only_below_its_own_commit_end(tmp_path: Path, size: int) -> None:
    paths = replicas(tmp_path, [])
    ends = dict(zip(map(str, paths), [END, KNOWN, IN_LAST[4].position], strict=True))
    splits = plan(survey([*map(str, paths)]), WHOLE, size)
    for split in splits:
        asked = {path for path in ends if split.end <= ends[path]}
        assert set(split.sources) == asked or split.segment.base < LAST
        assert split.until <= min(map(ends.__getitem__, split.sources))
        assert split.end <= split.until
    assert all(a.end <= b.begin for a, b in itertools.pairwise(splits))
    assert read(paths, split_bytes=size) == truth(JOURNAL)[0]


@pytest.mark.spark
def test_archive_leaves_out_only_the_range_no_replica_can_give(tmp_path: Path) -> None:
    """The missing range is reported, and archived as soon as a replica gives it."""
    from fmqspark.archive.job import ArchiveOptions, run_archive
    from fmqspark.engines.engines import LocalEngine

    lost, out = IN_LAST[10].position, tmp_path / "out"
    paths = replicas(tmp_path, [IN_LAST[2], IN_LAST[10]])

    def rows(*named: Path) -> tuple[int, list[tuple[int, int]]]:
        done = run_archive(ArchiveOptions(tuple(map(str, named)), out), LocalEngine())
        return done.rows, [(r.unit.begin, r.unit.end) for r in done.failed]

    below = truth(JOURNAL, until=lost)[0]
    assert rows(*paths) == (len(below), [(lost, END)])
    rest = len(truth(JOURNAL)[0]) - len(below)
    assert rows(paths[1], write(tmp_path / "good", JOURNAL)) == (rest, [])
