"""A pipe, a folder or a link in the place of a segment's file: reported as what it is."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fmqcli.commands.journal import app
from fmqcore.journal.segments import segment_name
from fmqspark.tests.kit import check, code_rows, journal

Make = Callable[[Path], object]
BASES = sorted(journal().segments)


@pytest.mark.parametrize("number", [0, 2, len(BASES) - 1])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "a pipe"),
        (os.mkdir, "a folder"),
        (lambda path: path.symlink_to("nowhere"), "a link that leads to no file"),
        (lambda path: path.symlink_to(os.devnull), "a link that leads to no file"),
    ],
)
def test_non_file_is_reported_by_its_kind(a: Path, number: int, make: Make, what: str) -> None:
    path = a / segment_name(BASES[number])
    path.unlink()
    make(path)
    outcome = check(a)
    assert code_rows(outcome) == [("J005", "error", BASES[number])]
    sentence = f"{what} stands in the file's place, and the checkpoint names it"
    assert outcome.findings[0].sentence == sentence
    for command in ("verify", "ls"):
        ran = CliRunner().invoke(app, [command, str(a)])
        assert ran.exit_code == 2
        assert sentence in ran.output.replace("\n", " ")


def test_missing_file_is_reported_as_missing(a: Path) -> None:
    (a / segment_name(BASES[2])).unlink()
    [found] = check(a).findings
    assert found.sentence == "the file is missing, and the checkpoint names it"
