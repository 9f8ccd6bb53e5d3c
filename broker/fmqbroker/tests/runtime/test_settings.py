"""Broker settings, and how the command line takes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from fmqbroker.runtime.settings import BrokerSettings
from fmqcli import main
from fmqcli.commands import broker as cli

NAMED = {
    "cluster": "c",
    "group": "g1",
    "broker": "g1-0",
    "data_dir": "data",
    "zookeeper": "127.0.0.1:2181",
}


def test_the_defaults_fit_together() -> None:
    settings = BrokerSettings(**NAMED)  # type: ignore[arg-type]
    assert settings.listen == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster": "../etc"},
        {"group": ""},
        {"broker": "-x"},
        {"listen": "nowhere"},
        {"listen": "127.0.0.1:99999"},  # gRPC and asyncio would take 34463
        {"http_listen": "127.0.0.1:65536"},
        {"data_dir": ""},  # the current one
        {"heartbeat_ms": 6000},
        {"redial_min_ms": 5000},
        {"session_window_bytes": 1 << 40},
        {"segment_bytes": 100_001},
        {"max_payload_bytes": 2 << 20},
        # They are sent as 32 bits: a slave would end, or a consumer be refused, at the first.
        {"grant_ms": 2**32},
        {"consumer_heartbeat_ms": 2**32, "consumer_dead_after_ms": 2**33},
        {"nonsense": 1},
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BrokerSettings(**{**NAMED, **wrong})


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[BrokerSettings]:
    """Return the settings that the command line would start with."""
    found: list[BrokerSettings] = []

    def start(settings: BrokerSettings) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr("fmqbroker.app.main.run_broker", start)
    return found


def test_options_win_over_set_and_set_over_the_file(
    tmp_path: Path, given: list[BrokerSettings]
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        'cluster = "from-file"\ngroup = "from-file"\nbroker = "b"\ndata_dir = "d"\n'
        'zookeeper = "z:1"\nheartbeat_ms = 111\ncredit_bytes = 4_194_304\n'
    )
    options = ["--config", str(file), "--group", "g1", "--set", "heartbeat_ms=222"]
    assert CliRunner().invoke(cli.app, ["run", *options]).exit_code == 0
    (settings,) = given
    assert (settings.cluster, settings.group) == ("from-file", "g1")
    assert (settings.heartbeat_ms, settings.credit_bytes) == (222, 4_194_304)


def test_a_json_file_does_as_well(tmp_path: Path, given: list[BrokerSettings]) -> None:
    file = tmp_path / "broker.json"
    file.write_text(json.dumps(NAMED))
    assert CliRunner().invoke(cli.app, ["run", "--config", str(file)]).exit_code == 0
    assert given[0].broker == "g1-0"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "setting cluster: must be given"),
        (["--set", "nonsense=1"], "setting nonsense: there is no setting of that name"),
        (["--set", "heartbeat_ms"], "must be NAME=VALUE"),
        (["--set", "heartbeat_ms=soon"], "heartbeat_ms"),
        (["--listen", "9876"], "setting listen: must be host:port"),
        (["--config", "absent.toml"], "absent.toml"),
        (["--config", "settings.yaml"], "ends in .toml or .json"),
    ],
)
def test_wrong_settings_are_one_clear_line_each(
    capfd: pytest.CaptureFixture[str], options: list[str], text: str
) -> None:
    assert main.run(["broker", "run", *options]) == 64
    printed = capfd.readouterr()
    assert text in printed.err
    assert "Traceback" not in printed.out + printed.err


def test_settings_that_do_not_go_together_are_named() -> None:
    named = [f"--set={name}={value}" for name, value in NAMED.items()]
    done = CliRunner().invoke(cli.app, ["run", *named, "--set", "heartbeat_ms=9000"])
    assert done.exit_code == 64
    assert "heartbeat_ms is 9000, it may not be over grant_ms" in done.stderr


def test_every_setting_is_listed() -> None:
    listed = CliRunner().invoke(cli.app, ["settings"]).stdout
    for name in BrokerSettings.model_fields:
        assert f"{name} = " in listed
