"""A replica that is unreadable for a while loses nothing for the archive for good."""

from pathlib import Path

import pytest

from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.archive import ledger
from fmqspark.tests.kit import write
from fmqspark.tests.test_archive import archive, everything, killed, small, truth
from fmqspark.tests.test_brokers import MASTER, SLAVE, Played
from fmqspark.tests.test_brokers import played as played  # a fixture

pytestmark = pytest.mark.spark
BASES = sorted(small().segments)
YOUNG = BASES[2]


def full(path: Path, commit_end: int = small().end) -> Path:
    return write(path, small(), commit_end=commit_end)


def younger(path: Path) -> Path:
    """Write a replica that was recreated at a later segment."""
    write(path, small(), journal_start=YOUNG, bases=tuple(b for b in BASES if b >= YOUNG))
    for base in BASES:
        if base < YOUNG:
            (path / segment_name(base)).unlink()
    return path


def hide(directory: Path) -> None:
    (directory / CHECKPOINT).rename(directory / "aside")


def show(directory: Path) -> None:
    (directory / "aside").rename(directory / CHECKPOINT)


def test_range_an_unreadable_replica_may_have_is_not_given_up(tmp_path: Path) -> None:
    a, b, out = full(tmp_path / "a", BASES[1]), younger(tmp_path / "b"), tmp_path / "out"
    assert archive(out, a).exit_code == 0
    full(a)
    hide(a)
    before = ledger.ledger_path(out, "journal").read_bytes()
    with pytest.raises(OSError, match=f"positions {BASES[1]} to {YOUNG} .*{a} is left out"):
        archive(out, a, b)
    assert ledger.ledger_path(out, "journal").read_bytes() == before
    show(a)
    assert archive(out, a, b).exit_code == 0
    assert everything(out) == truth(small())


def test_unit_a_killed_run_started_is_not_given_up(tmp_path: Path) -> None:
    a, b, out = full(tmp_path / "a"), younger(tmp_path / "b"), tmp_path / "out"
    assert killed(3, out, a)
    hide(a)
    with pytest.raises(OSError, match=f"positions 0 to {YOUNG}"):
        archive(out, a, b)
    show(a)
    assert archive(out, b, a).exit_code == 0
    assert everything(out) == truth(small())


def test_replica_no_longer_named_does_not_count(tmp_path: Path) -> None:
    a, b, out = full(tmp_path / "a", BASES[1]), younger(tmp_path / "b"), tmp_path / "out"
    archive(out, a)
    outcome = archive(out, b)
    assert (outcome.exit_code, outcome.lost) == (3, [(BASES[1], YOUNG)])


def test_broker_that_does_not_answer_is_waited_for(tmp_path: Path, played: Played) -> None:
    out, master = tmp_path / "out", played.folders["master"]
    full(master, BASES[1])
    younger(played.folders["slave"])
    assert archive(out, MASTER).exit_code == 0  # type: ignore[arg-type]
    full(master)
    played.down.add("master")
    with pytest.raises(Unavailable, match="master:1 is left out"):
        archive(out, SLAVE, MASTER)  # type: ignore[arg-type]
    played.down.clear()
    assert archive(out, SLAVE, MASTER).exit_code == 0  # type: ignore[arg-type]
    assert everything(out) == truth(small())


@pytest.mark.parametrize("hidden", [True, False])
def test_records_older_than_the_first_run_are_archived_later(tmp_path: Path, hidden: bool) -> None:
    a, b, out = full(tmp_path / "a"), younger(tmp_path / "b"), tmp_path / "out"
    if hidden:
        hide(a)
        archive(out, a, b)
        show(a)
    else:
        archive(out, b)
    outcome = archive(out, a, b)
    assert (outcome.exit_code, outcome.units) == (0, 2)
    assert everything(out) == truth(small())
    assert archive(out, a, b).units == 0


def test_older_segments_of_another_journal_are_not_mixed_in(tmp_path: Path) -> None:
    b, out = younger(tmp_path / "b"), tmp_path / "out"
    archive(out, b)
    archived = everything(out)
    other = JournalWriter()
    other.open_epoch(9)
    other.topic(7, "orders", 1)
    while other.end < YOUNG + 40_000:
        other.data(7, 0, [b"x" * 9000])
    with pytest.raises(InvalidArgument, match="another journal"):
        archive(out, write(tmp_path / "a", other))
    shorter = other.checkpoint(commit_end=YOUNG)
    (tmp_path / "a" / CHECKPOINT).write_bytes(encode_checkpoint(shorter))
    archive(out, tmp_path / "a")
    assert everything(out) == archived
