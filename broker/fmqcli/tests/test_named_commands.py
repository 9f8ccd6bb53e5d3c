"""A command that a message or a document names exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command

from fmqcli.main import build
from fmqcore.error_spec import ERRORS

ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = ("broker", "operator", "spark")
_NAMED: Final = re.compile(
    r"(?<!install )(?<!upgrade )(?<![\w.\-/'\[])"  # helm's release, an address, a file, an extra
    r"fmq ([a-z][a-z-]*)(?: ([a-z][a-z-]*(?:\|[a-z-]+)*))?"
)
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def commands() -> dict[str, frozenset[str]]:
    """Return each command's sub-commands; empty: it has none."""
    names: Any = get_command(build([])).commands  # type: ignore[attr-defined]
    out = {}
    for name in names:
        command = get_command(build([name])).commands[name]  # type: ignore[attr-defined]
        out[name] = frozenset(getattr(command, "commands", ()))
    return out


def unknown_in(text: str, known: dict[str, frozenset[str]]) -> list[str]:
    """Return the commands that the text names and `fmq` does not have."""
    return [m[0] for m in _NAMED.finditer(text) if not _exists(known, m[1], m[2] or "")]


def _exists(known: dict[str, frozenset[str]], name: str, rest: str) -> bool:
    if name not in known:
        return False
    return not known[name] or all(part in known[name] for part in rest.split("|") if part)


def texts() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of each string in the product and each page."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "tests" not in path.parts and "mutants" not in path.parts:
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield str(path.relative_to(ROOT)), path.read_text()


def test_every_named_command_exists() -> None:
    known = commands()
    wrong = [f"{place}: {name}" for place, text in texts() for name in unknown_in(text, known)]
    assert not wrong


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("`fmq topic show`", ["fmq topic show"]),
        ("fmq topic list|shown", ["fmq topic list|shown"]),
        ("fmq tpic list; fmq status", ["fmq tpic list"]),
        ("`fmq consume orders`, `fmq topic create`, [fmq a] and ./fmq b", []),
    ],
)
def test_an_unknown_command_is_found(text: str, unknown: list[str]) -> None:
    assert unknown_in(text, commands()) == unknown


def test_every_runbook_that_an_error_names_exists() -> None:
    headings = _HEADING.findall((ROOT / "docs/operations/runbooks.md").read_text())
    for spec in ERRORS:
        for name in re.findall(r'runbook "([^"]+)"', spec.advice):
            assert name in headings, spec.kind
