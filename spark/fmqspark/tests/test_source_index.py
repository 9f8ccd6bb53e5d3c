"""An index file that is not this segment's, with a good checksum: the journal itself is read."""

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from fmqcore.errors import CorruptJournal
from fmqcore.ids import Position, TopicId
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.segments import MIN_SEGMENT, index_name
from fmqcore.scan import payloads
from fmqcore.scan.selection import Range, Wanted
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.tests.kit import flip, write
from fmqspark.tests.test_source import read, truth

SECOND = Position(MIN_SEGMENT)
KEYS = [(TopicId(7), queue) for queue in range(2)]
Change = Callable[[SegmentIndex], None]


def even() -> JournalWriter:
    """Two queues with as many records as each other, in batches of the same lengths."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 2)
    for n in range(120):
        writer.data(7, n % 2, [b"%04d" % n + b"x" * 1500])
    return writer


JOURNAL = even()


def column(index: SegmentIndex, number: int, key: int = 0) -> "array[int]":
    return index.columns(KEYS[key])[number]


def another_queues(index: SegmentIndex) -> None:
    for own, others in zip(index.columns(KEYS[0]), index.columns(KEYS[1]), strict=True):
        own[:], others[:] = others[:], own[:]


def one_place_twice(index: SegmentIndex) -> None:
    column(index, 1)[3] = column(index, 1)[2]


def no_batch_there(index: SegmentIndex) -> None:
    column(index, 1)[3] += 8


def another_length(index: SegmentIndex) -> None:
    column(index, 2)[3] += 8


def another_time(index: SegmentIndex) -> None:
    column(index, 3)[0] -= 500


CHANGES = [another_queues, one_place_twice, no_batch_there, another_length, another_time]


def change(directory: Path, how: Change) -> None:
    path = directory / index_name(SECOND)
    index = SegmentIndex.decode(path.read_bytes())
    how(index)
    path.write_bytes(index.encode())
    assert SegmentIndex.decode(path.read_bytes()).columns(KEYS[0])


@pytest.mark.parametrize("split_bytes", [20_000, 10**9])
@pytest.mark.parametrize("how", CHANGES)
def test_an_index_that_names_other_batches_is_not_believed(
    tmp_path: Path, how: Change, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "_SLAB_RECORDS", 2)
    a = write(tmp_path / "a", JOURNAL)
    change(a, how)
    for wanted in (
        Wanted(),
        Wanted(queues=frozenset({0})),
        Wanted(queues=frozenset({0}), offsets=Range(25)),
        Wanted(store_ms=Range(JOURNAL.headers[50].store_ms)),
    ):
        assert read([a], wanted, split_bytes) == truth(JOURNAL, wanted)[0]


def test_segment_damage_is_located_whatever_the_index_holds(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL)
    victim = next(h for h in JOURNAL.headers if h.position > SECOND + 30_000)
    change(a, no_batch_there)
    flip(a, victim.position + 100)
    with pytest.raises(CorruptJournal, match=f"damaged at position {victim.position} "):
        read([a])
