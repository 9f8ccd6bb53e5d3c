"""Convert slabs to Arrow record batches, the one place where columns are joined.

Needs pyarrow and numpy. No work is done per record: numpy shifts offsets and takes headers apart,
bytes are joined once, and those of a single large batch not even that.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmqcore.batch.columns import BadColumns, decode_headers
from fmqcore.errors import CorruptJournal, InvalidArgument
from fmqcore.ids import TopicId
from fmqcore.scan.headers import HeaderBlock
from fmqcore.scan.payloads import BORN, BYTES_COLUMNS, BytesColumn, Slab
from fmqcore.scan.selection import EVERYTHING, Range

Ints = npt.NDArray[np.int64]
_TIME: Final = pa.timestamp("us", tz="UTC")
_MANY: Final = 64
"""Records of a batch from which a separate chunk (10 µs) costs less than moving its bytes."""
UNDECODABLE: Final = "fmq.undecodable"
"""The name under which headers that do not decode are given, so that nothing is lost."""

TYPES: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "queue": pa.int32(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "tag": pa.binary(),
    "headers": pa.map_(pa.string(), pa.binary()),
    "store_time": _TIME,
    "deliver_time": _TIME,
    "born_time": _TIME,
    "producer": pa.int64(),
    "epoch": pa.int64(),
    "position": pa.int64(),
}
"""All columns, in their default order."""

_STORED: Final = {name: name for name in BYTES_COLUMNS} | {"born_time": BORN}
_NUMBERS: Final = {
    "queue": "queue_id",
    "producer": "producer_id",
    "epoch": "epoch",
    "position": "position",
}


class Within(Protocol):
    """Columns that are made of the values: `fmqspark.source.json_columns.FieldReader`."""

    types: dict[str, Any]

    def read(self, values: Any) -> dict[str, Any]:
        """Return all of them, for values in an array or in chunks."""
        ...


def schema(columns: Sequence[str], within: Within | None = None) -> Any:
    """Return the Arrow schema of these columns. Raises `InvalidArgument` for an unknown one."""
    types = TYPES | (within.types if within else {})
    for name in columns:
        if name not in types:
            raise InvalidArgument(f"unknown column {name!r}: use {', '.join(types)}")
    return pa.schema([(name, types[name]) for name in columns])


def stored(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the payload columns that these need; unknown columns are made of the values."""
    if any(name not in TYPES for name in columns):
        columns = ("value", *columns)
    return tuple(dict.fromkeys(_STORED[name] for name in columns if name in _STORED))


def record_batch(
    slab: Slab,
    columns: Sequence[str],
    names: Mapping[TopicId, str],
    offsets: Range = EVERYTHING,
    within: Within | None = None,
) -> Any:
    """Return a slab as one record batch. Raises `CorruptJournal` where columns do not fit."""
    arrow_schema = schema(columns, within)
    build = _Build(slab, names)
    try:
        made = within.read(build.values()) if within and within.types else {}
        arrays = [made[name] if name in made else build.column(name) for name in columns]
    except BadColumns as error:
        at = slab.headers.column("position")[0]
        raise CorruptJournal(
            f"a payload at or behind position {at} does not hold what its header says: {error}"
        ) from error
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)
    if offsets == EVERYTHING:
        return batch
    taken = (build.offsets >= offsets.first) & (build.offsets < offsets.end)
    return batch if taken.all() else batch.filter(pa.array(taken))


def with_order(batch: Any, columns: Sequence[str], segment: int, shift: int) -> Any:
    """Return these columns of a batch with `offset`; `segment` and `sequence` are made here."""
    arrays = []
    for name in columns:
        if name == "segment":
            arrays.append(pa.array(np.full(len(batch), segment, np.int64)))
        elif name == "sequence":
            offsets = batch.column("offset").to_numpy()
            arrays.append(pa.array(offsets + np.int64(shift)))
        else:
            arrays.append(batch.column(name))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


class _Build:
    def __init__(self, slab: Slab, names: Mapping[TopicId, str]) -> None:
        self._slab = slab
        self._names = names
        self._headers: HeaderBlock = slab.headers
        self._counts = self._numbers("record_count")
        self._total = int(self._counts.sum())

    @property
    def offsets(self) -> Ints:
        """The offset of each record."""
        starts = np.cumsum(self._counts) - self._counts
        first = self._numbers("base_offset") - starts
        return np.repeat(first, self._counts) + np.arange(self._total)

    def column(self, name: str) -> Any:
        """Return the Arrow array of one column."""
        if name in BYTES_COLUMNS:
            found = self._bytes(self._slab.columns[name], may_lack=name != "value")
            return _headers(found) if name == "headers" else found
        if name in _NUMBERS:
            return pa.array(self._each(self._numbers(_NUMBERS[name])), TYPES[name])
        match name:
            case "offset":
                return pa.array(self.offsets, pa.int64())
            case "topic":
                return self._topics()
            case "born_time":
                return self._born()
            case _:
                ms = self._each(self._numbers(f"{name.removesuffix('_time')}_ms", name))
                return _times(ms, may_lack=name != "store_time")

    def values(self) -> Any:
        """Return column `value`, in chunks as stored where batches are large, so no byte moves.

        Raises `BadColumns`.
        """
        stored = self._slab.columns["value"]
        if self._total < _MANY * len(stored.data):
            return self.column("value")
        chunks = [
            self._bytes(BytesColumn([offsets], [data]), may_lack=False)
            for offsets, data in zip(stored.offsets, stored.data, strict=True)
        ]
        return pa.chunked_array(chunks, pa.binary())

    def _numbers(self, field: str, name: str = "") -> Ints:
        field = "deliver_at_ms" if name == "deliver_time" else field
        return np.asarray(self._headers.column(field)).astype(np.int64)

    def _each(self, per_batch: Ints) -> Ints:
        return np.repeat(per_batch, self._counts)

    def _topics(self) -> Any:
        ids, which = np.unique(self._numbers("topic_id"), return_inverse=True)
        names = pa.array([self._names[TopicId(int(i))] for i in ids], pa.string())
        return names.take(pa.array(self._each(which.astype(np.int64))))

    def _born(self) -> Any:
        parts = [
            np.frombuffer(part, np.int64) if part else np.zeros(count, np.int64)
            for part, count in zip(self._slab.born_ms, self._counts, strict=True)
        ]
        return _times(np.concatenate(parts), may_lack=True)

    def _bytes(self, column: BytesColumn, *, may_lack: bool) -> Any:
        if len(column.data) == 1:
            offsets = np.frombuffer(column.offsets[0], np.int32)
            lengths = np.diff(offsets)
            good = offsets[0] == 0
            data = pa.py_buffer(column.data[0])
        else:
            words = np.frombuffer(b"".join(column.offsets), np.uint32).astype(np.int64)
            last = np.cumsum(self._counts + 1) - 1
            good = not words[last - self._counts].any()
            lengths = np.delete(np.diff(words), last[:-1])
            offsets = np.zeros(self._total + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            data = pa.py_buffer(b"".join(column.data))
        if not good or (lengths < 0).any():
            raise BadColumns("the offsets of a column do not rise from 0 on")
        validity, lacking = None, 0
        if may_lack:
            there = lengths > 0
            lacking = len(lengths) - int(there.sum())
            validity = pa.py_buffer(np.packbits(there, bitorder="little")) if lacking else None
        return pa.Array.from_buffers(
            pa.binary(), len(lengths), [validity, pa.py_buffer(offsets), data], lacking
        )


def _times(ms: Ints, *, may_lack: bool) -> Any:
    lacking = ms == 0 if may_lack else None
    return pa.array(ms * 1000, pa.int64(), mask=lacking).cast(_TIME)


def _headers(raw: Any) -> Any:
    """Decode `u16 count, (u16 length, name, u32 length, value)*` of each record to maps."""
    total = len(raw)
    offsets = np.frombuffer(raw.buffers()[1], np.int32, total + 1).astype(np.int64)
    there = np.flatnonzero(np.diff(offsets))
    if not len(there):
        return pa.nulls(total, TYPES["headers"])
    data = np.frombuffer(raw.buffers()[2], np.uint8)
    found = _taken_apart(data, offsets, there)
    try:
        return _maps(data, total, there, *found)
    except pa.ArrowInvalid:  # one of thousands has a name that is no UTF-8: find it
        return pa.array([_one_by_one(each.as_py()) for each in raw], TYPES["headers"])


def _one_by_one(raw: bytes | None) -> list[tuple[str, bytes]] | None:
    try:
        return list(decode_headers(raw).items()) if raw else None
    except BadColumns:
        return [(UNDECODABLE, raw or b"")]


def _taken_apart(data: Any, offsets: Ints, there: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Locate each header: its record (an index into `there`), its name and its value.

    A name length of -1: the record's headers do not decode, and the value is all of them.
    """
    padded = np.concatenate([data, np.zeros(8, np.uint8)]).astype(np.int64)
    begin, end = offsets[there], offsets[there + 1]
    counts = padded[begin] | padded[begin + 1] << 8
    at, good = begin + 2, begin + 2 <= end
    rows: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    for number in range(int(counts.max())):
        who = np.flatnonzero(good & (counts > number))
        if not len(who):
            break
        name = at[who] + 2
        length = np.where(name <= end[who], padded[name - 2] | padded[name - 1] << 8, 0)
        value = name + length + 4
        fits = (value <= end[who]) & (name <= end[who])
        start = np.where(fits, value - 4, 0)
        size = sum((padded[start + i] << 8 * i for i in range(4)), np.zeros(len(who), np.int64))
        fits &= value + size <= end[who]
        good[who] = fits
        at[who] = np.where(fits, value + size, at[who])
        rows.append((who[fits], name[fits], length[fits], value[fits], size[fits]))
    good &= at == end
    bad = np.flatnonzero(~good)
    rows.append((bad, begin[bad], np.full(len(bad), -1), begin[bad], end[bad] - begin[bad]))
    who, name, length, value, size = (np.concatenate(each) for each in zip(*rows, strict=True))
    kept = good[who] | (length < 0)
    order = np.argsort(who[kept], kind="stable")
    return (
        who[kept][order],
        name[kept][order],
        length[kept][order],
        value[kept][order],
        size[kept][order],
    )


def _maps(
    data: Any, total: int, there: Ints, who: Ints, name: Ints, length: Ints, value: Ints, size: Ints
) -> Any:
    """Return the map array. Raises `ArrowInvalid` if a name is not UTF-8."""
    mark = np.frombuffer(UNDECODABLE.encode(), np.uint8)
    bad = length < 0
    source = np.concatenate([data, mark])
    names = _gather(
        source, np.where(bad, len(data), name), np.where(bad, len(mark), length), pa.string()
    )
    names.validate(full=True)
    values = _gather(source, value, size, pa.binary())
    counts = np.zeros(total, np.int64)
    counts[there] = np.bincount(who, minlength=len(there))
    ends = np.zeros(total + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    valid = np.zeros(total, bool)
    valid[there] = True
    entries = pa.StructArray.from_arrays(
        [names, values], fields=[TYPES["headers"].key_field, TYPES["headers"].item_field]
    )
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        TYPES["headers"],
        total,
        [validity, pa.py_buffer(ends)],
        total - len(there),
        children=[entries],
    )


def _gather(data: Any, begin: Ints, length: Ints, kind: Any) -> Any:
    """Join slices of `data` into one array."""
    ends = np.zeros(len(begin) + 1, np.int32)
    np.cumsum(length, out=ends[1:])
    which = np.repeat(begin - ends[:-1], length) + np.arange(int(ends[-1]))
    return pa.Array.from_buffers(
        kind, len(begin), [None, pa.py_buffer(ends), pa.py_buffer(data[which])]
    )
