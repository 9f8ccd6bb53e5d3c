"""Turn fields of JSON messages into columns; DuckDB, used only here, parses the messages.

Each value is parsed by itself and no Python runs per record. As with Spark's PERMISSIVE mode, a
value never fails the query:

- A field that is missing, or JSON's null: null. If a name comes twice, the first one counts.
- A field of another type: null, and the record is *corrupt*. STRING takes anything: if it is not a
  string, its JSON text. Integer types take integers that fit (1.0 is not one), DOUBLE and FLOAT any
  number (too large: infinity), BOOLEAN true and false. Text in quotes is a STRING only.
- A value that is not JSON, not UTF-8, or not an object: all fields null, and the record is corrupt.
  A value that is empty, blank or `null`: all fields null, and the record is not corrupt.
- `_corrupt_record` is the value of a corrupt record (bytes that are not UTF-8 replaced), else null.
  It considers all fields that the option `json` names, whichever columns are asked for.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fmqcore.errors import Unavailable
from fmqspark.source.fields import CORRUPT, Field

TYPES: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_SETTINGS: Final[dict[str, Any]] = {
    "threads": 1,
    "enable_external_access": False,
    "temp_directory": "",
}
"""A worker has one core; nothing is read from or left on disk, nothing fetched."""

# `x` is a field's JSON text as DuckDB writes it: a string in quotes, `null`, `1.5`.
_NUMBER: Final = "TRY_CAST({x} AS {type})"
_WHOLE: Final = f"CASE WHEN NOT (contains({{x}}, '.') OR contains({{x}}, 'e')) THEN {_NUMBER} END"
_TRUTH: Final = "CASE {x} WHEN 'true' THEN true WHEN 'false' THEN false END"
_TEXT: Final = r"""CASE WHEN starts_with({x}, '"') THEN
  CASE WHEN contains({x}, '\') THEN json_extract_string({x}, '$') ELSE trim({x}, '"') END
  WHEN {x} <> 'null' THEN {x} END"""
_READ: Final = {
    "boolean": _TRUTH,
    "tinyint": _WHOLE,
    "smallint": _WHOLE,
    "int": _WHOLE,
    "bigint": _WHOLE,
    "float": _NUMBER,
    "double": _NUMBER,
    "string": _TEXT,
}


class FieldReader:
    """Make columns of fields from a column of values; `asked` are the columns to make.

    Raises `Unavailable` if DuckDB is not installed.
    """

    def __init__(self, fields: Sequence[Field], asked: Sequence[str]) -> None:
        self.types = {each.column: TYPES[each.kind] for each in fields if each.column in asked}
        self._judged = CORRUPT in self.types
        self._fields = [
            each
            for each in fields
            if each.column != CORRUPT and (self._judged or each.column in self.types)
        ]
        self._duck = _duckdb()

    def read(self, values: Any) -> dict[str, Any]:
        """Return the columns of a binary array without nulls, or of such arrays in chunks."""
        text, unreadable, table = self._parsed(values)
        assert table.num_rows == len(values), "a row of fields for each value"
        columns = {}
        for number, each in enumerate(self._fields):
            if each.column in self.types:
                column = table.column(f"f{number}").combine_chunks()
                columns[each.column] = column.cast(self.types[each.column])
        if self._judged:
            corrupt = table.column("corrupt").combine_chunks()
            found = _corrupt(text, corrupt, values, unreadable)
            columns[CORRUPT] = _in_one(found)
        return columns

    def _parsed(self, values: Any) -> tuple[Any, Any, Any]:
        """Return the values as text, which of them are not UTF-8, and the fields.

        Each value is parsed once, but twice in a slab where one is not JSON, which is an error. A
        value that is not UTF-8 is an error of the parser, too, so UTF-8 is checked only after an
        error.
        """
        text = _in_chunks(values)
        with suppress(*_errors()):
            return text, None, self._asked(text, "v")
        text, unreadable = _as_text(values)
        return text, unreadable, self._asked(text, "CASE WHEN json_valid(v) THEN v END")

    def _asked(self, text: Any, good: str) -> Any:
        """Run the query on a view by name: planned in half the time of a separate relation."""
        self._duck.register("given", pa.table({"v": text}))
        try:
            return self._duck.sql(self._query(good)).to_arrow_table()
        finally:
            self._duck.unregister("given")

    def _query(self, good: str) -> str:
        """Return the SQL; `good`: the value, or null if it is not JSON."""
        paths = [_quoted(f'$."{each.name}"') for each in self._fields]
        # A list of one costs a tenth of the parsing.
        xs = ["x"] if len(paths) == 1 else [f"x[{i + 1}]" for i in range(len(paths))]
        read = [
            _READ[each.kind].format(x=x, type=each.kind)
            for x, each in zip(xs, self._fields, strict=True)
        ]
        columns = [f"{one} AS f{number}" for number, one in enumerate(read)]
        if self._judged:
            columns.append(f"{_judge(xs)} AS corrupt")
        within = f"CAST(json_extract(j, [{', '.join(paths)}]) AS VARCHAR[])" if paths else "NULL"
        if len(paths) == 1:
            within = f"CAST(json_extract(j, {paths[0]}) AS VARCHAR)"
        values = f"SELECT v, {good} AS j FROM given"
        fields = f"SELECT v, j, {within} AS x FROM ({values})"
        return f"SELECT {', '.join(columns)} FROM ({fields})"


_NO_OBJECT: Final = r"""coalesce(json_type(j) NOT IN ('OBJECT', 'NULL'),
  v IS NULL OR trim(v, e' \t\r\n') <> '')"""


def _judge(xs: Sequence[str]) -> str:
    """Return the SQL for whether a record is corrupt.

    That it may be no object is checked only if no field is there.
    """
    if not xs:
        return _NO_OBJECT  # nothing but `_corrupt_record` is named
    none = " AND ".join(f"{x} IS NULL" for x in xs)
    wrong = " OR ".join(f"({x} <> 'null' AND f{i} IS NULL)" for i, x in enumerate(xs))
    return f"CASE WHEN {none} THEN {_NO_OBJECT} ELSE coalesce({wrong}, false) END"


def _in_chunks(values: Any) -> Any:
    """Return the values as text, unchecked."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([each.view(pa.string()) for each in values.chunks], pa.string())
    return values.view(pa.string())


def _as_text(values: Any) -> tuple[Any, Any]:
    """Return the values as text, null where they are not UTF-8, and which these are, or None."""
    try:
        return values.cast(pa.string()), None
    except pa.ArrowInvalid:  # one of thousands: find it
        each = [_is_text(value.as_py()) for value in values]
        unreadable = pa.array([not good for good in each])
        kept = pc.if_else(unreadable, pa.scalar(None, pa.binary()), values)
        return kept.cast(pa.string()), unreadable


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _corrupt(text: Any, corrupt: Any, values: Any, unreadable: Any) -> Any:
    found = pc.if_else(corrupt, text, pa.scalar(None, pa.string()))
    if unreadable is None:
        return found
    rough = [
        value.as_py().decode(errors="replace") if bad.as_py() else None
        for value, bad in zip(values, unreadable, strict=True)
    ]
    return pc.coalesce(found, pa.array(rough, pa.string()))


def _in_one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _errors() -> tuple[type[Exception], ...]:
    """Return the errors for a value that is not JSON.

    `UnicodeDecodeError`: DuckDB cannot name the value, as it is not text.
    """
    import duckdb

    return duckdb.Error, UnicodeDecodeError


@cache
def _duckdb() -> Any:
    """Return this process's DuckDB connection. Raises `Unavailable`."""
    try:
        import duckdb
    except ImportError as error:
        raise Unavailable(
            f"the option json needs DuckDB ({error}): pip install 'fmq-broker[spark]'"
        ) from None
    return duckdb.connect(":memory:", config=_SETTINGS)
