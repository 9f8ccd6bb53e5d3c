"""The generated pages hold what the code has, and a stale page is refused."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[1]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["make_log_events", "make_crds_page"])
def test_a_stale_page_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = load(name)
    assert tool.main(["--check"]) == 0
    text = tool.page()
    copy = tmp_path / tool.PAGE.name
    copy.write_text(tool.PAGE.read_text() + "\n")
    monkeypatch.setattr(tool, "PAGE", copy)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "page", lambda: text)
    assert tool.main(["--check"]) == 1
    assert f"python tools/{name}.py" in capsys.readouterr().err
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0


def test_a_logged_event_has_its_levels_and_fields() -> None:
    tool = load("make_log_events")
    code = '_log.info("one" if x else "two", reason=x)\n_log.error("one", end=1)\nmath.log("no")\n'
    found = list(tool.events_of(tool.ast.parse(code), "a.b"))
    rows = tool.table(found).splitlines()[2:]
    assert rows == [
        "| `one` | info, error | end, reason | a.b |",
        "| `two` | info | reason | a.b |",
    ]


def test_a_field_has_its_default_bounds_and_meaning() -> None:
    tool = load("make_crds_page")
    size = {"type": "string", "default": "1Gi", "description": "How large."}
    schema = {
        "required": ["kind"],
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "disks": {"items": {"properties": {"size": size}}},
            "count": {"type": "integer", "minimum": 1, "default": 2},
        },
    }
    assert list(tool.fields(schema)) == [
        ("`kind`", "required", "`a`, `b`", ""),
        ("`disks[].size`", "`1Gi`", "string", "How large."),
        ("`count`", "`2`", "from 1", ""),
    ]
