"""The payload of a DATA batch: columns, shaped as Arrow's.

The columns present come in the order value, key, tag, headers, born_ms. A column of bytes is
`u32 offset[N + 1]` (the first is 0) followed by the bytes, zero-padded to 8: exactly the two
buffers of an Arrow binary array, so the same bytes become one without a copy. `born_ms` is
`i64[N]`. `attrs` (`batch.Attrs`) shows which columns are present. A record without key (tag,
headers) in a batch that has the column holds the empty string: an empty key is no key.

Encoding and decoding cost about 100 ns a record: no object per record, and only loops in C.
The broker does not read these columns.
"""

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import ALIGN, Attrs

# Plain integers: `&` of an IntFlag costs as much as decoding ten records.
_KEY, _TAG, _HEADERS, _BORN = map(int, (Attrs.KEY, Attrs.TAG, Attrs.HEADERS, Attrs.BORN))

_CODEC = int(Attrs.CODEC_MASK)
_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_FEW: Final = 8
"""Below this many offsets, comparing each is cheaper than comparing all as one number."""
MAX_HEADERS: Final = 1000
"""Most headers of one record."""
MAX_NAME_LEN: Final = 65_535
"""Most bytes of a header's name."""


class BadColumns(ValueError):
    """A payload whose columns do not fit its length or record count."""


class Records(NamedTuple):
    """A decoded payload: parallel lists of N entries; None for a column that is absent."""

    values: list[bytes]
    keys: list[bytes] | None
    tags: list[bytes] | None
    headers: list[bytes] | None
    born_ms: "array[int] | None"


def encode(
    values: Sequence[bytes],
    keys: Sequence[bytes] | None = None,
    tags: Sequence[bytes] | None = None,
    headers: Sequence[bytes] | None = None,
    born_ms: Sequence[int] | None = None,
) -> tuple[int, bytes]:
    """Return (attrs, payload) of N records; each given column has N entries.

    `encode_headers` makes the entries of `headers`.
    """
    for column in (keys, tags, headers, born_ms):
        assert column is None or len(column) == len(values), "columns of one batch are equally long"
    attrs = 0
    parts: list[bytes] = []
    _add_bytes(parts, values)
    if keys is not None:
        attrs |= Attrs.KEY
        _add_bytes(parts, keys)
    if tags is not None:
        attrs |= Attrs.TAG
        _add_bytes(parts, tags)
    if headers is not None:
        attrs |= Attrs.HEADERS
        _add_bytes(parts, headers)
    if born_ms is not None:
        attrs |= Attrs.BORN
        parts.append(array("q", born_ms).tobytes())
    return attrs, b"".join(parts)


def decode(attrs: int, record_count: int, payload: Buffer) -> Records:
    """Decode a payload; raise `BadColumns` if its columns do not fit."""
    data = bytes(payload)
    at = 0
    values, at = _take_bytes(data, at, record_count)
    keys = tags = headers = born = None
    if attrs & _KEY:
        keys, at = _take_bytes(data, at, record_count)
    if attrs & _TAG:
        tags, at = _take_bytes(data, at, record_count)
    if attrs & _HEADERS:
        headers, at = _take_bytes(data, at, record_count)
    if attrs & _BORN:
        if len(data) - at < 8 * record_count:
            raise BadColumns("born_ms column is truncated")
        born = array("q")
        born.frombytes(data[at : at + 8 * record_count])
        at += 8 * record_count
    if at != len(data):
        raise BadColumns(f"{len(data) - at} bytes after the last column")
    return Records(values, keys, tags, headers, born)


def check(attrs: int, record_count: int, payload: Buffer) -> None:
    """Raise `BadColumns` where `decode` would, or for a codec, without creating the records.

    One record costs 1 µs, many cost 8 ns each and column. The headers' content is not checked.
    """
    if attrs & _CODEC:
        raise BadColumns(f"codec {attrs & _CODEC} is not known")
    at = _skip_bytes(payload, 0, record_count)
    for bit in (_KEY, _TAG, _HEADERS):
        if attrs & bit:
            at = _skip_bytes(payload, at, record_count)
    if attrs & _BORN:
        at += 8 * record_count
        if at > len(payload):
            raise BadColumns("born_ms column is truncated")
    if at != len(payload):
        raise BadColumns(f"{len(payload) - at} bytes after the last column")


def encode_headers(headers: Mapping[str, str | bytes]) -> bytes:
    """Encode one record's headers: u16 count, then (u16 length, name, u32 length, value)*."""
    if len(headers) > MAX_HEADERS:
        raise BadColumns(f"{len(headers)} headers, at most {MAX_HEADERS}")
    parts = [_U16.pack(len(headers))]
    for name, value in headers.items():
        raw_name = name.encode()
        if len(raw_name) > MAX_NAME_LEN:
            raise BadColumns(f"a header's name has {len(raw_name)} bytes, at most {MAX_NAME_LEN}")
        raw = value.encode() if isinstance(value, str) else value
        parts += (_U16.pack(len(raw_name)), raw_name, _U32.pack(len(raw)), raw)
    return b"".join(parts)


def decode_headers(raw: bytes) -> dict[str, bytes]:
    """Decode one record's headers; empty bytes mean none. Raise `BadColumns`."""
    if not raw:
        return {}
    try:
        (count,) = _U16.unpack_from(raw, 0)
        at, headers = 2, {}
        for _ in range(count):
            (length,) = _U16.unpack_from(raw, at)
            name = raw[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (length,) = _U32.unpack_from(raw, at)
            headers[name] = raw[at + 4 : at + 4 + length]
            at += 4 + length
    except (ValueError, StructError) as error:
        raise BadColumns(f"headers do not decode: {error}") from error
    if at != len(raw):
        raise BadColumns("headers do not fill their bytes")
    return headers


def _add_bytes(parts: list[bytes], column: Sequence[bytes]) -> None:
    offsets = array("I", accumulate(map(len, column), initial=0))
    parts.append(offsets.tobytes())
    parts.extend(column)
    parts.append(bytes(-(4 * len(offsets) + offsets[-1]) % 8))


def _take_bytes(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    body = at + 4 * (count + 1)
    if body > len(data):
        raise BadColumns("a column's offsets are truncated")
    offsets = array("I")
    offsets.frombytes(data[at:body])
    length = offsets[-1]
    end = body + length
    end += -(end - at) % 8
    if offsets[0] != 0 or end > len(data):
        raise BadColumns("a column's bytes are truncated")
    if max(offsets) != length:
        raise BadColumns("a column's offsets do not rise")
    column = [data[body + a : body + b] for a, b in pairwise(offsets)]
    if sum(map(len, column)) != length:
        raise BadColumns("a column's offsets do not rise")
    return column, end


def _skip_bytes(payload: Buffer, at: int, count: int) -> int:
    """Return the end of a column as `_take_bytes` does, without taking anything."""
    body = at + 4 * (count + 1)
    if body > len(payload):
        raise BadColumns("a column's offsets are truncated")
    first: int = _U32.unpack_from(payload, at)[0]
    end: int = body + _U32.unpack_from(payload, body - 4)[0]
    end += -(end - at) % ALIGN
    if first != 0 or end > len(payload):
        raise BadColumns("a column's bytes are truncated")
    if count > 1 and not _rise(payload[at:body], count):
        raise BadColumns("a column's offsets do not rise")
    return end


def _rise(offsets: Buffer, count: int) -> bool:
    """Whether none of `count + 1` offsets, the last below 2^31, is below the one before it.

    All are compared at once, as 32 bits each of one number: each has a free high bit, which is set
    before a subtraction and stays set where the subtraction borrows nothing from it.
    """
    if count < _FEW:
        values = memoryview(offsets).cast("I").tolist()
        return values == sorted(values)
    high, bits = _high_bits(count), 32 * count
    all_of_them = int.from_bytes(offsets, "little")
    after = all_of_them >> 32
    before = all_of_them ^ (after >> (bits - 32) << bits)
    return not after & high and ((after | high) - before) & high == high


@lru_cache(maxsize=32)
def _high_bits(count: int) -> int:
    return int.from_bytes(b"\0\0\0\x80" * count, "little")
