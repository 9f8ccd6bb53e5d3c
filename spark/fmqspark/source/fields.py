"""Parse the option `json` of the Spark source: which fields of messages are columns. Pure.

`json` is a Spark DDL of plain types, `dep_delay DOUBLE, carrier STRING`; each name is a field at
the top of the message's object and becomes a column, with the prefix `jsonPrefix`.
`fmqspark.source.json_columns` describes their values.
"""

import re
from typing import Final, NamedTuple

from fmqcore.errors import InvalidArgument

CORRUPT: Final = "_corrupt_record"
"""The column, if the option names it, of messages that do not match it; named as Spark's."""

_TYPES: Final = {
    "boolean": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
}
KINDS: Final = tuple(dict.fromkeys(_TYPES.values()))
"""The types that a field may have, by Spark's names."""

_NOT_IN_NAMES: Final = frozenset('"\\*\0')
_NESTED: Final = frozenset({"struct", "array", "map", "variant"})
_ITEM: Final = re.compile(
    r"""\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\W\d]\w*))   # name
        (?:\s*:\s*|\s+)
        (?P<type>[A-Za-z]\w*)
        \s*(?P<more>[(<])?
        (?P<rest>[^,]*)(?:,|$)""",
    re.VERBOSE,
)


class Field(NamedTuple):
    """One column: the message's field of that name, as that type."""

    column: str
    name: str
    kind: str


def understand_fields(text: str, prefix: str, taken: tuple[str, ...]) -> tuple[Field, ...]:
    """Return the fields of a DDL; `taken` names the other columns. Raises `InvalidArgument`."""
    fields: list[Field] = []
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise InvalidArgument(
                f"option json cannot be parsed from {text[at:].strip()[:40]!r} on: write fields "
                "like 'dep_delay DOUBLE, `a name` STRING'"
            )
        fields.append(_field(item, prefix))
        at = item.end()
    if not fields:
        raise InvalidArgument(
            "option json is empty: name fields like 'dep_delay DOUBLE, carrier STRING'"
        )
    _require_distinct(fields, taken)
    return tuple(fields)


def _field(item: "re.Match[str]", prefix: str) -> Field:
    quoted, plain, kind, more, rest = item.group("quoted", "plain", "type", "more", "rest")
    name = quoted.replace("``", "`") if quoted else plain
    if not _NOT_IN_NAMES.isdisjoint(name):
        raise InvalidArgument(f"json field {name!r} must not hold a quote, backslash, * or zero")
    if kind.lower() in _NESTED:
        raise InvalidArgument(
            f"json field {name!r} is {kind.upper()}: nested types are not supported; read it as "
            "STRING, its JSON text, and use from_json on the column"
        )
    if kind.lower() not in _TYPES or more or rest.strip():
        raise InvalidArgument(
            f"json field {name!r} has the type {kind}{more or ''}{rest.rstrip()}, not one of "
            f"{', '.join(KINDS)}: read it as STRING and cast the column (for a number of more than "
            "15 digits, use from_json on value: the column is not exact)"
        )
    if name == CORRUPT:
        if _TYPES[kind.lower()] != "string":
            raise InvalidArgument(
                f"json field {CORRUPT} must be a STRING: it holds messages that do not match the "
                "other fields"
            )
        return Field(CORRUPT, name, "string")
    return Field(prefix + name, name, _TYPES[kind.lower()])


def _require_distinct(fields: list[Field], taken: tuple[str, ...]) -> None:
    """Raise `InvalidArgument` for two columns of one name, as Spark compares names."""
    seen = {name.lower() for name in taken}
    for field in fields:
        if field.column.lower() in seen:
            raise InvalidArgument(
                f"json field {field.name!r} needs the column {field.column!r}, which exists (Spark "
                "ignores case): set option jsonPrefix, a prefix of all json columns"
            )
        seen.add(field.column.lower())
