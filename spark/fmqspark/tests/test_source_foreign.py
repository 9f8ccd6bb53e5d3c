"""A segment of another journal, or an older one of this, in a data directory: never rows."""

from pathlib import Path

import pytest

from fmqcore.errors import CorruptJournal
from fmqcore.ids import Position, TopicId
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, index_name, segment_name
from fmqcore.scan.selection import Wanted
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.source.survey import survey
from fmqspark.tests.kit import alike, flip, write
from fmqspark.tests.test_source import read

OWN = alike()
BASES = sorted(OWN.segments)


def put_in(path: Path, other: JournalWriter, base: int, index: bool = True) -> None:
    """Replace a segment by the other journal's, whose batches are all good."""
    files = other.files()
    names = [segment_name(Position(base)), index_name(Position(base))]
    for name in names[: 1 + index]:
        (path / name).write_bytes(files[name])


def later(ms: int) -> JournalWriter:
    """The same amount of everything, stored at another time."""
    writer = JournalWriter()
    writer.now_ms += ms
    writer.open_epoch(1)
    for n in range(220):
        writer.data(7, n % 4, [b"value" + b"x" * 900])
    return writer


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("split_bytes", [40_000, 2**26])
def test_foreign_segment_with_fitting_offsets_is_refused(
    tmp_path: Path, index: bool, split_bytes: int
) -> None:
    """Its index and offsets fit: only the batch before the next segment gives it away."""
    a = write(tmp_path / "a", OWN)
    put_in(a, alike(other=(100,)), BASES[1])
    if not index:
        for path in a.glob("*.index"):
            path.unlink()
    with pytest.raises(CorruptJournal, match="one of them is not of here"):
        read([a], split_bytes=split_bytes)


@pytest.mark.parametrize("ms", [-60_000, 60_000])
def test_segment_of_an_older_journal_is_refused(tmp_path: Path, ms: int) -> None:
    """It starts after it ends, by the segments around it, so it is not an empty one."""
    a = write(tmp_path / "a", OWN)
    put_in(a, later(ms), BASES[1], index=False)
    with pytest.raises(CorruptJournal, match="not of here"):
        read([a])


def test_foreign_segment_with_other_queues_is_refused(tmp_path: Path) -> None:
    """Also where none of the batches is wanted."""
    other = JournalWriter()
    other.open_epoch(1)
    for n in range(220):
        other.data(7 if n < 40 else 8, n % 4 if n < 40 else 0, [b"value" + b"x" * 900])
    a = write(tmp_path / "a", OWN)
    put_in(a, other, BASES[1])
    for wanted in (Wanted(), Wanted(topics=frozenset({TopicId(7)}))):
        with pytest.raises(CorruptJournal, match="not of here"):
            read([a], wanted)


def test_identical_segment_is_not_taken_for_foreign(tmp_path: Path) -> None:
    a = write(tmp_path / "a", OWN)
    put_in(a, alike(), BASES[1])
    assert len(read([a])) == 220


def foreign(other: JournalWriter, end: int) -> bytes:
    """Return that journal's checkpoint, with this commit end."""
    checkpoint = other.checkpoint(durable_end=end, commit_end=end)
    bases = tuple(base for base in checkpoint.bases if base < end)
    return encode_checkpoint(checkpoint._replace(bases=bases))


OTHER = alike(other=(5, 100, 180))
UNEVEN = JournalWriter()
for _ in range(100):
    UNEVEN.data(7, 0, [b"x" * 700])
UNEVEN_ENDS = [h.end for h in UNEVEN.headers if h.end not in {own.end for own in OWN.headers}]


@pytest.mark.parametrize("uncommitted", [False, True])
@pytest.mark.parametrize(
    ("other", "end", "why"),
    [
        (OTHER, OTHER.headers[120].end, "has CRC"),
        (OTHER, OTHER.headers[30].end, "has CRC"),
        (OTHER, BASES[1], "has CRC"),
        (UNEVEN, UNEVEN_ENDS[-1], "no batch ends at"),
    ],
    ids=["far", "near", "segment", "uneven"],
)
def test_a_checkpoint_of_another(
    tmp_path: Path, other: JournalWriter, end: int, why: str, uncommitted: bool
) -> None:
    """It would leave out the batches that it does not know, and no one would notice."""
    a = write(tmp_path / "a", OWN)
    (a / CHECKPOINT).write_bytes(foreign(other, end))
    with pytest.raises(CorruptJournal, match=f"a/checkpoint belongs to another journal .*{why}"):
        read([a], uncommitted=uncommitted)
    good = write(tmp_path / "good", OWN)
    assert len(read([a, good])) == 220
    assert "is left out" in "".join(survey([str(a), str(good)]).notices)


def test_older_checkpoint_of_the_same_journal_is_accepted(tmp_path: Path) -> None:
    a = write(tmp_path / "a", OWN)
    for header in OWN.headers:
        (a / CHECKPOINT).write_bytes(foreign(OWN, header.end))
        survey([str(a)])


def test_damage_does_not_make_a_checkpoint_anothers(tmp_path: Path) -> None:
    """In the batch that it names, and in one before it."""
    for at in (OWN.headers[120].position, OWN.headers[100].position):
        a = write(tmp_path / str(at), OWN, durable_end=OWN.headers[120].end)
        flip(a, at + 20)
        with pytest.raises(CorruptJournal, match=f"damaged at position {at}"):
            read([a])
