"""What no replica can give is left out, reported, and archived once it is there."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.archive import ledger
from fmqspark.archive.ledger import Hole, Unit
from fmqspark.archive.replay import Replay
from fmqspark.tests.kit import flip, lose, write
from fmqspark.tests.test_archive import Row, archive, everything, killed, small, truth
from fmqspark.tests.test_archive_absent_replica import BASES, full

pytestmark = pytest.mark.spark
END = small().end
UNITS = [Unit(begin, end) for begin, end in zip(BASES, [*BASES[1:], END], strict=True)]
Damage = Callable[[Path, int], None]


def snap(directory: Path, base: int) -> None:
    flip(directory, base + 20)


def snap_payload(directory: Path, base: int) -> None:
    flip(directory, base + 100)


def no_file(directory: Path, base: int) -> None:
    (directory / segment_name(Position(base))).unlink()


def folder(directory: Path, base: int) -> None:
    no_file(directory, base)
    (directory / segment_name(Position(base))).mkdir()


def nowhere(directory: Path, base: int) -> None:
    no_file(directory, base)
    name = segment_name(Position(base))
    (directory / name).symlink_to(directory / "nowhere")


DAMAGE = [snap, snap_payload, no_file, folder, nowhere]


def of(*units: Unit) -> list[Row]:
    below = [row for unit in units for row in truth(small(), unit.end)]
    above = [row for unit in units for row in truth(small(), unit.begin)]
    return sorted(row for row in set(below) if below.count(row) > above.count(row))


def holes(out: Path) -> list[Hole]:
    found = ledger.load(out, "journal")
    assert found is not None
    return found.holes


@pytest.mark.parametrize(
    ("damage", "number"),
    [
        *((damage, 1) for damage in DAMAGE),
        *((snap, n) for n in (0, 2, 3)),
        (no_file, 0),
        (no_file, 3),
    ],
)
def test_one_gap_is_left_out_and_comes_when_it_is_there(
    tmp_path: Path, damage: Damage, number: int
) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    damage(a, BASES[number])
    gap, rest = UNITS[number], [unit for unit in UNITS if unit != UNITS[number]]
    for again in range(2):
        outcome = archive(out, a)
        assert [result.unit for result in outcome.failed] == [gap]
        assert outcome.exit_code == 2
        assert (outcome.units, outcome.lost) == (0 if again else len(rest), [])
        assert everything(out) == of(*rest)
        assert holes(out) == [Hole(*gap, lost=False)]
    outcome = archive(out, a, full(tmp_path / "b"))
    assert (outcome.exit_code, outcome.units, holes(out)) == (0, 1, [])
    assert everything(out) == truth(small())


def test_unreadable_disk_range_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    with monkeypatch.context() as patched:
        file = a / segment_name(Position(BASES[1]))
        lose(patched, file, (0, 10))
        outcome = archive(out, a)
    assert (outcome.exit_code, [r.unit for r in outcome.failed]) == (3, [UNITS[1]])
    assert str(file) in str(outcome.failed[0].failed)
    assert archive(out, a).exit_code == 0
    assert everything(out) == truth(small())


def test_unit_without_its_segment_is_a_gap_not_empty(tmp_path: Path) -> None:
    """A unit that an earlier run started and that lost its segment since."""
    a, out = full(tmp_path / "a"), tmp_path / "out"
    assert killed(3, out, a)
    no_file(a, BASES[1])
    outcome = archive(out, a)
    assert [result.unit for result in outcome.failed] == [UNITS[1]]
    assert "a segment file is missing" in str(outcome.failed[0].failed)
    assert holes(out) == [Hole(*UNITS[1], lost=False)]
    assert archive(out, full(tmp_path / "b")).exit_code == 0
    assert everything(out) == truth(small())


def test_neighbours_are_gaps_of_their_own(tmp_path: Path) -> None:
    """So that a segment that comes back is archived without the other one."""
    a, b, out = full(tmp_path / "a"), full(tmp_path / "b"), tmp_path / "out"
    for directory in (a, b):
        no_file(directory, BASES[2])
    no_file(a, BASES[1])
    assert [r.unit for r in archive(out, a).failed] == UNITS[1:3]
    outcome = archive(out, a, b)
    assert [r.unit for r in outcome.failed] == UNITS[2:3]
    assert everything(out) == of(UNITS[0], UNITS[1], UNITS[3])


def test_the_newest_segment_grows_behind_its_damage(tmp_path: Path) -> None:
    ends = [header.end for header in small().headers if header.position > BASES[3]]
    a, out = full(tmp_path / "a", ends[0]), tmp_path / "out"
    snap(a, BASES[3])
    assert archive(out, a).exit_code == 2
    full(a, ends[1])
    snap(a, BASES[3])
    assert archive(out, a).exit_code == 2
    assert holes(out) == [Hole(BASES[3], ends[1], lost=False)]
    outcome = archive(out, full(a))
    assert (outcome.exit_code, outcome.units) == (0, 3)
    assert everything(out) == truth(small())


def test_a_header_of_the_newest_segment(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    damage = [h for h in small().headers if h.position > BASES[3]][1].position
    flip(a, damage + 20)
    assert [r.unit for r in archive(out, a).failed] == [Unit(damage, END)]
    assert everything(out) == truth(small(), damage)
    assert archive(out, full(a)).exit_code == 0
    assert everything(out) == truth(small())


def test_a_file_that_belongs_to_nothing_does_not_end_a_gap(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    snap(a, BASES[1])
    stray = JournalWriter(base=BASES[1] + 8192)
    stray.topic(7, "orders", 2)
    stray.data(7, 0, [b"of another history"])
    (a / segment_name(Position(BASES[1] + 8192))).write_bytes(stray.segments[stray.last_base])
    assert [r.unit for r in archive(out, a).failed] == [UNITS[1]]
    assert everything(out) == of(UNITS[0], *UNITS[2:])


def test_killed_at_every_stage_beside_a_gap(tmp_path: Path) -> None:
    a, b = full(tmp_path / "a"), full(tmp_path / "b")
    no_file(a, BASES[1])
    for step in itertools.count(0, 3):
        out = tmp_path / f"out-{step}"
        if not _ends(step, out, a):
            break
        _ends(step // 2, out, a)
        assert archive(out, a).exit_code == 2
        assert everything(out) == of(UNITS[0], *UNITS[2:])
        killed(step // 2, out, a, b)
        assert archive(out, a, b).exit_code == 0
        assert everything(out) == truth(small()), step
        shutil.rmtree(out)
    assert step > 20


def _ends(step: int, out: Path, *directories: Path) -> bool:
    try:
        return killed(step, out, *directories)
    except AssertionError:  # it finished, and reported a missing part
        return False


def test_gap_over_segments_then_only_the_deleted_one_is_lost(tmp_path: Path) -> None:
    """The start of each segment is unknown: files are missing, and no checkpoint names them."""
    a, out = full(tmp_path / "a"), tmp_path / "out"
    unknown = small().checkpoint(bases=(BASES[0], BASES[3]))
    (a / CHECKPOINT).write_bytes(encode_checkpoint(unknown))
    for base in BASES[1:3]:
        no_file(a, base)
    assert holes_after(out, a) == [Hole(BASES[1], BASES[3], lost=False)]
    b = full(tmp_path / "b")
    for base in BASES[:2]:
        no_file(b, base)
    kept = small().checkpoint(journal_start=BASES[2], bases=tuple(BASES[2:]))
    (b / CHECKPOINT).write_bytes(encode_checkpoint(kept))
    plain = out.with_name("plain")
    shutil.copytree(out, plain)
    outcome = archive(out, b)
    assert (outcome.exit_code, outcome.lost) == (3, [UNITS[1]])
    assert holes(out) == [Hole(*UNITS[1], lost=True)]
    assert everything(out) == of(UNITS[0], *UNITS[2:])
    assert archive(out, b).exit_code == 0
    for step in range(0, 30, 2):
        shutil.rmtree(out)
        shutil.copytree(plain, out)
        _ends(step, out, b)
        archive(out, b)
        assert everything(out) == of(UNITS[0], *UNITS[2:])
        assert holes(out) == [Hole(*UNITS[1], lost=True)]


def holes_after(out: Path, *directories: Path) -> list[Hole]:
    archive(out, *directories)
    return holes(out)


def test_replay_stops_before_a_gap_and_continues_once_filled(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    snap(a, BASES[1])
    archive(out, a)
    orders = [(o, v) for t, _, _, o, v in truth(small()) if t == "orders"]
    first = replayed_all(out)
    assert first == [(o, v) for t, _, _, o, v in of(UNITS[0]) if t == "orders"]
    assert Replay(out, "orders", None, "y").stop == Hole(*UNITS[1], lost=False)
    archive(out, full(a))
    assert sorted(first + replayed_all(out)) == sorted(orders)
    assert Replay(out, "orders", None, "y").whole


def replayed_all(out: Path) -> list[tuple[int, bytes]]:
    found = []
    replay = Replay(out, "orders", None, "x")
    for rows, place in replay.chunks():
        found += [(row.offset, row.value) for row in rows]
        replay.note(place)
    return found


# ---- names
def listed_topics() -> JournalWriter:
    """Topics that are created, and deleted, in a segment that will be missing."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(1, "orders", 1)
    writer.data(1, 0, [b"first"])
    writer.topic(5, "brief", 1)
    writer.data(5, 0, [b"made and gone before it"])
    writer.topic(5, "brief", 0)
    writer.roll()
    writer.topic(1, "orders", 0)
    writer.topic(2, "orders", 1)
    writer.topic(3, "hidden", 1)
    writer.data(3, 0, [b"hidden"])
    writer.topic(3, "hidden", 0)
    writer.data(2, 0, [b"within"])
    writer.topic(4, "late", 1)
    writer.roll()
    writer.data(2, 0, [b"behind"])
    writer.data(4, 0, [b"late"])
    writer.roll()
    writer.data(2, 0, [b"last"])
    return writer


@pytest.mark.parametrize("topics", [None, ("brief", "late", "orders")])
@pytest.mark.parametrize("damage", [snap, no_file])
def test_each_record_has_its_own_topics_name(
    tmp_path: Path, damage: Damage, topics: tuple[str, ...] | None
) -> None:
    a, out = write(tmp_path / "a", listed_topics()), tmp_path / "out"
    for base in listed_topics().segments:
        (a / index_name(base)).unlink(missing_ok=True)
    damage(a, MIN_SEGMENT)
    assert archive(out, a, topics=topics).exit_code == 2
    assert named(out) == {
        b"first": "orders",
        b"made and gone before it": "brief",
        b"behind": "orders",
        b"late": "late",
        b"last": "orders",
    }
    assert archive(out, a, write(tmp_path / "b", listed_topics()), topics=topics).exit_code == 0
    assert len(everything(out)) == len(named(out)) == (7 if topics is None else 6)
    assert named(out)[b"within"] == "orders"


def named(out: Path) -> dict[bytes, str]:
    return {row[-1]: row[0] for row in everything(out)}


def test_damage_hiding_a_topic_name_extends_the_gap(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", listed_topics()), tmp_path / "out"
    snap(a, MIN_SEGMENT)
    brief = [h for h in listed_topics().headers if h.type == BatchType.CONFIG][1]
    flip(a, brief.position + 20)
    outcome = archive(out, a)
    assert [r.unit for r in outcome.failed] == [(0, MIN_SEGMENT), (MIN_SEGMENT, 2 * MIN_SEGMENT)]
    assert set(named(out)) == {b"behind", b"late", b"last"}


def test_a_topic_that_may_be_in_the_gap_is_no_mistake(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", listed_topics()), tmp_path / "out"
    no_file(a, MIN_SEGMENT)
    with pytest.raises(
        CorruptJournal, match=r"no topic 'hidden' .* but parts of the journal cannot be read"
    ):
        archive(out, a, topics=("hidden",))
    assert not out.exists()


def test_journal_that_is_all_gap_creates_no_files(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    for base in BASES:
        snap(a, base)
    with pytest.raises(CorruptJournal, match="damaged at position 0"):
        archive(out, a)
    assert not out.exists()
