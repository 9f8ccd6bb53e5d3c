"""What a job writes is apart from what it reads, and each replica is another one."""

from pathlib import Path

import pytest

from fmqclient.cli.main import run as run_fmq
from fmqspark.tests.kit import write
from fmqspark.tests.test_cli import run

COMMANDS = ("check", "archive")


def listed(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.spark
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("through", ["by its name", "by a link"])
def test_what_a_job_writes_does_not_go_where_it_reads(
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
        code, said, err = run(capsys, command, b, a, "--out", out)
        assert (code, said, err.count("\n")) == (64, "", 1), err
        assert sentence in err
    assert listed(tmp_path) == before


@pytest.mark.spark
def test_what_lies_beside_a_data_directory_is_no_part_of_it(
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
def test_no_name_is_not_the_folder_one_happens_to_be_in(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    given = [str(write(tmp_path / "a")) if one == "DIR" else one for one in arguments]
    here = write(tmp_path / "here")
    monkeypatch.chdir(here)
    before = listed(tmp_path)
    code, said, err = run(capsys, *given)
    assert (code, said) == (64, "")
    assert "a folder's name is empty" in err
    assert run_fmq(["job", *given]) == 64
    assert listed(tmp_path) == before
