"""SEAL, which closes a segment of an ordered topic: it disturbs no job."""

from pathlib import Path

import pytest

from fmqclient.tests.journal_directory import run
from fmqcore.batch.header import BatchType
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.rebuild.job import Done, rebuild
from fmqspark.tests.chain_kit import GroupWriter, batches
from fmqspark.tests.kit import check, codes, write
from fmqspark.tests.test_source import read, truth


def sealed() -> GroupWriter:
    """Return a journal of several segment files with a SEAL in each, and one as its last batch."""
    writer = GroupWriter()
    for number, (first, last) in enumerate(batches(1, 9000, 60), 1):
        writer.send(0, first, last)
        if number % 30 == 0:
            writer.seal(number // 30)
    assert len(writer.segments) > 2
    assert writer.headers[-1].type == BatchType.SEAL
    return writer


@pytest.mark.parametrize("level", list(Level))
def test_check_finds_nothing_wrong_with_seals(tmp_path: Path, level: Level) -> None:
    a, b = write(tmp_path / "a", sealed()), write(tmp_path / "b", sealed())
    assert codes(check(a, b, level=level)) == []


def test_journal_verify_and_records_know_seals(tmp_path: Path) -> None:
    a = write(tmp_path / "a", sealed())
    assert run("verify", a)[0] == 0
    code, out, _ = run("dump", a)
    assert (code, "SEAL" in out) == (0, True)


def test_records_are_read_past_seals(tmp_path: Path) -> None:
    writer = sealed()
    rows = read([write(tmp_path / "a", writer)])
    assert [row[1:] for row in rows] == [row[1:] for row in truth(writer)[0]]


def test_indexes_are_rebuilt_past_seals(tmp_path: Path) -> None:
    a = write(tmp_path / "a", sealed())
    before = {p.name: p.read_bytes() for p in a.glob("*.index")}
    for path in a.glob("*.index"):
        path.unlink()
    assert {r.done for r in rebuild([a], LocalEngine())} == {Done.REBUILT, Done.OPEN}
    assert {p.name: p.read_bytes() for p in a.glob("*.index")} == before
