"""Histories as lines, values that identify their records, journals from bytes."""

import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.history.client_events import Delivered, Place, Sent
from e2e.history.cluster_events import Setup
from e2e.history.events import Event
from e2e.history.history import History, from_line, to_line
from e2e.history.journals import load
from e2e.tests.kit import MASTER, READERS, Kit, place, sound
from e2e.traffic.values import UNSENT_RECORD, record_of, value_of
from fmqcore.batch.header import BatchType
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT
from fmqcore.tests.journal.writer import JournalWriter


def test_every_event_survives_its_line() -> None:
    seen = set()
    for event in sound().events:
        assert from_line(to_line(event)) == event
        assert type(from_line(to_line(event))) is type(event)
        seen.add(type(event))
    assert Setup in seen
    assert Delivered in seen


@pytest.mark.parametrize("kind", typing.get_args(Event))
def test_every_kind_of_event_has_a_line(kind: type) -> None:
    event = kind(*(_sample(hint) for hint in typing.get_type_hints(kind).values()))
    assert from_line(to_line(event)) == event


def _sample(hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return (_sample(typing.get_args(hint)[0]),)
    if hasattr(hint, "__members__"):
        return next(iter(hint))
    if hasattr(hint, "_fields"):
        return hint(*(_sample(each) for each in typing.get_type_hints(hint).values()))
    return {int: 7, float: 1.5, str: "text", bool: True}[hint] if hint in _PLAIN else hint()


_PLAIN = (int, float, str, bool)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="Nonsense is no event"):
        from_line('["Nonsense",1]')
    with pytest.raises(ValueError, match="Phase has 2 fields"):
        from_line('["Phase",1,"calm",3]')


def test_sink_receives_each_event_immediately() -> None:
    heard: list[Event] = []
    history = History(sink=heard.append)
    for event in sound().events:
        history.add(event)
    assert heard == history.events


# ---- values


@given(st.integers(0, 10**9), st.integers(0, 9000))
def test_value_identifies_its_record(record: int, size: int) -> None:
    value = value_of(record, size)
    assert record_of(value) == record
    assert len(value) >= size


@given(st.integers(0, 10**6), st.integers(30, 300), st.data())
def test_damaged_value_belongs_to_no_record(record: int, size: int, data: st.DataObject) -> None:
    value = bytearray(value_of(record, size))
    at = data.draw(st.integers(0, len(value) - 1))
    flip = data.draw(st.integers(1, 255))
    value[at] ^= flip
    assert record_of(bytes(value)) in (UNSENT_RECORD, _other(bytes(value), record))
    assert record_of(value_of(record, size)[:-1]) == UNSENT_RECORD
    assert record_of(b"") == UNSENT_RECORD


def _other(value: bytes, record: int) -> int:
    """A flipped bit in the number may give another record's value, if that one looks the same."""
    found = record_of(value)
    return found if found != record and value_of(found, len(value)) == value else UNSENT_RECORD


# ---- journals


def test_data_directory_is_read_unchanged() -> None:
    kit = sound()
    journal = kit.journal(MASTER)
    assert journal.trouble == ()
    assert journal.end == kit.writer.end
    assert journal.floors == {(READERS, place(0)): 8, (READERS, place(1)): 2}
    data = [b for b in journal.batches if b.header.type == BatchType.DATA]
    assert [b.records for b in data] == [(1, 2, 3), (4, 5), (6, 7), (8, 9, 10)]
    assert {journal.place(b.header) for b in data} == {place(0), place(1)}
    assert [b.opened_by for b in journal.batches if b.opened_by] == [MASTER, MASTER]


def test_first_snap_then_deleted_batches_are_known() -> None:
    kit = Kit()
    kit.produce(3)
    kit.writer.roll()
    base = kit.writer.last_base
    kit.produce(2)
    files = kit.writer.files(kit.writer.checkpoint(journal_start=base))
    journal = load(MASTER, "g1", list(files.items()))
    assert journal.trouble == ()
    assert journal.journal_start == base
    assert journal.begins == {place(0): 3}
    assert journal.topics == {7: "orders"}
    assert load(MASTER, "g1", []).end == 0


def test_unfinished_truncation_then_its_bytes_are_void() -> None:
    kit = Kit()
    kit.produce(3)
    end = kit.writer.end
    kit.produce(2)
    files = kit.writer.files(kit.writer.checkpoint(drop_from=end))
    assert load(MASTER, "g1", list(files.items())).end == end


def test_damage_and_gaps_are_reported() -> None:
    writer = JournalWriter()
    writer.open_epoch(1, MASTER)
    writer.roll()
    writer.roll()
    files = writer.files()
    names = sorted(name for name in files if name.endswith("journal"))
    damaged = dict(files)
    damaged[names[0]] = bytes([*files[names[0]][:100], 1, *files[names[0]][101:]])
    assert "at " in load(MASTER, "g1", list(damaged.items())).trouble[0]
    gap = {name: data for name, data in files.items() if name != names[1]}
    assert "no segment at" in load(MASTER, "g1", list(gap.items())).trouble[0]
    files[CHECKPOINT] = encode_checkpoint(writer.checkpoint(durable_end=Position(8)))[:-1]
    assert "checkpoint" in load(MASTER, "g1", list(files.items())).trouble[0]


def test_the_same_names_everywhere() -> None:
    assert str(Place("t", "g", 1)) == "t g/1"
    assert Sent(1, "p", 2, "t", "all").order == ""
