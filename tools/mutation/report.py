"""The table of `tools/mutation/RESULTS.md`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tools.mutation.verdicts import OUTCOMES

PAGE: Final = Path(__file__).resolve().parent / "RESULTS.md"
_BEGIN: Final = "<!-- the table that `make mutate MUTATE=--write` writes -->"
_END: Final = "<!-- end of the table -->"


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """One line per module with the number of each outcome; the last line is the sum."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result["file"], Counter()).update(("planted", result["outcome"]))
    columns = ("planted", *OUTCOMES)
    lines = ["| module | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    total = sum(counts.values(), Counter())
    for name, row in [(f"`{file}`", row) for file, row in sorted(counts.items())] + [
        ("all", total)
    ]:
        lines.append(f"| {name} | " + " | ".join(str(row[each]) for each in columns) + " |")
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """The page with its table replaced by the new one."""
    place = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.S)
    assert place.search(page)
    return place.sub(lambda _: f"{_BEGIN}\n\n{text}\n\n{_END}", page)
