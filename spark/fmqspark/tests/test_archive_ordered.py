"""Archive an ordered topic: ended segments in order, once, with their chain; and back again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fmqcore.names import MAX_NAME
from fmqcore.zk.chain import Floor, Segment
from fmqcore.zk.chain_json import chain_from_json
from fmqspark.archive.ledger import Unit, scratch_name
from fmqspark.archive.replay import Replay
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.options import understand
from fmqspark.tests.chain_kit import (
    CHAIN,
    G1,
    G2,
    GroupWriter,
    chain_file,
    members,
    named,
    ordered_rows,
)
from fmqspark.tests.kit import write

pytestmark = pytest.mark.spark
ENDED = replace(
    CHAIN,
    closing="switched",
    segments=(*CHAIN.segments[:2], replace(CHAIN.segments[2], end=(61, 9))),
)


def test_archive_keeps_order_segment_and_sequence(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from fmqspark.archive.ordered import archive_ordered

    out = tmp_path / "out"
    paths = ",".join(named(members(tmp_path)))
    open_chain = str(chain_file(tmp_path))
    first = archive_ordered(understand({"path": paths, "chain": open_chain}), out, LocalEngine())
    assert (first.exit_code, first.rows) == (0, 40 + 30 + 6)
    given = {"path": paths, "chain": str(chain_file(tmp_path, ENDED))}
    second = archive_ordered(understand(given), out, LocalEngine())
    assert (second.exit_code, second.rows) == (0, 19 + 3)
    assert archive_ordered(understand(given), out, LocalEngine()).rows == 0
    assert chain_from_json((out / "_fmq/ordered-changes.chain.json").read_bytes()) == ENDED
    rows = [
        row
        for file in sorted(out.glob("topic=changes/date=*/*.parquet"), key=lambda p: p.name)
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    found = [(r["queue"], r["segment"], r["sequence"], r["value"]) for r in rows]
    assert sorted(found, key=lambda r: r[0]) == ordered_rows()
    assert {(r["segment"], r["group"]) for r in rows} == {(1, "g1"), (2, "g2"), (3, "g1")}
    replayed = [
        (record.queue, record.value)
        for records, _ in Replay(out, "changes", None, "again").chunks()
        for record in records
    ]
    assert sorted(replayed, key=lambda r: r[0]) == [(r[0], r[3]) for r in ordered_rows()]
    assert json.loads(json.dumps(second.as_data()))["units"] == 2


def test_archive_command_takes_a_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fmqspark.cli.main import app

    out = tmp_path / "out"
    given = ["archive", "--chain", str(chain_file(tmp_path)), "--out", str(out)]
    given += named(members(tmp_path))
    assert app(args=given, prog_name="job", standalone_mode=False) in (None, 0)
    assert "76 records in " in capsys.readouterr().out
    assert app(args=[*given, "--group", "g1"], prog_name="job", standalone_mode=False) == 64
    assert "leave --connect" in capsys.readouterr().err


def test_archive_of_a_chain_names_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fmqspark.cli.main import app

    given = ["archive", "--chain", str(chain_file(tmp_path)), "--out", str(tmp_path / "out")]
    assert app(args=given, prog_name="job", standalone_mode=False) == 64
    shown = capsys.readouterr().err
    assert "name a data directory of each group, GROUP=DIR" in shown
    assert "spark.read" not in shown


def test_segments_that_are_archived_need_no_directory(tmp_path: Path) -> None:
    """The disks of g2 are away: its segment 2 is archived, and segment 3 of g1 ended since."""
    from fmqspark.archive.ordered import archive_ordered

    paths = named(members(tmp_path))
    given = {"path": ",".join(paths), "chain": str(chain_file(tmp_path))}
    first = archive_ordered(understand(given), tmp_path / "out", LocalEngine())
    assert (first.exit_code, first.rows) == (0, 40 + 30 + 6)
    for directories in (paths[:2], [*paths[:2], f"g2={tmp_path}/away"]):
        given = {"path": ",".join(directories), "chain": str(chain_file(tmp_path, ENDED))}
        again = archive_ordered(understand(given), tmp_path / "out", LocalEngine())
        assert again.exit_code == 0
    assert archive_ordered(understand(given), tmp_path / "out", LocalEngine()).rows == 0


def test_open_segment_needs_no_directory(tmp_path: Path) -> None:
    from fmqspark.archive.ordered import archive_ordered

    chain = replace(CHAIN, segments=(*CHAIN.segments[:1], replace(CHAIN.segments[1], end=None)))
    paths = [*named(members(tmp_path))[:2], f"g2={tmp_path}/away"]
    given = {"path": ",".join(paths), "chain": str(chain_file(tmp_path, chain))}
    outcome = archive_ordered(understand(given), tmp_path / "out", LocalEngine())
    assert (outcome.exit_code, outcome.rows) == (0, 46)


def test_older_chain_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    """Older by a segment, by an end that it does not know, or by what it has not dropped."""
    from fmqspark.archive.ordered import archive_ordered

    paths = ",".join(named(members(tmp_path)))
    floor = Floor(1, 1, (40, 6))
    dropped = replace(ENDED, segments=ENDED.segments[1:], floor=floor)
    fewer = replace(ENDED, segments=ENDED.segments[:2])
    for chain in (dropped, ENDED, CHAIN, fewer):
        given = {"path": paths, "chain": str(chain_file(tmp_path, chain))}
        archive_ordered(understand(given), tmp_path / "out", LocalEngine())
        stored = (tmp_path / "out/_fmq/ordered-changes.chain.json").read_bytes()
        assert chain_from_json(stored) == dropped


def test_damaged_copy_of_the_chain_is_replaced(tmp_path: Path) -> None:
    from fmqspark.archive.ordered import archive_ordered

    home = tmp_path / "out" / "_fmq"
    home.mkdir(parents=True)
    (home / "ordered-changes.chain.json").write_text("{")
    given = {"path": ",".join(named(members(tmp_path))), "chain": str(chain_file(tmp_path))}
    archive_ordered(understand(given), tmp_path / "out", LocalEngine())
    assert chain_from_json((home / "ordered-changes.chain.json").read_bytes()) == CHAIN


def test_scratch_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    from fmqspark.archive.ordered import archive_ordered

    given = {"path": ",".join(named(members(tmp_path))), "chain": str(chain_file(tmp_path))}
    archive_ordered(understand(given), tmp_path / "out", LocalEngine())
    home = tmp_path / "out" / "_fmq"
    scratch = home / scratch_name("ordered-changes", Unit(65536, 65537), "a" * 32)
    other = home / scratch_name("ordered-changes-b", Unit(65536, 65537), "a" * 32)
    for folder in (scratch, other):
        folder.mkdir()
        (folder / "x.part").touch()
    archive_ordered(understand(given), tmp_path / "out", LocalEngine())
    assert [path.name for path in home.glob("tmp-*")] == [other.name]


def test_longest_topic_is_archived_and_replayed(tmp_path: Path) -> None:
    from fmqspark.archive.ordered import archive_ordered

    groups = set()
    for last in "ab":
        topic = "c" * (MAX_NAME - 1) + last
        first = GroupWriter(topic)
        first.send(0, 1, 40)
        g1, g2 = (
            write(tmp_path / f"g1{last}", first),
            write(tmp_path / f"g2{last}", GroupWriter(topic)),
        )
        parts = (Segment(1, G1, 1, (1, 1), (0, 0), (40, 0)), Segment(2, G2, 1, (41, 1), (0, 0)))
        chain = replace(CHAIN, topic=topic, segments=parts)
        given = {"path": f"g1={g1},g2={g2}", "chain": str(chain_file(tmp_path, chain))}
        outcome = archive_ordered(understand(given), tmp_path / "out", LocalEngine())
        assert (outcome.exit_code, outcome.rows) == (0, 40)
        replay = Replay(tmp_path / "out", topic, outcome.group, "again")
        assert sum(len(records) for records, _ in replay.chunks()) == 40
        groups.add(outcome.group)
    assert len(groups) == 2
