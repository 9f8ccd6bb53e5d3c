"""Archive an ordered topic of which records are gone: reported, noted, and named to a replay."""

from dataclasses import replace
from pathlib import Path

import pytest

from fmqcore.ids import Offset
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqcore.ordered.headers import header_sender
from fmqcore.zk.chain import Chain, Floor, RecordPlace, Segment
from fmqspark.archive.ledger import Hole, Ledger, Unit, load
from fmqspark.archive.replay import Replay
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.options import understand
from fmqspark.source.ordered import plan_ordered
from fmqspark.tests.chain_kit import (
    CHAIN,
    G1,
    G2,
    TOPIC,
    GroupWriter,
    chain_file,
    members,
    named,
    sound,
)
from fmqspark.tests.kit import data_batch, flip, write

pytestmark = pytest.mark.spark
GROUP = "ordered-changes"
END = replace(CHAIN.segments[2], number=4, end=(61, 9))
FIRST = Unit(1 * 65536, 1 * 65536 + 1)


def archived(folder: Path, chain: Chain, *directories: str) -> tuple[int, int, list[Unit]]:
    """Archive into `folder`/out; return exit code, rows, and what is given up."""
    from fmqspark.archive.ordered import archive_ordered

    given = {"path": ",".join(directories), "chain": str(chain_file(folder, chain))}
    outcome = archive_ordered(understand(given), folder / "out", LocalEngine())
    return outcome.exit_code, outcome.rows, outcome.lost


def ledger(folder: Path) -> Ledger:
    known = load(folder / "out", GROUP)
    assert known is not None
    return known


class LongSegment:
    """One segment of g1 over four journal segments, of which `short` lacks the first two."""

    def __init__(self, folder: Path) -> None:
        writer, sequence = GroupWriter(), 1
        while len(writer.segments) < 4:
            header = header_sender(1, sequence)._asdict()
            writer.data(TOPIC, 0, [b"%d" % sequence + b"x" * 900], **header)
            sequence += 1
        bases = sorted(writer.segments)
        self.records = sequence - 1
        self.kept = sum(
            header.record_count
            for header in writer.headers
            if header.topic_id == TOPIC and header.position >= bases[2]
        )
        short = write(folder / "g1-0", writer, journal_start=bases[2])
        for base in bases[:2]:
            (short / segment_name(base)).unlink(missing_ok=True)
        self.short = f"g1={short}"
        self.full = f"g1={write(folder / 'g1-1', writer)}"
        self.other = f"g2={write(folder / 'g2-0', GroupWriter())}"
        parts = (
            Segment(1, G1, 1, (1,), (0,), (self.records,)),
            Segment(2, G2, 1, (sequence,), (0,)),
        )
        self.chain = replace(CHAIN, queues=1, segments=parts)


# ---- what retention took
def test_begin_that_retention_deleted_is_reported_as_lost(tmp_path: Path) -> None:
    """The rest is archived; a replay stops there, and goes on only with --skip-lost."""
    part = LongSegment(tmp_path)
    found = archived(tmp_path, part.chain, part.short, part.other)
    assert found == (3, part.kept, [FIRST])
    assert 0 < part.kept < part.records
    stopped = Replay(tmp_path / "out", "changes", None, "again")
    assert (stopped.whole, list(stopped.chunks())) == (False, [])
    replay = Replay(tmp_path / "out", "changes", None, "again", skip_lost=True)
    assert sum(len(records) for records, _ in replay.chunks()) == part.kept
    assert archived(tmp_path, part.chain, part.short, part.other) == (0, 0, [])


def test_replica_with_all_is_archived_from(tmp_path: Path) -> None:
    part = LongSegment(tmp_path)
    found = archived(tmp_path, part.chain, part.short, part.full, part.other)
    assert found == (0, part.records, [])
    assert Replay(tmp_path / "out", "changes", None, "again").whole


def test_nothing_is_given_up_beside_an_unread_directory(tmp_path: Path) -> None:
    part = LongSegment(tmp_path)
    checkpoint = Path(part.full.partition("=")[2], CHECKPOINT)
    stored = checkpoint.read_bytes()
    checkpoint.write_bytes(b"")
    given = (part.short, part.full, part.other)
    assert archived(tmp_path, part.chain, *given) == (3, 0, [])
    assert ledger(tmp_path).pending == [FIRST]
    checkpoint.write_bytes(stored)
    assert archived(tmp_path, part.chain, *given) == (0, part.records, [])
    assert ledger(tmp_path).holes == []


# ---- what the chain has dropped
def dropped(floor: Floor, chain: Chain = CHAIN) -> Chain:
    """Return the chain as it is once its first segments are dropped."""
    left = tuple(segment for segment in chain.segments if segment.number > floor.number)
    return replace(chain, segments=left, floor=floor)


TWO = Floor(2, 1, (70, 6), (), (RecordPlace(1, 70, 2, G2, Offset(31)), None))
"""The floor above segments 1 and 2 of `CHAIN`."""


def test_segments_dropped_before_the_first_run_are_lost(tmp_path: Path) -> None:
    given = named(members(tmp_path))
    lost = Unit(1 * 65536, 3 * 65536)
    assert archived(tmp_path, dropped(TWO), *given) == (3, 0, [lost])
    assert ledger(tmp_path).holes == [Hole(*lost, lost=True)]
    assert archived(tmp_path, dropped(TWO), *given) == (0, 0, [])


def test_dropped_segments_that_are_archived_are_not_lost(tmp_path: Path) -> None:
    given = named(members(tmp_path))
    assert archived(tmp_path, CHAIN, *given) == (0, 76, [])
    assert archived(tmp_path, dropped(TWO), *given) == (0, 0, [])
    assert ledger(tmp_path).holes == []


def test_part_that_waited_is_lost_once_dropped(tmp_path: Path) -> None:
    given = members(tmp_path)
    for member in given[:2]:
        flip(Path(member.path), data_batch(10, sound().g1).position + 100)
    code, _, lost = archived(tmp_path, CHAIN, *named(given))
    assert (code, lost) == (2, [])
    assert archived(tmp_path, dropped(TWO), *named(given)) == (3, 0, [FIRST])
    assert ledger(tmp_path).holes == [Hole(*FIRST, lost=True)]


def test_empty_segment_that_was_seen_is_not_lost(tmp_path: Path) -> None:
    """Segment 3 got no record, and then segment 4 all of them."""
    empty = replace(CHAIN.segments[2], end=CHAIN.segments[2].start)
    last = replace(CHAIN.segments[2], number=4)
    chain = replace(CHAIN, segments=(*CHAIN.segments[:2], empty, last))
    ended = replace(chain, closing="it is switched off", segments=(*chain.segments[:3], END))
    given = named(members(tmp_path))
    assert archived(tmp_path, chain, *given) == (0, 76, [])
    floor = Floor(4, 1, (89, 9), (), (RecordPlace(1, 89, 4, G1, Offset(60)), None))
    assert archived(tmp_path, ended, *given) == (0, 22, [])
    assert archived(tmp_path, dropped(floor, ended), *given) == (0, 0, [])


def test_segments_dropped_without_a_record_are_not_lost(tmp_path: Path) -> None:
    given = named(members(tmp_path))
    assert archived(tmp_path, CHAIN, *given) == (0, 76, [])
    empty = replace(TWO, number=5)
    last = replace(CHAIN.segments[2], number=6)
    chain = replace(CHAIN, segments=(last,), floor=empty)
    assert archived(tmp_path, chain, *given) == (0, 0, [])


def test_read_reports_what_the_chain_has_dropped(tmp_path: Path) -> None:
    given = {"path": ",".join(named(members(tmp_path)))}
    file = chain_file(tmp_path, dropped(TWO))
    (notice,) = plan_ordered(understand(given | {"chain": str(file)})).notices
    assert notice.startswith("nothing is read of segments 1 to 2: the chain has dropped them")
    assert "a named consumer group" in notice
