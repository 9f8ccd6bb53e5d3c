"""A name that is given as "", as from an unset shell variable, is refused by every command."""

import shlex
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import fmqclient
from fmqcli import common, given_names, main
from fmqcli.commands import dev
from fmqcli.tests.test_inputs import callbacks

PARSERS = {given_names.__name__, "fmqspark.cli.main"}
TEXTS: dict[str, set[str]] = {
    "broker settings": set(),
    "broker permit": {"permission"},
    "broker run": {"changes"},
    "consume": {"start", "format"},
    "dev up": {"changes"},
    "group seek": {"to", "queue"},
    "job": {"rate", "master"},
    "job archive": {"group"},
    "ordered switch": {"reason"},
    "produce": {"key", "key_separator", "header", "tag", "acks"},
    "replay": {"acks"},
    "topic": {"group", "groups"},
}
"""Parameters that are no names, or lists of names with weights (`topic --group`), by command."""


def may_be_any_text(command: str, parameter: str) -> bool:
    return any(parameter in names for part, names in TEXTS.items() if part in command)


@pytest.mark.parametrize("name", ["produce", *main._ELSEWHERE])
def test_each_parameter_of_text_is_a_parsed_name(name: str) -> None:
    """This finds a new option that takes an empty name for every topic, or its default."""
    for command, callback in callbacks(main.build([name]), f"fmq {name}"):
        for parameter, hint in get_type_hints(callback, include_extras=True).items():
            infos = [m for m in getattr(hint, "__metadata__", ()) if hasattr(m, "parser")]
            if infos and "str" in str(hint.__origin__) and not may_be_any_text(command, parameter):
                parser = infos[0].parser
                assert parser is not None, f"{command} {parameter}"
                assert parser.__module__ in PARSERS, f"{command} {parameter}"


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command of the test may ask a broker or ZooKeeper."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a broker is asked")

    monkeypatch.setattr(fmqclient, "connect", refuse)
    monkeypatch.setattr(dev, "_run", refuse)
    for variable in ("FMQ_CLUSTER", "FMQ_ZOOKEEPER", "FMQ_BROKERS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("group delete billing --topic '' -y", "'' is no name for a topic"),
        ("group delete '' -y", "'' is no name for a consumer group"),
        ("group lag ''", "'' is no name for a consumer group"),
        ("group seek billing '' --to latest", "'' is no name for a topic"),
        ("ordered status ''", "'' is no name for a topic"),
        ("ordered switch ''", "'' is no name for a topic"),
        ("ordered switch changes --off ''", "'' is no name for a group"),
        ("ordered release '' 1", "'' is no name for a topic"),
        ("ordered release '' 1 -y", "'' is no name for a topic"),
        ("topic create '' ", "'' is no name for a topic"),
        ("topic create t --groups ''", "--groups is for ordered topics"),
        ("topic create t --ordered --groups ''", "--groups '' must be GROUP[:WEIGHT]"),
        ("topic describe ''", "'' is no name for a topic"),
        ("topic alter '' -q 9", "'' is no name for a topic"),
        ("topic alter t --groups ''", "--groups '' must be GROUP[:WEIGHT]"),
        ("topic delete ''", "'' is no name for a topic"),
        ("consume ''", "'' is no name for a topic"),
        ("consume t -g ''", "'' is no name for a consumer group"),
        ("produce '' -f /dev/null", "'' is no name for a topic"),
        ("produce t -f /dev/null --group ''", "'' is no name for a group"),
        ("produce t -f /dev/null --ordered --name ''", "'' is no name for a sender"),
        ("status -b ''", "the address of the brokers is empty"),
        ("failover '' --to g1-0 -z z:1 -c c", "'' is no name for a group"),
        ("failover g1 --to '' -z z:1 -c c", "'' is no name for a broker"),
        ("failover g1 --to g1-0 --lost '' -z z:1 -c c", "'' is no name for a broker"),
        ("failover g1 --to g1-0 -z '' -c c", "the address of ZooKeeper is empty"),
        ("cluster show -z z:1 -c ''", "'' is no name for a cluster"),
        ("cluster begin-again '' -z z:1 -c c", "'' is no name for a group"),
        ("cluster remove-group '' -z z:1 -c c -y", "'' is no name for a group"),
        ("broker permit '' READ -z z:1 -c c", "'' is no name for a broker"),
        ("broker run --cluster ''", "'' is no name for a cluster"),
        ("broker run --listen ''", "the address to listen on is empty"),
        ("dev up --zookeeper ''", "the address of ZooKeeper is empty"),
        ("dev kill ''", "'' is no name for a broker"),
        ("journal dump . --topic ''", "'' is no name for a topic"),
        ("job replay . --topic t --to ''", "'' is no name for a topic"),
        ("job replay . --topic t --name ''", "'' is no name for a replay"),
        ("job replay . --topic t --group ''", "'' is no name for a group"),
        ("job check . --ordered ''", "'' is no name for a topic"),
        ("job archive . --out x --topic ''", "'' is no name for a topic"),
        ("job archive . --out x --connect ''", "the address of the brokers is empty"),
    ],
)
def test_empty_name_is_wrong_usage_before_anything_is_asked(
    line: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(shlex.split(line)) == common.USAGE
    assert reason in capsys.readouterr().err


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize("option", ["-z ''", "-c ''"])
def test_empty_option_does_not_give_way_to_the_file(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('cluster = "prod"\nzookeeper = "127.0.0.1:1"\n')
    assert main.run(shlex.split(f"cluster apply -f {file} {option}")) == common.USAGE
    assert "is no name for a cluster" in (err := capsys.readouterr().err) or "is empty" in err


@pytest.mark.usefixtures("unconnected")
def test_empty_variable_is_as_an_unset_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FMQ_CLUSTER", "")
    assert main.run(["cluster", "show", "-z", "z:1"]) == common.USAGE
    assert "the cluster's name is missing: give --cluster NAME" in capsys.readouterr().err
