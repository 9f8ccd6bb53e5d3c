"""The table of `docs/internals/mutation.md`."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/internals/mutation.md"
_BEGIN: Final = "<!-- the table that `make mutate MUTATE=--write` writes -->"
_END: Final = "<!-- end of the table -->"


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """One line per module: planted, caught, equivalent, survivors; the last line is the sum."""
    counts: dict[str, list[int]] = {}
    for result in results:
        row = counts.setdefault(result["file"], [0, 0, 0, 0])
        row[0] += 1
        row[("caught", "equivalent", "survived").index(result["outcome"]) + 1] += 1
    lines = ["| module | planted | caught | equivalent | survivors |", "|---|---|---|---|---|"]
    for file, row in sorted(counts.items()):
        lines.append(f"| `{file}` | " + " | ".join(map(str, row)) + " |")
    total = [sum(row[n] for row in counts.values()) for n in range(4)]
    return "\n".join([*lines, "| all | " + " | ".join(map(str, total)) + " |"])


def written(page: str, text: str) -> str:
    """The page with its table replaced by the new one."""
    place = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.S)
    assert place.search(page)
    return place.sub(lambda _: f"{_BEGIN}\n\n{text}\n\n{_END}", page)
