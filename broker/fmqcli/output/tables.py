"""Tables for people: numbers and names in one piece, the last column broken if need be.

On a terminal that is too narrow the last column is folded into the space that is left, or, if that
is too little, put below its row. Output that is not for a terminal is never folded: other programs
read it.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.cells import cell_len

_GAP: Final = 2
_LEAST: Final = 28
"""Least width of the last column beside the others; with less, it is put below its row."""
_INDENT: Final = "    "
_NUMBERS: Final = frozenset(
    ("queues", "committed", "begin", "end", "lag", "epoch", "weight", "flight", "id", "members")
)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None) -> list[str]:
    """Return the lines, the header first. `width`: the terminal's; None: unlimited."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(columns))]
    before = sum(widths[:-1]) + _GAP * (len(widths) - 1)
    if width is None or before + widths[-1] <= width or _is_number(columns[-1]):
        return [_line(columns, row, widths) for row in cells]
    if width - before >= _LEAST:
        return [line for row in cells for line in _folded(columns, row, widths, width - before)]
    return [line for row in cells for line in _below(columns, row, widths, width)]


def _folded(
    columns: Sequence[str], row: Sequence[str], widths: Sequence[int], room: int
) -> list[str]:
    first, *more = textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
    indent = " " * (sum(widths[:-1]) + _GAP * (len(widths) - 1))
    return [_line(columns, [*row[:-1], first], widths), *(indent + line for line in more)]


def _below(
    columns: Sequence[str], row: Sequence[str], widths: Sequence[int], width: int
) -> list[str]:
    lines = [_line(columns[:-1], row[:-1], widths)]
    if row[-1] != "-":
        room = max(width - len(_INDENT), _LEAST)
        lines += [_INDENT + line for line in textwrap.wrap(row[-1], room, break_on_hyphens=False)]
    return lines


def _line(columns: Sequence[str], row: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, text, width in zip(columns, row, widths, strict=False):
        blank = " " * (width - cell_len(text))
        parts.append(blank + text if _is_number(column) else text + blank)
    return (" " * _GAP).join(parts).rstrip()


def _is_number(column: str) -> bool:
    return column.isupper() and column.lower() in _NUMBERS


def _cell(value: Any) -> str:
    """Return a value in one line, without control characters: a client chooses its own name."""
    text = "-" if value in ("", None) else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
