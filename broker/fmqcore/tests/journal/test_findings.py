"""What findings about a directory add up to."""

from collections.abc import Sequence

import pytest

from fmqcore.batch.header import BatchFault
from fmqcore.ids import Position
from fmqcore.journal.findings import (
    FAULT_CODES,
    MISSING,
    REFILL,
    Code,
    Finding,
    Severity,
    error,
    warning,
    with_what_is_there,
    worst,
)

BAD = error(Code.J001, "f", Position(8), MISSING, Position(16))
HEALS = warning(Code.I001, "f", None, "it is old", "nothing")


@pytest.mark.parametrize(
    ("findings", "severity"),
    [
        ([], None),
        ([HEALS], Severity.WARNING),
        ([BAD], Severity.ERROR),
        ([HEALS, BAD], Severity.ERROR),
        ([BAD, HEALS, HEALS], Severity.ERROR),
    ],
)
def test_the_worst_of_all_counts(findings: Sequence[Finding], severity: Severity | None) -> None:
    assert worst(findings) is severity


def test_a_finding_says_what_where_and_what_to_do() -> None:
    assert (
        Finding(Code.J001, Severity.ERROR, "f", Position(8), MISSING, REFILL, Position(16)) == BAD
    )
    assert str(BAD) == f"J001 f, position 8: {MISSING}; remedy: {REFILL}"
    assert str(HEALS) == "I001 f: it is old; remedy: nothing"


def test_what_stands_in_the_place_of_a_missing_file_is_named() -> None:
    assert with_what_is_there(BAD, "") == BAD
    found = with_what_is_there(BAD, "a pipe")
    assert found == BAD._replace(sentence="a pipe stands in the file's place")
    assert with_what_is_there(HEALS, "a pipe") == HEALS


def test_every_fault_of_a_scan_has_a_code() -> None:
    assert set(FAULT_CODES) == set(BatchFault)
