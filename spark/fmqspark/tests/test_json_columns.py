"""Values as columns of their fields: each rule, and random messages against Python's own parser."""

import json
import math
import platform
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from fmqspark.source.fields import CORRUPT, understand_fields

pytestmark = pytest.mark.spark


def read(ddl: str, values: Sequence[bytes], *asked: str) -> dict[str, list[Any]]:
    import pyarrow as pa

    from fmqspark.source.json_columns import FieldReader

    fields = understand_fields(ddl, "", ())
    reader = FieldReader(fields, asked or [each.column for each in fields])
    made = reader.read(pa.array(values, pa.binary()))
    assert {name: column.type for name, column in made.items()} == reader.types
    return {name: column.to_pylist() for name, column in made.items()}


BAD = "corrupt"
CASES: list[tuple[str, bytes, Any]] = [
    *[
        (kind, value, None)
        for kind in ("string", "double", "int", "boolean")
        for value in (b"{}", b'{"a":null}', b"", b" \n", b"null", b'{"b":{"a":1}}', b'{"A":1}')
    ],
    *[
        (kind, value, BAD)
        for kind in ("string", "double", "int", "boolean")
        for value in (
            *(b"[1]", b'[{"a":1}]', b"3", b'"x"', b'{"a":1', b'{"a":01}', b"{'a':1}", b"not json"),
            *(b'{"a":1} {"a":2}', b'\xff{"a":1}', b'{"a":"\xfe"}', b'\xef\xbb\xbf{"a":1}', b"\0"),
        )
    ],
    ("string", b'{"a":"x\\ny\\u0041\\ud83d\\ude00"}', "x\nyA\U0001f600"),
    ("string", '{"a":"ü€"}'.encode(), "ü€"),
    ("string", b'{"a":"\\"q\\""}', '"q"'),
    ("string", b'{"a":""}', ""),
    ("string", b'{"a":"null"}', "null"),
    ("string", b'{"a":"1\\u00002"}', "1\x002"),
    ("string", b'{"a":[1, {"b":"c"}]}', '[1,{"b":"c"}]'),
    ("string", b'{"a":1.50}', "1.5"),
    ("string", b'{"a":true}', "true"),
    ("string", b'{"a":"1","a":"2"}', "1"),
    ("string", b'{\n"a":\n"1"\n}\n', "1"),
    ("double", b'{"a":1}', 1.0),
    ("double", b'{"a":-1.5e3}', -1500.0),
    ("double", b'{"a":1e400}', math.inf),
    ("double", b'{"a":0.1234567890123456789}', 0.12345678901234568),
    ("double", b'{"a":"1"}', BAD),
    ("double", b'{"a":true}', BAD),
    ("double", b'{"a":[1]}', BAD),
    ("float", b'{"a":0.5}', 0.5),
    ("boolean", b'{"a":true}', True),
    ("boolean", b'{"a":false}', False),
    ("boolean", b'{"a":1}', BAD),
    ("boolean", b'{"a":"true"}', BAD),
    ("tinyint", b'{"a":-128}', -128),
    ("tinyint", b'{"a":128}', BAD),
    ("smallint", b'{"a":32767}', 32767),
    ("smallint", b'{"a":32768}', BAD),
    ("int", b'{"a":-2147483648}', -(2**31)),
    ("int", b'{"a":2147483648}', BAD),
    ("bigint", b'{"a":9223372036854775807}', 2**63 - 1),
    ("bigint", b'{"a":9223372036854775808}', BAD),
    ("bigint", b'{"a":1.0}', BAD),
    ("bigint", b'{"a":1e3}', BAD),
    ("bigint", b'{"a":1e18}', BAD),
    ("bigint", b'{"a":"12"}', BAD),
]


def test_each_rule() -> None:
    """Alone and among others: a message that is no JSON does not affect its neighbours, nor does
    another named field or a malformed message.
    """
    for kind in {kind for kind, _, _ in CASES}:
        cases_of_kind = [(value, want) for each, value, want in CASES if each == kind]
        ddl = f"a {kind}, {CORRUPT} STRING"
        values = [value for value, _ in cases_of_kind]
        together = read(ddl, values)
        beside = read(f"{ddl}, other INT", values)
        assert {name: beside[name] for name in together} == together
        assert read(f"a {kind}", values) == {"a": together["a"]}
        for number, (value, want) in enumerate(cases_of_kind):
            alone = read(ddl, [value])
            assert read(f"a {kind}", [value]) == {"a": alone["a"]}
            for found, at in ((together, number), (alone, 0)):
                bad = value.decode(errors="replace") if want is BAD else None
                assert found[CORRUPT][at] == bad, (kind, value)
                assert found["a"][at] == (None if want is BAD else want), (kind, value)


def test_corrupt_record_is_judged_by_all_fields() -> None:
    values = [b'{"a":1,"b":"x"}', b'{"a":"1","b":"x"}', b'{"b":2}', b"{"]
    ddl = f"a INT, b STRING, {CORRUPT} STRING"
    whole = read(ddl, values)
    assert whole == {
        "a": [1, None, None, None],
        "b": ["x", "x", "2", None],
        CORRUPT: [None, '{"a":"1","b":"x"}', None, "{"],
    }
    assert read(ddl, values, "b", CORRUPT) == {name: whole[name] for name in ("b", CORRUPT)}
    assert read(ddl, values, CORRUPT) == {CORRUPT: whole[CORRUPT]}
    assert read(ddl, values, "b") == {"b": whole["b"]}
    assert read(f"{CORRUPT} STRING", [*values, b"[]", b""])[CORRUPT] == [
        *(None, None, None, "{", "[]", None)
    ]


def test_no_values_and_very_deep_ones() -> None:
    assert read(f"a INT, {CORRUPT} STRING", []) == {"a": [], CORRUPT: []}
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert read("a STRING", [deep])["a"] == [deep[5:-1].decode()]
    assert read("a INT", [b"[" * 100_000])["a"] == [None]


def test_names_that_mean_something_elsewhere() -> None:
    ddl = "`it's` INT, `x.y` INT, `a[0]` INT, `$` INT, `` `` INT, `0` INT, `a b` INT, `é` INT"
    ddl = ddl.replace("`` ``", "````")
    names = ["it's", "x.y", "a[0]", "$", "`", "0", "a b", "é"]
    value = json.dumps({name: number for number, name in enumerate(names)} | {"x": {"y": 9}})
    assert read(ddl, [value.encode(), b"[7]"]) == {
        name: [number, None] for number, name in enumerate(names)
    }


KINDS = {"s": "STRING", "d": "DOUBLE", "l": "BIGINT", "i": "INT", "b": "BOOLEAN"}


def test_random_messages() -> None:
    """Python's own parser gives the expected fields."""
    rng = random.Random(4711)
    values = [_random_value(rng) for _ in range(5000)]
    found = read(", ".join(f"{n} {k}" for n, k in KINDS.items()) + f", {CORRUPT} STRING", values)
    for number, value in enumerate(values):
        fields, corrupt = _truth(value)
        assert {name: found[name][number] for name in KINDS} == fields, value
        assert (found[CORRUPT][number] is not None) == corrupt, value
    assert 500 < sum(each is not None for each in found[CORRUPT]) < 4500


def _random_value(rng: random.Random) -> bytes:
    def thing(depth: int) -> Any:
        whole = rng.choice([0, -1, 2**31, -(2**31), 2**63 - 1, 2**63, rng.randrange(10**6)])
        text = "".join(rng.choice('ab"\\\n\u20ac\U0001f600 {}[],:null') for _ in range(5))
        things: list[Any] = [
            None,
            True,
            False,
            whole,
            rng.uniform(-1e9, 1e9),
            0.5,
            text,
            text,
            "",
            "12",
        ]
        if depth:
            things += [[thing(depth - 1)], {"s": thing(depth - 1)}]
        return rng.choice(things)

    names = [name for name in [*KINDS, "x", "y"] if rng.random() < 0.4]
    rng.shuffle(names)
    given = {name: thing(2) for name in names}
    value = json.dumps(given, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1]))
    raw = value.encode()
    return raw if rng.random() < 0.9 else raw[: rng.randrange(len(raw))]


def _truth(value: bytes) -> tuple[dict[str, Any], bool]:
    fields: dict[str, Any] = dict.fromkeys(KINDS)
    if not value.strip():
        return fields, False
    try:
        given = json.loads(value)
    except ValueError:
        return fields, True
    corrupt = False
    for name in KINDS:
        if given.get(name) is not None:
            fields[name] = _field(name, given[name])
            corrupt |= fields[name] is None
    return fields, corrupt


def _field(name: str, given: Any) -> Any:
    match name, given:
        case "s", str():
            return given
        case "s", float():
            return repr(given)
        case "s", _:
            return json.dumps(given, ensure_ascii=False, separators=(",", ":"))
        case "b", bool():
            return given
        case "d", int() | float() if not isinstance(given, bool):
            return float(given)
        case "l" | "i", int() if not isinstance(given, bool):
            most = 2**63 if name == "l" else 2**31
            return given if -most <= given < most else None
        case _:
            return None


def test_fields_beside_other_columns_and_within_offsets() -> None:
    from fmqcore.scan.selection import Range
    from fmqspark.source.arrow import record_batch, schema, stored
    from fmqspark.source.json_columns import FieldReader
    from fmqspark.tests.test_arrow import NAMES, slabs, writer_of

    values = [b'{"n":%d}' % i if i % 3 else b"?" for i in range(10)]
    writer = writer_of({"values": values[:4]}, {"values": values[4:]})
    fields = understand_fields(f"n LONG, {CORRUPT} STRING", "", ())
    for columns in (("n",), ("n", "offset"), ("offset", CORRUPT, "value", "n")):
        within = FieldReader(fields, columns)
        assert stored(columns) == ("value",)
        rows: list[dict[str, Any]] = []
        for slab in slabs(writer, stored(columns)):
            batch = record_batch(slab, columns, NAMES, Range(2, 9), within)
            batch.validate(full=True)
            assert batch.schema == schema(columns, within)
            rows += batch.to_pylist()
        assert [row["n"] for row in rows] == [i if i % 3 else None for i in range(2, 9)]
        if CORRUPT in columns:
            assert [row[CORRUPT] for row in rows] == [None if i % 3 else "?" for i in range(2, 9)]
            assert [row["value"] for row in rows] == values[2:9]


def test_large_batches_are_not_joined_and_read_the_same() -> None:
    """Values then lie in chunks: those that are no JSON, or no UTF-8, as well."""
    import pyarrow as pa

    from fmqcore.errors import CorruptJournal
    from fmqspark.source.arrow import _Build, record_batch
    from fmqspark.source.json_columns import FieldReader
    from fmqspark.tests.test_arrow import NAMES, slabs, writer_of

    rng = random.Random(4712)
    values = [_random_value(rng) for _ in range(1000)]
    ddl = ", ".join(f"{n} {k}" for n, k in KINDS.items()) + f", {CORRUPT} STRING"
    columns = (*KINDS, CORRUPT, "offset")
    within = FieldReader(understand_fields(ddl, "", ()), columns)
    writer = writer_of(*({"values": values[i : i + 200]} for i in range(0, 1000, 200)))
    (slab,) = slabs(writer, ("value",))
    batch = record_batch(slab, columns, NAMES, within=within)
    batch.validate(full=True)
    stored = _Build(slab, NAMES).values()
    assert isinstance(stored, pa.ChunkedArray)
    assert stored.num_chunks == 5
    expected = read(ddl, values)
    assert {name: batch.column(name).to_pylist() for name in expected} == expected
    assert any(expected[CORRUPT])

    falling = bytearray(slab.columns["value"].offsets[3])
    falling[4:8] = (2**31 - 1).to_bytes(4, "little")
    slab.columns["value"].offsets[3] = memoryview(bytes(falling))
    with pytest.raises(CorruptJournal, match="do not rise"):
        record_batch(slab, columns, NAMES, within=within)


SLABS = """
import resource, sys
from fmqspark.spark.partitions import _keep_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    slab = [bytes(b"x" * (4 << 20)) for _ in range(8)]
    del slab
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
if sys.argv[1:]:
    _keep_memory()
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has the setting")
def test_the_memory_of_a_slab_serves_the_next_one() -> None:
    """Read into fresh pages, each slab of 32 MiB would be 8,192 faults, or fewer huge ones."""
    sizes = [
        int(subprocess.check_output([sys.executable, "-c", SLABS, *more], text=True))
        for more in ([], ["kept"])
    ]
    assert sizes[1] * 10 < sizes[0]
