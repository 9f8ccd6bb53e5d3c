"""The journal that the benchmarks read is an ordinary one."""

from pathlib import Path

from bench import journal
from fmqcore.batch.columns import encode
from fmqcore.journal.segments import MIN_SEGMENT
from fmqcore.scan.selection import Wanted
from fmqspark.check.job import Options, run_check
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.files import Throttle
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader
from fmqspark.source.survey import survey


def test_benchmark_journal_is_clean_and_fully_read(tmp_path: Path) -> None:
    file = journal.JournalFile(tmp_path / "j", MIN_SEGMENT)
    for n in range(200):
        file.add(*encode([b"x" * n] * 3), 3)
    file.close()
    outcome = run_check(Options((tmp_path / "j",), Level.DEEP), LocalEngine())
    assert (outcome.exit_code, outcome.findings) == (0, [])
    found = survey([str(tmp_path / "j")])
    assert set(found.names.values()) == {"flights"}
    splits = plan(found, Wanted())
    readers = [SplitReader(split, ("value",), Throttle(0)) for split in splits]
    assert sum(slab.records for reader in readers for slab in reader) == 600
    assert len(found.segments) > 1
