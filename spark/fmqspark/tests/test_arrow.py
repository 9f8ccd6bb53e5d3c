"""Slabs as Arrow: the same records as from the plain decoder, and nothing unsafe."""

from collections.abc import Iterator
from typing import Any

import pytest

from fmqcore.batch.columns import encode, encode_headers
from fmqcore.batch.header import BatchType
from fmqcore.errors import CorruptJournal, InvalidArgument
from fmqcore.ids import Position, TopicId
from fmqcore.journal.segments import Segment
from fmqcore.scan.headers import ScanRange, scan_headers
from fmqcore.scan.payloads import PayloadScan, Slab
from fmqcore.scan.selection import EVERYTHING, Range, Wanted, places_in_headers
from fmqcore.tests.journal.writer import JournalWriter

pytestmark = pytest.mark.spark
NAMES = {TopicId(7): "orders", TopicId(8): "bills"}


def batches(
    writer: JournalWriter, columns: tuple[str, ...], offsets: Range = EVERYTHING
) -> list[dict[str, Any]]:
    from fmqspark.source.arrow import record_batch, schema, stored

    rows: list[dict[str, Any]] = []
    for slab in slabs(writer, stored(columns), offsets):
        batch = record_batch(slab, columns, NAMES, offsets)
        batch.validate(full=True)
        assert batch.schema == schema(columns)
        rows += batch.to_pylist()
    return rows


def slabs(
    writer: JournalWriter, columns: tuple[str, ...], offsets: Range = EVERYTHING
) -> Iterator[Slab]:
    """Return the slabs of a journal of one segment."""
    data = bytes(writer.segments[Position(0)])
    segment = Segment(Position(0), Position(writer.segment_bytes))

    def read(length: int, at: int) -> bytes:
        return data[at : at + length]

    headers, _ = scan_headers(read, ScanRange(segment, Position(0), Position(len(data))))
    places = places_in_headers(headers, Wanted(offsets=offsets))
    yield from PayloadScan(read, Position(0), places, columns)


def writer_of(*given: dict[str, Any]) -> JournalWriter:
    """Return a journal of one segment with these batches; `values` and so on are the columns."""
    writer = JournalWriter(segment_bytes=16 * 1024 * 1024)
    for each in given:
        fields = {"topic_id": 7, "queue_id": 0} | {
            name: value for name, value in each.items() if name.endswith("_id")
        }
        attrs, payload = encode(
            each["values"],
            each.get("keys"),
            each.get("tags"),
            each.get("headers"),
            each.get("born"),
        )
        count = len(each["values"])
        key = (TopicId(fields["topic_id"]), fields["queue_id"])
        base = writer.state.next_offsets.get(key, 0)
        deliver = each.get("deliver", 0)
        writer.append(
            BatchType.DATA, payload, attrs=attrs, record_count=count, base_offset=base,
            deliver_at_ms=deliver, **fields,
        )  # fmt: skip
    return writer


def test_each_column_is_what_was_stored() -> None:
    from fmqspark.source.arrow import TYPES

    first = {
        "values": [b"a", b"", b"ccc"],
        "keys": [b"k", b"", b"l"],
        "headers": [encode_headers({"n": "v", "m": b"\xff"}), b"", encode_headers({})],
        "born": [1_000, 0, 3_000],
    }
    second = {"values": [b"d"], "tags": [b"red"], "topic_id": 8, "queue_id": 5, "deliver": 5_000}
    rows = batches(writer_of(first, second), tuple(TYPES))
    assert [r["value"] for r in rows] == [b"a", b"", b"ccc", b"d"]
    assert [r["key"] for r in rows] == [b"k", None, b"l", None]
    assert [r["tag"] for r in rows] == [None, None, None, b"red"]
    assert [r["headers"] for r in rows] == [[("n", b"v"), ("m", b"\xff")], None, [], None]
    assert [(r["topic"], r["queue"], r["offset"]) for r in rows] == [
        ("orders", 0, 0), ("orders", 0, 1), ("orders", 0, 2), ("bills", 5, 0),
    ]  # fmt: skip
    seconds = [[None if t is None else t.timestamp() for t in times] for times in (
        [r["born_time"] for r in rows], [r["deliver_time"] for r in rows],
    )]  # fmt: skip
    assert seconds == [[1.0, None, 3.0, None], [None, None, None, 5.0]]
    assert rows[3]["store_time"].timestamp() > rows[0]["store_time"].timestamp() > 1_700_000_000


def test_a_single_batch_is_not_copied_and_is_the_same() -> None:
    values = [b"%d" % i for i in range(1000)]
    assert [r["value"] for r in batches(writer_of({"values": values}), ("value",))] == values


def test_rows_outside_of_the_offsets_are_left_out() -> None:
    writer = writer_of(*({"values": [b"x"] * 10} for _ in range(5)))
    for offsets in (Range(0, 3), Range(7, 33), Range(10, 20), Range(49)):
        rows = batches(writer, ("offset",), offsets)
        assert [r["offset"] for r in rows] == list(range(50))[offsets.first : offsets.end]


@pytest.mark.parametrize(
    "raw",
    [
        b"\1",
        b"\1\0",
        b"\1\0\4\0abc",
        b"\1\0\1\0a\xff\xff\xff\xff",
        b"\xff\xff" + b"\0" * 9,
        encode_headers({"a": "b"}) + b"more",
        b"\1\0\1\0\xfe\0\0\0\0",
    ],
)
def test_headers_that_are_none_are_kept_as_they_are(raw: bytes) -> None:
    good = encode_headers({"a": "1", "b": "22"})
    rows = batches(writer_of({"values": [b""] * 3, "headers": [good, raw, good]}), ("headers",))
    kept = [("a", b"1"), ("b", b"22")]
    assert [r["headers"] for r in rows] == [kept, [("fmq.undecodable", raw)], kept]


def test_thousands_of_headers() -> None:
    given = [{f"n{j}": b"v" * (i * j % 7) for j in range(i % 5)} for i in range(5000)]
    rows = batches(
        writer_of({"values": [b""] * 5000, "headers": [encode_headers(g) for g in given]}),
        ("headers",),
    )
    assert [dict(r["headers"]) for r in rows] == given


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("many", [1, 3])
def test_columns_that_do_not_fit_are_an_error_not_a_crash(place: int, many: int) -> None:
    attrs, payload = encode([b"abc", b"de"])
    broken = bytearray(payload)
    broken[place : place + 4] = (0x7FFF_FFFF).to_bytes(4, "little")
    writer = JournalWriter(segment_bytes=1024 * 1024)
    for i in range(many):
        writer.append(
            BatchType.DATA,
            bytes(broken),
            attrs=attrs,
            record_count=2,
            base_offset=2 * i,
            topic_id=7,
        )
    with pytest.raises(CorruptJournal):
        batches(writer, ("value",))


def test_batches_before_a_bad_one_are_delivered_whole() -> None:
    """A batch whose second column does not fit contributes no record."""
    from fmqspark.source.arrow import record_batch

    writer = writer_of(*[{"values": [b"a", b"b"], "keys": [b"1", b"2"]}] * 2)
    attrs, payload = encode([b"c", b"d"], [b"3", b"4"])
    cut = payload[: len(payload) // 2 + 4]
    writer.append(
        BatchType.DATA, cut, attrs=attrs, record_count=2, base_offset=4, topic_id=7, queue_id=0
    )
    found = slabs(writer, ("value", "key"))
    batch = record_batch(next(found), ("offset", "value", "key"), NAMES)
    assert batch.to_pydict() == {
        "offset": [0, 1, 2, 3],
        "value": [b"a", b"b"] * 2,
        "key": [b"1", b"2"] * 2,
    }
    with pytest.raises(CorruptJournal, match="of key are cut"):
        next(found)


def test_missing_column_is_reported() -> None:
    with pytest.raises(InvalidArgument, match="unknown column 'body': use topic, queue"):
        batches(writer_of({"values": [b"x"]}), ("body",))
