"""What `fmq consume -e` has still to read, by tables."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fmqcli.read_end import ReadEnd, messages_vanished, withheld_by_reason
from fmqcli.read_waits import ReadWaits, Standstill
from fmqclient.admin.infos import QueueOffsets

WHY = "they wait for slave g1-1"


def row(
    committed: int, end: int, stored_end: int, wait: str = WHY, group: str = "app"
) -> QueueOffsets:
    reason = wait if stored_end > end else ""
    return QueueOffsets(
        group, "t", "g1", 0, committed, 0, end, stored_end=stored_end, withheld_reason=reason
    )


@pytest.mark.parametrize(
    ("start", "now", "reached", "withheld"),
    [
        (row(0, 5, 5), row(5, 5, 5), True, False),
        (row(0, 5, 5), row(4, 5, 5), False, False),
        (row(0, 0, 9), row(0, 0, 9), False, True),  # a master that has just restarted
        (row(5, 0, 9), row(5, 0, 9), False, True),
        (row(9, 0, 9), row(9, 0, 9), True, False),  # all was finished before
        (row(0, 0, 9), row(0, 9, 9), False, False),  # the slave is back
        (row(0, 0, 9), row(9, 9, 9), True, False),
        (row(0, 5, 9), row(3, 5, 9), False, False),  # some may be read, and comes first
        (row(0, 5, 9), row(5, 5, 9), False, True),
        (row(0, 5, 9, ""), row(5, 5, 9, ""), False, True),  # in flight in a healthy group
        (row(0, 5, 9, ""), row(9, 9, 12, ""), True, False),  # what came later does not count
        (row(0, 5, 9), row(7, 7, 7), True, False),  # another broker has the term, without the rest
        (row(0, 5, 9), row(4, 4, 4), False, False),  # but what was readable has to be read
    ],
)
def test_end_is_what_was_stored_and_is_still_there(
    start: QueueOffsets, now: QueueOffsets, reached: bool, withheld: bool
) -> None:
    end = ReadEnd([start])
    assert end.is_reached([now]) is reached
    assert bool(end.withheld([now])) is withheld


GONE = [("g1", 0)]


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        ([row(0, 0, 0)], GONE),  # the topic was deleted and created again
        ([row(4, 4, 4)], GONE),
        ([row(3, 4, 4)], []),  # one is to come
        ([row(2, 3, 3)], GONE),  # printed, and not acknowledged
        ([row(3, 3, 4)], []),  # one may come
        ([], GONE),  # the queue is gone
        ([row(9, 9, 9)], []),
    ],
)
def test_vanished_messages_leave_nothing_to_come(now: list[QueueOffsets], gone: object) -> None:
    end = ReadEnd([row(0, 5, 9)])
    end.note_printed([SimpleNamespace(group="g1", queue=0, offset=2)])
    end.is_reached(now)
    assert end.vanished(now) == gone


def test_queue_that_may_be_read_still_is_waited_for() -> None:
    rows = [row(0, 5, 5), replace(row(0, 5, 5), queue=1)]
    end = ReadEnd(rows)
    now = [row(0, 0, 0), rows[1]]
    assert not end.lacks(now)
    assert end.lacks(now[:1])
    assert end.vanished(now) == []
    assert end.vanished([now[0], replace(now[1], committed=5)]) == GONE


def test_many_vanished_queues_are_counted() -> None:
    sentence = messages_vanished("t", [("g1", queue) for queue in range(7)])
    assert "gone in g1/0, g1/1, g1/2, g1/3, g1/4 and 2 more: " in sentence


@pytest.mark.parametrize(("offset", "left"), [(7, True), (8, False), (20, False)])
def test_printed_messages_reach_the_stored_end(offset: int, left: bool) -> None:
    end = ReadEnd([row(0, 5, 9)])
    end.note_printed([SimpleNamespace(group="g1", queue=0, offset=offset)])
    assert bool(end) is left


@pytest.mark.parametrize(
    ("now", "offset", "reached", "withheld"),
    [
        ([row(0, 5, 9)], 3, False, False),  # the last readable one is still to be printed
        ([row(0, 5, 9)], 4, False, True),
        ([], 4, False, True),  # the group's start is not stored either
        ([row(0, 5, 5)], 4, True, False),  # another broker has the term, without the rest
        ([row(0, 6, 9)], 4, False, False),
    ],
)
def test_printed_messages_count_though_no_ack_is_stored(
    now: list[QueueOffsets], offset: int, reached: bool, withheld: bool
) -> None:
    end = ReadEnd([row(0, 5, 9)])
    end.note_printed([SimpleNamespace(group="g1", queue=0, offset=offset)])
    assert end.is_reached(now) is reached
    assert bool(end.withheld(now)) is withheld


@pytest.mark.parametrize(("offset", "reached"), [(1, False), (2, True), (4, True)])
def test_dropped_records_at_the_end_are_not_awaited(offset: int, reached: bool) -> None:
    """Of an ordered topic: no ack can be stored, and of offsets 3 and 4 none ever comes."""
    end = ReadEnd([row(0, 5, 5, group="")])
    end.note_printed([SimpleNamespace(group="g1", queue=0, offset=offset)])
    assert end.is_reached([replace(row(0, 5, 5), end_to_come=3)]) is reached
    assert not end.is_reached([row(0, 5, 5)]) or offset == 4, "an older broker"


def test_dropped_records_do_not_hide_withheld_ones() -> None:
    end = ReadEnd([row(0, 5, 9, group="")])
    end.note_printed([SimpleNamespace(group="g1", queue=0, offset=2)])
    now = [replace(row(0, 5, 9), end_to_come=3)]
    assert not end.is_reached(now)
    assert end.withheld(now) == now


def test_only_a_group_whose_end_is_not_reached_lacks_its_session() -> None:
    end = ReadEnd([row(0, 5, 5)])
    connected = {"g1": "refused", "g2": "refused"}
    assert end.unconnected([row(3, 5, 5)], connected) == {"g1": "refused"}
    assert end.unconnected([row(5, 5, 5)], connected) == {}
    assert end.unconnected([row(3, 5, 5)], {"g1": ""}) == {}


@pytest.mark.parametrize(("readable", "withheld"), [(0, True), (5, False)])
def test_group_without_stored_start_counts_as_unread(readable: int, withheld: bool) -> None:
    end = ReadEnd([row(readable, readable, 9, group="other")])
    assert not end.is_reached([])
    assert bool(end.withheld([])) is withheld


@pytest.mark.parametrize(
    ("rows", "lasting", "sentences"),
    [
        ([row(0, 5, 5)], True, []),
        ([row(0, 5, 9, "")], True, []),  # a healthy group
        ([row(0, 5, 9, "")], False, ["they wait for acks"]),
        ([row(6, 5, 9, "")], True, ["they wait for acks"]),  # the end lies below the progress
        ([row(0, 5, 9), row(0, 5, 9, group="two")], True, [WHY]),  # one queue, two groups
    ],
)
def test_sentence_is_for_what_may_last(
    rows: list[QueueOffsets], lasting: bool, sentences: list[str]
) -> None:
    assert list(withheld_by_reason(rows, lasting=lasting).values()) == [
        f"group g1: 4 messages of topic t may not be read yet: {reason}" for reason in sentences
    ]


async def test_changing_number_of_withheld_messages_is_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waits = ReadWaits(None, "app", "t", 60)
    for stored_end in (9, 10, 11):
        waits.report_withheld([row(0, 5, stored_end)])
    waits.report_withheld([row(0, 5, 12, "they wait for master g1-0")])
    assert [line.split(": ")[-1] for line in capsys.readouterr().err.splitlines()] == [
        WHY,
        "they wait for master g1-0",
    ]


def test_first_reason_is_returned_once_any_has_lasted() -> None:
    still = Standstill()
    assert still.lasting({"acks": "A"}, 0, limit_s=30) == ""
    assert still.lasting({"withheld": "W", "acks": "A"}, 25, limit_s=30) == ""
    assert still.lasting({"withheld": "W", "acks": "A"}, 31, limit_s=30) == "W"
    assert still.lasting({}, 32, limit_s=30) == ""
    assert still.lasting({"acks": "A"}, 33, limit_s=30) == "", "the time starts again"
    assert still.lasting({"acks": "A"}, 64, limit_s=30) == "A"
