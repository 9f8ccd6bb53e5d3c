"""A job's output is apart from its input, and each replica has its own files."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fmqcli.main import run as run_fmq
from fmqspark.tests.kit import write
from fmqspark.tests.test_cli import run

COMMANDS = ("check", "archive")


def listed(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.spark
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("through", ["by its name", "by a link"])
def test_job_does_not_write_into_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, through: str
) -> None:
    home = tmp_path / "home"
    a, b = write(home / "a" / "data"), write(tmp_path / "b")
    if through == "by a link":
        (tmp_path / "there").symlink_to(home)
        home = tmp_path / "there"
    before = listed(tmp_path)
    seen = home / "a" / "data"
    cases = [
        (seen, f"--out {seen} is a data directory"),
        (seen / "sub" / "deep", f"lies within the data directory {a}"),
        (seen / "checkpoint", f"lies within the data directory {a}"),
        (home / "x" / ".." / "a" / "data" / "x", f"lies within the data directory {a}"),
        (home / "a", f"the data directory {a} lies within it"),
        (tmp_path, f"the data directory {b} lies within it"),
    ]
    for out, sentence in cases:
        code, output, err = run(capsys, command, b, a, "--out", out)
        assert (code, output, err.count("\n")) == (64, "", 1), err
        assert sentence in err
    assert listed(tmp_path) == before


@pytest.mark.spark
def test_output_beside_a_data_directory_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "home" / "data")
    for out in (tmp_path / "home" / "data-lake", tmp_path / "home" / "new" / "lake"):
        assert run(capsys, "check", a, "--out", out)[0] == 0
        assert run(capsys, "archive", a, "--out", out)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "DIR", "--out", ""],
        ["archive", "DIR", "--out", ""],
        ["check", "DIR", ""],
        ["archive", "", "DIR", "--out", "x"],
        ["rebuild-index", ""],
    ],
)
def test_empty_name_is_not_the_working_directory(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    given = [str(write(tmp_path / "a")) if one == "DIR" else one for one in arguments]
    here = write(tmp_path / "here")
    monkeypatch.chdir(here)
    before = listed(tmp_path)
    code, output, err = run(capsys, *given)
    assert (code, output) == (64, "")
    assert "the folder's name is empty" in err
    assert run_fmq(["job", *given]) == 64
    assert listed(tmp_path) == before


def hard_links(a: Path, b: Path) -> None:
    shutil.copytree(a, b, copy_function=os.link)


def links(a: Path, b: Path) -> None:
    b.mkdir()
    for file in a.iterdir():
        (b / file.name).symlink_to(file)


def one_hard_link(a: Path, b: Path) -> None:
    """As a copy that shares what it can: the sealed segments are the same, the others are not."""
    shutil.copytree(a, b)
    name = sorted(file.name for file in a.glob("*.journal"))[3]
    (b / name).unlink()
    (b / name).hardlink_to(a / name)


def a_link_to_it(a: Path, b: Path) -> None:
    b.symlink_to(a)


@pytest.mark.spark
@pytest.mark.parametrize("same", [hard_links, links, one_hard_link, a_link_to_it])
@pytest.mark.parametrize("command", ["check", "archive", "rebuild-index"])
def test_same_files_twice_are_not_two_replicas(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    same: Callable[[Path, Path], None],
    command: str,
) -> None:
    """Comparing them with each other would make "clean" meaningless."""
    a, b, c = write(tmp_path / "a"), tmp_path / "b", write(tmp_path / "c")
    same(a, b)
    out = ["--out", tmp_path / "out"] if command == "archive" else []
    for given in ((a, b), (a, c, b), (b, c, a)):
        code, output, err = run(capsys, command, *given, *out)
        assert (code, output, err.count("\n")) == (64, "", 1), err
        assert "name each replica once" in err
        assert same is a_link_to_it or (str(a) in err and str(b) in err)
    assert not (tmp_path / "out").exists()
    for other in (a, b):
        assert run(capsys, command, other, c, *out)[0] == 0


def test_broken_links_are_not_taken_for_the_same_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A segment link to itself, or to nothing, is reported as what it is."""
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    first, second = sorted(file.name for file in a.glob("*.journal"))[3:5]
    for each in (a, b):
        (each / second).unlink()
        (each / second).symlink_to(tmp_path / "nowhere")
    (b / first).unlink()
    (b / first).symlink_to(b / first)
    code, _, err = run(capsys, "check", a, b)
    assert code in (2, 3)
    assert "name each replica once" not in err
