"""The columns of a payload: valid ones round-trip, invalid ones are refused."""

from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.columns import BadColumns, check, decode, decode_headers, encode, encode_headers
from fmqcore.batch.header import Attrs

CELL = st.binary(max_size=40)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[bytes], dict[str, Any]]:
    count = draw(st.integers(1, 20))
    column = st.lists(CELL, min_size=count, max_size=count)
    born = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "keys": column,
        "tags": column,
        "headers": column,
        "born_ms": born,
    }
    chosen = {name: draw(kind) for name, kind in optional.items() if draw(st.booleans())}
    return draw(column), chosen


@given(batches())
def test_columns_round_trip(batch: tuple[list[bytes], dict[str, Any]]) -> None:
    values, optional = batch
    attrs, payload = encode(values, **optional)
    records = decode(attrs, len(values), payload)
    assert records.values == values
    for name in ("keys", "tags", "headers", "born_ms"):
        column = getattr(records, name)
        assert (column is None) == (name not in optional)
        assert column is None or list(column) == optional[name]


def refusals(attrs: int, count: int, payload: bytes) -> tuple[str, str]:
    """Return the refusals of `decode` and `check`."""
    errors = []
    for look in (decode, check):
        try:
            look(attrs, count, payload)
            errors.append("")
        except BadColumns as bad:
            errors.append(str(bad))
    return errors[0], errors[1]


@given(batches(), st.data())
def test_check_agrees_with_decoding(
    batch: tuple[list[bytes], dict[str, Any]], data: st.DataObject
) -> None:
    values, optional = batch
    attrs, payload = encode(values, **optional)
    assert refusals(attrs, len(values), payload) == ("", "")
    raw = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(raw) // 4 - 1)) * 4
        raw[at : at + 4] = pack("<I", data.draw(st.sampled_from([0, 1, 9, 2**31, 2**32 - 1])))
    count = len(values) + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    decoded, checked = refusals(attrs, max(count, 1), bytes(raw))
    assert checked == decoded


def test_check_names_a_cut_column_of_times_as_decode_does() -> None:
    attrs, payload = encode([b"a", b"b"], born_ms=[1, 2])
    assert refusals(attrs, 2, payload[:-8]) == ("born_ms column is truncated",) * 2
    assert refusals(attrs, 2, payload + bytes(8)) == ("8 bytes after the last column",) * 2


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 500, 5000])
def test_a_check_sees_an_offset_that_falls_anywhere(count: int) -> None:
    attrs, payload = encode([b"abc"] * count)
    for number in {*range(min(count, 20)), count // 2, count - 1}:
        for wrong in (3 * number + 7, 3 * number + 2**31, 3 * number - 7):
            raw = payload[: 4 * number] + pack("<I", wrong % 2**32) + payload[4 * number + 4 :]
            assert refusals(attrs, count, raw)[1], (number, wrong)
    with pytest.raises(BadColumns, match="codec 1"):
        check(attrs | 1, count, payload)


@given(batches())
def test_truncated_payload_is_refused(batch: tuple[list[bytes], dict[str, Any]]) -> None:
    values, optional = batch
    attrs, payload = encode(values, **optional)
    for cut in (payload[:-1], payload[:4], b"", payload + bytes(8)):
        with pytest.raises(BadColumns):
            decode(attrs, len(values), cut)
    with pytest.raises(BadColumns):
        decode(attrs, len(values) + 1000, payload)


def test_column_layout_is_that_of_arrow() -> None:
    attrs, payload = encode([b"ab", b"", b"cde"], keys=[b"k", b"", b"l"])
    assert attrs == Attrs.KEY
    value = pack("<4I", 0, 2, 2, 5) + b"abcde" + bytes(3)
    assert payload == value + pack("<4I", 0, 1, 1, 2) + b"kl" + bytes(6)


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        ((1, 2, 8), b"01234567"),
        ((0, 9, 8), b"01234567"),
        ((0, 7, 2), b"01234567"),
        ((0, 10**6, 12), b"0123456789ab"),  # the first record must not take everything
        ((0, 2**32 - 1, 12), b"0123456789ab"),
        ((0, 4, 13), b"0123456789ab"),
    ],
)
def test_offsets_that_do_not_rise_are_refused(offsets: tuple[int, int, int], data: bytes) -> None:
    with pytest.raises(BadColumns):
        decode(0, 2, pack("<3I", *offsets) + data + bytes(-(12 + len(data)) % 8))


def test_columns_of_different_lengths_raise_value_error() -> None:
    with pytest.raises(AssertionError):
        encode([b"a", b"b"], keys=[b"k"])


@given(st.dictionaries(st.text(max_size=20), CELL, max_size=8))
def test_headers_round_trip(headers: dict[str, bytes]) -> None:
    raw = encode_headers(headers)
    assert decode_headers(raw) == headers
    for end in range(1, len(raw)):
        with pytest.raises(BadColumns):
            decode_headers(raw[:end])


def test_headers_that_are_text_or_none() -> None:
    assert decode_headers(encode_headers({"a": "ü"})) == {"a": "ü".encode()}
    assert decode_headers(b"") == {}


def test_headers_are_at_most_1000_with_names_of_65535_bytes() -> None:
    for most in ({str(n): b"" for n in range(1000)}, {"x" * 65_535: b""}):
        assert decode_headers(encode_headers(most)) == most
    with pytest.raises(BadColumns, match="1001 headers, at most 1000"):
        encode_headers({str(n): b"" for n in range(1001)})
    with pytest.raises(BadColumns, match="65536 bytes, at most 65535"):
        encode_headers({"x" * 65_536: b""})
