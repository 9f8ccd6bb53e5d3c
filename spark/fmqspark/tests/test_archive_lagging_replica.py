"""Archiving continues when archived ranges are lost, damaged, or on a replica far behind."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fmqcore.errors import CorruptJournal
from fmqcore.journal.segments import segment_name
from fmqspark.tests.kit import flip
from fmqspark.tests.test_archive import archive, everything, small, truth
from fmqspark.tests.test_archive_absent_replica import BASES, YOUNG, full, younger

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("behind_first", [True, False])
def test_a_replica_that_is_far_behind_ends_no_archiving(tmp_path: Path, behind_first: bool) -> None:
    behind, out = full(tmp_path / "behind", BASES[1]), tmp_path / "out"
    archive(out, full(tmp_path / "early", BASES[3]))
    master = younger(tmp_path / "master")
    outcome = archive(out, *((behind, master) if behind_first else (master, behind)))
    assert (outcome.exit_code, outcome.lost, outcome.units) == (0, [], 1)
    assert everything(out) == truth(small())
    assert "the existing archive was not checked: positions" in outcome.notices[-1]


@pytest.mark.parametrize("archived", [BASES[1], BASES[1] + 9_000])
def test_range_on_no_replica_is_lost_though_one_is_far_behind(
    tmp_path: Path, archived: int
) -> None:
    ends = [header.end for header in small().headers]
    archived = max(end for end in ends if end <= archived)
    behind, out = full(tmp_path / "behind", BASES[1]), tmp_path / "out"
    archive(out, full(tmp_path / "early", archived))
    outcome = archive(out, behind, younger(tmp_path / "master"))
    assert (outcome.exit_code, outcome.lost) == (3, [(archived, YOUNG)])
    late = [row for row in truth(small()) if row not in truth(small(), YOUNG)]
    assert everything(out) == sorted(truth(small(), archived) + late)
    assert archive(out, behind, tmp_path / "master").exit_code == 0


def test_range_only_the_lagging_replica_has_is_not_given_up(tmp_path: Path) -> None:
    behind, out = full(tmp_path / "behind", BASES[1]), tmp_path / "out"
    ends = [header.end for header in small().headers]
    archive(out, full(tmp_path / "early", ends[5]))
    with pytest.raises(CorruptJournal, match=f"positions {BASES[1]} to {YOUNG}"):
        archive(out, behind, younger(tmp_path / "master"))
    assert archive(out, behind).exit_code == 0
    assert archive(out, behind, tmp_path / "master").lost == [(BASES[1], YOUNG)]


def _lose(directory: Path) -> None:
    (directory / segment_name(BASES[1])).unlink()


def _flip(directory: Path) -> None:
    flip(directory, BASES[1] + 20)


def _no_file(directory: Path) -> None:
    _lose(directory)
    (directory / segment_name(BASES[1])).mkdir()


@pytest.mark.parametrize("damage", [_lose, _flip, _no_file])
def test_damage_in_an_archived_range_stops_no_archiving(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    a, out = full(tmp_path / "a", BASES[2] + 200), tmp_path / "out"
    archive(out, a)
    full(a)
    damage(a)
    assert archive(out, a).exit_code == 0
    assert everything(out) == truth(small())
    outcome = archive(out, a)
    assert (outcome.exit_code, outcome.failed) == (0, [])
    assert (
        f"positions {BASES[1]} to {BASES[2]}, archived earlier, cannot be read"
        in outcome.notices[-1]
    )
    outcome = archive(tmp_path / "other", a)
    assert (outcome.exit_code, [r.unit for r in outcome.failed]) == (2, [(BASES[1], BASES[2])])
