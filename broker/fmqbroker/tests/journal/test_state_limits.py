"""The room for progress and producers in a segment's SNAP: refusals, and what is logged."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from fmqbroker.journal.journal import Journal
from fmqbroker.journal.state_limits import StateLimits
from fmqbroker.tests.journal_kit import settings
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.errors import InvalidArgument, Overloaded
from fmqcore.ids import Offset, TopicId
from fmqcore.tests.journal.writer import JournalWriter

T7 = TopicId(7)
ROOM = 16 * 1024  # of a segment of 64 KiB
PRODUCERS = 91  # entries of 180 bytes


def limits_of(path: Path, writer: JournalWriter) -> StateLimits:
    return StateLimits(settings(path), cast(Journal, SimpleNamespace(state=writer.state)))


def progress(writer: JournalWriter, queues: range, version: int = 1) -> None:
    keys = [OffsetKey("g", T7, queue) for queue in queues]
    writer.offsets({key: OffsetEntry(version, Offset(1)) for key in keys})


def produced(writer: JournalWriter, count: int) -> None:
    for producer in range(1, count + 1):
        writer.data(7, 0, [b"v"], producer_id=producer, base_sequence=0)


def test_new_group_is_refused_where_progress_lacks_room(tmp_path: Path) -> None:
    writer = JournalWriter()
    limits = limits_of(tmp_path, writer)
    group = "g" * 64  # so an entry counts as 128 bytes
    limits.require_progress(group, "orders", ROOM // 128)
    with pytest.raises(InvalidArgument, match=f"topic orders: .* takes 0 of {ROOM} bytes"):
        limits.require_progress(group, "orders", ROOM // 128 + 1)
    progress(writer, range(1))
    with pytest.raises(InvalidArgument, match=f"takes {limits.progress_bytes} of {ROOM} bytes"):
        limits.require_progress(group, "orders", ROOM // 128)
    limits.require_progress(group, "orders", ROOM // 128 - 1)


def test_nearly_full_progress_is_logged_once_each_time(tmp_path: Path) -> None:
    writer = JournalWriter()
    limits, queues = limits_of(tmp_path, writer), range(600)
    with capture_logs() as lines:
        progress(writer, queues[:400])
        limits.check_once()
        assert lines == []
        assert limits.progress_bytes < 0.8 * ROOM
        for version in (2, 4):
            progress(writer, queues, version)
            limits.check_once()
            limits.check_once()
            keys = [OffsetKey("g", T7, queue) for queue in queues]
            writer.offsets({key: tombstone(version + 1) for key in keys})
            writer.state.settle(writer.state.snapshot(writer.now_ms + 10**9))
            limits.check_once()
    assert [line["event"] for line in lines] == ["consumer_progress_nearly_full"] * 2
    assert lines[0]["bytes"] > 0.8 * lines[0]["room"]
    assert lines[0]["room"] == ROOM


def test_forgotten_producers_are_logged_by_their_number(tmp_path: Path) -> None:
    writer = JournalWriter()
    limits = limits_of(tmp_path, writer)
    produced(writer, 3)
    with capture_logs() as lines:
        for forgotten in (0, 2, 2, 5):
            writer.state.producers.forgotten = forgotten
            limits.check_once()
    assert [line["entries"] for line in lines] == [2, 3]
    assert lines[0]["kept"] == 3
    assert lines[0]["limit"] == limits.producer_limit == PRODUCERS


def test_unknown_producer_may_be_forgotten_if_table_is_full(tmp_path: Path) -> None:
    """P9: a table that is not full and forgot none has never known an unknown producer."""
    writer = JournalWriter()
    limits, stranger = limits_of(tmp_path, writer), 10_000
    produced(writer, PRODUCERS - 1)
    assert not limits.may_have_forgotten(stranger, (T7, 0))
    writer.state.producers.forgotten = 1
    assert limits.may_have_forgotten(stranger, (T7, 0))
    assert not limits.may_have_forgotten(1, (T7, 0))
    assert limits.may_have_forgotten(1, (T7, 1)), "another queue"
    writer.state.producers.forgotten = 0
    produced(writer, PRODUCERS)
    assert limits.may_have_forgotten(stranger, (T7, 0))
    assert not limits.may_have_forgotten(1, (T7, 0))


def test_new_producer_is_refused_where_the_table_is_full(tmp_path: Path) -> None:
    writer = JournalWriter()
    limits = limits_of(tmp_path, writer)
    produced(writer, PRODUCERS)
    limits.require_producer(1, (T7, 0), writer.now_ms)
    with pytest.raises(Overloaded, match=f"at most {PRODUCERS} are remembered"):
        limits.require_producer(PRODUCERS + 1, (T7, 0), writer.now_ms)
