"""Path arguments: `-` is standard input wherever a file is read; an empty text is an error."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from fmqcli import common, main
from fmqcli.cluster_file import ClusterSpec
from fmqcli.stdio.input_paths import STANDARD_INPUT, file_to_read, folder, read_table
from fmqcli.tests.test_cluster import TOML
from fmqcore.errors import InvalidArgument

PARSERS = {"file_to_read", "folder", "_file", "_folder"}


def callbacks(app: typer.Typer, path: str) -> Iterator[tuple[str, Any]]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"{path} {command.callback.__name__}", command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from callbacks(group.typer_instance, f"{path} {group.name}")


@pytest.mark.parametrize("name", ["produce", *main._ELSEWHERE])
def test_each_path_argument_is_parsed_by_these(name: str) -> None:
    """This finds a new path argument that takes `-` or an empty text for a name."""
    for command, callback in callbacks(main.build([name]), "fmq"):
        for parameter, hint in get_type_hints(callback, include_extras=True).items():
            infos = [m for m in getattr(hint, "__metadata__", ()) if hasattr(m, "parser")]
            if infos and "Path" in str(get_args(hint)[0]):
                parser = infos[0].parser
                assert parser is not None, f"{command} {parameter}"
                assert parser.__name__ in PARSERS, f"{command} {parameter}"


def test_a_dash_is_standard_input_and_dot_dash_is_a_file() -> None:
    assert file_to_read("-") == STANDARD_INPUT
    assert file_to_read("./-") == Path("-").absolute()
    assert file_to_read("a/b") == Path("a/b")


@pytest.mark.parametrize("parse", [file_to_read, folder])
def test_an_empty_path_is_not_the_working_directory(parse: object) -> None:
    with pytest.raises(typer.BadParameter, match="name is empty"):
        parse("")  # type: ignore[operator]


def test_a_dash_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in ("dev up --dir -", "demo --dir -", "journal ls -", "dev down --dir -"):
        assert main.run(line.split()) == common.USAGE, line
        assert "a folder is needed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ['{"a": {"b": 1}}', " \n {\n}", "[a]\nb = 1\n", ""])
def test_a_table_on_standard_input_is_json_or_toml(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_table(STANDARD_INPUT, "settings") in ({"a": {"b": 1}}, {})


def test_mistake_on_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[a")))
    with pytest.raises(InvalidArgument, match=r"^standard input: "):
        read_table(STANDARD_INPUT, "settings")
    wrong = TOML.replace("10.0.0.2:9876", "10.0.0.2").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(wrong)))
    with pytest.raises(InvalidArgument, match=r"^standard input: groups\.g1\.members\.1\.address"):
        ClusterSpec(STANDARD_INPUT)


def test_a_cluster_file_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TOML.encode())))
    assert [str(g.group) for g in ClusterSpec(STANDARD_INPUT).groups] == ["g1", "g2"]


@pytest.mark.parametrize("line", ["produce t -f -", "produce t", "cluster apply -f -"])
def test_closed_standard_input_is_reported(line: str) -> None:
    command = ["sh", "-c", f"exec {sys.executable} -m fmq {line} <&-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == common.USAGE
    assert "standard input is closed" in done.stderr


def test_broker_settings_come_from_standard_input() -> None:
    command = [sys.executable, "-m", "fmq", "broker", "run", "--config", "-"]
    done = subprocess.run(
        command, input="heart = 1\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == common.USAGE
    assert "setting heart: there is no setting of that name" in done.stderr
