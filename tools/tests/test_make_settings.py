"""The settings page has every setting, and a stale page is refused."""

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from fmqbroker.runtime.settings import BrokerSettings
from fmqclient.settings import ConsumerSettings, ProducerSettings

TOOL = Path(__file__).resolve().parents[1] / "make_settings.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_settings", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_setting(tool: ModuleType) -> None:
    text = tool.page()
    names = {*BrokerSettings.model_fields}
    for settings in (ProducerSettings, ConsumerSettings):
        names |= {field.name for field in dataclasses.fields(settings)} - {"client_name"}
    names |= {"operator.logLevel", "quickstart.zookeeper.enabled", "FMQ_BROKERS"}
    assert [name for name in names if f"| `{name}` | " not in text] == []
    assert "| `offsets_retention_ms` | 604800000 (7 days) | from 0 | ms | " in text


def test_a_stale_page_is_refused(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--check"]) == 0
    copy = tmp_path / "settings.md"
    copy.write_text(tool.PAGE.read_text().replace("604800000", "1"))
    vars(tool)["PAGE"] = copy
    assert tool.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0


def test_a_variable_that_is_not_listed_is_refused(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    vars(tool)["COMMANDS"] = tool.COMMANDS[1:]
    assert tool.main(["--check"]) == 1
    assert "FMQ_BROKERS" in capsys.readouterr().err
