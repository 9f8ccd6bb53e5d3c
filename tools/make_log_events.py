"""Writes `docs/reference/log-events.md`: every event that a broker or the operator logs.

    python tools/make_log_events.py [--check]

Names, levels and fields come from the calls in the code; `--check` (in `make check`) fails if the
page differs from them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for a run as a file

from tools.generated_page import update

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "log-events.md"
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
SOURCES: Final = (
    ("A broker", ("broker/fmqbroker", "broker/fmqadapters")),
    ("The operator", ("operator/fmqoperator",)),
)
HEAD: Final = """# Log events

A broker and the operator log lines of `key=value` to standard error. Generated:
`python tools/make_log_events.py`. `reason` is a sentence. *Where* is the package.
Events that libraries log are not listed.
"""


class Event(NamedTuple):
    """One call that logs."""

    name: str
    level: str
    fields: tuple[str, ...]
    where: str


def main(arguments: list[str]) -> int:
    """Write the page; with --check, return 1 if it is not as it would be written."""
    return update(PAGE, page(), __file__, arguments)


def page() -> str:
    """Return the whole page."""
    parts = [f"## {title}\n\n{table(events(folders))}" for title, folders in SOURCES]
    return HEAD + "\n" + "\n\n".join(parts) + "\n"


def table(found: list[Event]) -> str:
    """Return one row per event name: its levels, fields and packages."""
    rows = ["| event | level | fields | where |", "|---|---|---|---|"]
    for name in sorted({event.name for event in found}):
        same = [event for event in found if event.name == name]
        levels = sorted({event.level for event in same}, key=LEVELS.index)
        fields = sorted({field for event in same for field in event.fields})
        where = sorted({event.where for event in same})
        cells = (f"`{name}`", ", ".join(levels), ", ".join(fields), ", ".join(where))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def events(folders: tuple[str, ...]) -> list[Event]:
    """Return every call that logs an event with a constant name below the folders."""
    return [
        event
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "tests" not in path.parts
        for event in events_of(ast.parse(path.read_text()), package_of(path))
    ]


def events_of(tree: ast.AST, where: str) -> Iterator[Event]:
    """Yield the events that a module logs: `_log.info("name", field=...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        target = ast.unparse(node.func.value)
        if node.func.attr not in LEVELS or "log" not in target.lower() or not node.args:
            continue
        fields = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        for name in names_of(node.args[0]):
            yield Event(name, node.func.attr, fields, where)


def names_of(node: ast.expr) -> Iterator[str]:
    """Yield the constant names of an argument: one, or both of a conditional expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from names_of(node.body)
        yield from names_of(node.orelse)


def package_of(path: Path) -> str:
    """Return the package and its first room, as `fmqbroker.journal`."""
    parts = path.relative_to(ROOT).parts[1:3]
    return ".".join(part for part in parts if not part.endswith(".py"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
