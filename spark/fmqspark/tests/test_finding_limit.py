"""Very many findings of one kind: the first ones, and the rest as one."""

from pathlib import Path

import pytest

from fmqcore.batch.header import HEADER_LEN, BatchType
from fmqcore.ids import Position
from fmqcore.journal.findings import Code, Finding, error
from fmqcore.journal.segments import segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check.finding_limit import FEW, few
from fmqspark.tests.kit import check, rows, write


def found(number: int, code: Code = Code.J002) -> Finding:
    begin = Position(number * 8)
    return error(code, "file", begin, f"no {number}", Position(begin + 4))


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_findings_up_to_the_limit_stay_as_they_are(count: int) -> None:
    some = [found(n) for n in range(count)]
    assert few(some, 3) == some


def test_findings_above_the_limit_are_merged_per_kind() -> None:
    some = [found(n, Code.J003 if n % 3 == 2 else Code.J002) for n in range(9)]
    reported = few(some, 2)
    assert [f.position for f in reported] == [0, 8, 16, 24, 40, 64]
    rest = reported[3]
    assert (rest.code, rest.end) == (Code.J002, 7 * 8 + 4)
    assert rest.sentence == "this and 3 more of this kind, the last at 56: no 3"
    assert few([f._replace(end=None) for f in some], 2)[3].end is None


def test_a_rotten_segment(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    for _ in range(400):
        writer.data(7, 0, [b"x"])
    a = write(tmp_path / "a", writer)
    data = [h for h in writer.headers if h.type == BatchType.DATA]
    path = a / segment_name(Position(0))
    raw = bytearray(path.read_bytes())
    bad = [h for h in data if h.end < len(raw)][:250:2]
    for header in bad:
        raw[header.position + HEADER_LEN] ^= 1
    path.write_bytes(raw)
    outcome = check(a)
    assert [f.begin for f in outcome.findings] == [h.position for h in bad[: FEW + 1]]
    rest = outcome.findings[-1]
    assert rest.end == bad[-1].end
    assert f"this and {len(bad) - FEW - 1} more of this kind" in rest.sentence
    assert rows(outcome, "damaged")[FEW:] == [("a", bad[FEW].position, bad[-1].end)]
    assert sum(c.end - c.begin for c in outcome.coverage) == sum(s.size for s in outcome.segments)
    assert outcome.exit_code == 2
