"""The option `json`: its valid values, and the errors for others."""

import pytest

from fmqcore.errors import InvalidArgument
from fmqspark.source.fields import KINDS, Field, understand_fields
from fmqspark.source.options import COLUMNS, understand


def test_a_ddl_is_understood() -> None:
    text = " a DOUBLE,`b c` string , d:Int, `e``f` BIGINT,_corrupt_record STRING,"
    assert understand_fields(text, "v_", ("offset",)) == (
        Field("v_a", "a", "double"),
        Field("v_b c", "b c", "string"),
        Field("v_d", "d", "int"),
        Field("v_e`f", "e`f", "bigint"),
        Field("_corrupt_record", "_corrupt_record", "string"),
    )
    same = {"byte": "tinyint", "SHORT": "smallint", "integer": "int", "long": "bigint"}
    for written, kind in (same | {kind: kind for kind in KINDS}).items():
        assert understand_fields(f"x {written}", "", ()) == (Field("x", "x", kind),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "option json is empty"),
        ("a", "cannot be parsed from 'a' on"),
        ("a DOUBLE, b", "cannot be parsed from 'b' on"),
        ("a.b INT", "cannot be parsed from 'a.b INT' on"),
        ("a DOUBLE b INT", "DOUBLEb INT, not one of boolean"),
        ("a INT NOT NULL", "NOT NULL, not one of"),
        (
            "a STRUCT<b: INT, c: INT>",
            "'a' is STRUCT: nested types are not supported; read it as STRING",
        ),
        ("x INT, a array<int>", "'a' is ARRAY"),
        ("a MAP<STRING, INT>", "'a' is MAP"),
        (
            "a DECIMAL(10,2)",
            "'a' has the type DECIMAL\\(10, not one of .* read it as STRING and cast",
        ),
        ("a TIMESTAMP", "'a' has the type TIMESTAMP, not one of"),
        ("a INT, A INT", "the column 'A', which exists"),
        ("Offset LONG", "the column 'Offset', which exists .* set option jsonPrefix"),
        ("_corrupt_record INT", "_corrupt_record must be a STRING"),
        ('`a"` INT', "must not hold a quote"),
        ("`a*` INT", "must not hold a quote"),
    ],
)
def test_invalid_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        understand_fields(text, "", COLUMNS)


def test_fields_among_the_options() -> None:
    given = {"path": "/x", "json": "offset LONG, a INT", "jsonPrefix": "m_", "columns": "m_a,key"}
    request = understand(given)
    assert [each.column for each in request.fields] == ["m_offset", "m_a"]
    assert request.columns == ("m_a", "key")
    with pytest.raises(InvalidArgument, match="set option jsonPrefix"):
        understand({"path": "/x", "json": "offset LONG"})
    with pytest.raises(InvalidArgument, match="option jsonPrefix needs option json"):
        understand({"path": "/x", "jsonPrefix": "m_"})


def test_the_columns_are_those_that_arrow_makes() -> None:
    arrow = pytest.importorskip("fmqspark.source.arrow")
    assert tuple(arrow.TYPES) == COLUMNS
