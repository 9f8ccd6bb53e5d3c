"""Data directories for the tests of `fmq journal`, and the commands run on them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fmqcli.commands.journal import app
from fmqcore.ids import Position
from fmqcore.journal.segments import segment_name
from fmqcore.tests.journal.writer import JournalWriter, sample

FIRST = segment_name(Position(0))


def write(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir(exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


@pytest.fixture
def writer() -> JournalWriter:
    return sample(batches=120)


@pytest.fixture
def directory(tmp_path: Path, writer: JournalWriter) -> Path:
    return write(tmp_path / "data", writer.files(writer.checkpoint()))


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def verify(directory: Path) -> tuple[int, dict[str, Any]]:
    code, out, _ = run("verify", directory, "-o", "json")
    found = json.loads(out)
    assert found["exit_code"] == code
    return code, found


def codes(found: dict[str, Any]) -> list[str]:
    return sorted({finding["code"] for finding in found["findings"]})


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)
