"""Write a generated page, or check that it is as it would be written: for the `make_*.py` here."""

import sys
from collections.abc import Sequence
from pathlib import Path


def update(page: Path, text: str, tool: str, arguments: Sequence[str]) -> int:
    """Write `text`; with --check, return 1 if the page differs from it.

    `tool`: the `__file__` of the caller. `arguments`: of the command line.
    """
    if "--check" not in arguments:
        page.write_text(text)
        return 0
    if page.exists() and page.read_text() == text:
        return 0
    name = f"{page.parent.name}/{page.name}"
    print(f"{name} is stale: python tools/{Path(tool).name}", file=sys.stderr)
    return 1
