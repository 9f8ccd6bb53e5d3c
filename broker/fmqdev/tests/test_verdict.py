"""The demo's verdict: histories that must pass, and one for each fault that it must find."""

import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from fmqcore.ids import Permission, Position
from fmqcore.journal.checkpoint import Checkpoint, encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqdev.demo.flights import ALL, flights, row_of
from fmqdev.demo.replica_comparison import compare_journals
from fmqdev.demo.verdict import (
    CLUSTER,
    History,
    Outage,
    Place,
    Seen,
    judge,
    longest_pause,
    offsets_gone_back,
    outages,
)

A, B = Place("g1", 0), Place("g2", 3)
KEYS = [b"x", b"y", b"x", None, b"y", b"x"]
FULL, READ, NONE = Permission.FULL, Permission.READ, Permission.NONE


def a_good_run() -> History:
    """Six messages in two queues; offsets 0 and 1 of A were delivered twice after a takeover."""
    return History(
        keys=list(KEYS),
        checksums=array("L", [zlib.crc32(b"%d" % row) for row in range(6)]),
        acked={A: {0: 0, 1: 1, 2: 2}, B: {0: 3, 1: 4, 2: 5}},
        consumed={
            A: [(0, 0), (1, 1), (0, 0), (1, 1), (2, 2)],
            B: [(0, 3), (1, 4), (2, 5)],
        },
    )


def test_good_run_has_no_findings_and_counts_duplicates() -> None:
    traffic = judge(a_good_run())
    assert traffic.findings == ()
    assert (traffic.sent, traffic.acked, traffic.consumed) == (6, 6, 6)
    assert (traffic.twice, traffic.stored_twice, traffic.queues) == (2, 0, 2)


def lose_one(history: History) -> None:
    history.consumed[B].pop()


def lose_a_queue(history: History) -> None:
    del history.consumed[B]


def mix_up(history: History) -> None:
    history.consumed[A][1] = (1, 2)


def change_on_redelivery(history: History) -> None:
    history.consumed[A][2] = (0, 1)


def bring_a_stranger(history: History) -> None:
    history.foreign[A] = [7]


def jump_ahead(history: History) -> None:
    history.consumed[B] = [(0, 3), (2, 5), (1, 4)]


def store_out_of_order(history: History) -> None:
    history.acked[A] = {0: 2, 1: 1, 2: 0}
    history.consumed[A] = [(0, 2), (1, 1), (2, 0)]


def store_one_twice_in_a_queue(history: History) -> None:
    history.consumed[B].append((3, 5))


def refuse(history: History) -> None:
    history.refused[5] = "no"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lose_one, "LOST"),
        (lose_a_queue, "LOST"),
        (mix_up, "MIXED_UP"),
        (change_on_redelivery, "MIXED_UP"),
        (bring_a_stranger, "FOREIGN"),
        (jump_ahead, "ORDER"),
        (store_out_of_order, "KEY_ORDER"),
        (store_one_twice_in_a_queue, "KEY_ORDER"),
        (refuse, "REFUSED"),
    ],
)
def test_each_fault_is_found(spoil: Callable[[History], None], code: str) -> None:
    history = a_good_run()
    spoil(history)
    assert code in [finding.code for finding in judge(history).findings]


def test_finding_counts_all_and_lists_some() -> None:
    history = a_good_run()
    history.consumed.clear()
    (lost,) = judge(history).findings
    assert lost.count == 6
    assert "g1/0 offset 0: flight 0" in lost.text
    assert "and 3 more" in lost.text


def test_unacknowledged_message_may_be_missing_or_stored() -> None:
    history = a_good_run()
    del history.acked[B][2]
    history.unknown[5] = "the master died"
    assert judge(history).findings == ()
    history.consumed[B].pop()
    traffic = judge(history)
    assert traffic.findings == ()
    assert traffic.unknown == 1


def test_a_message_in_two_queues_is_counted() -> None:
    history = a_good_run()
    history.consumed[Place("g2", 4)] = [(0, 2)]
    traffic = judge(history)
    assert traffic.findings == ()
    assert (traffic.twice, traffic.stored_twice) == (3, 1)


def test_committed_offsets_must_not_fall() -> None:
    assert offsets_gone_back({A: 5, B: 7}, {A: 5, B: 9, Place("g1", 1): 0}) is None
    fallen = offsets_gone_back({A: 5, B: 7}, {A: 4})
    assert fallen is not None
    assert fallen.text.endswith("g1/0 from 5 to 4; g2/3 from 7 to nothing")


def test_outage_is_the_longest_time_without_service() -> None:
    looks = [
        Seen(0, "g1", "g1-0", FULL),
        Seen(0, "g1", "g1-1", NONE),
        Seen(0, "g2", "g2-0", FULL),
        Seen(100, "g1", "g1-0", NONE),  # killed
        Seen(300, "g1", "g1-1", READ),  # took over
        Seen(900, "g1", "g1-1", NONE),  # hands over
        Seen(950, "g1", "g1-0", FULL),  # is back
        Seen(960, "g1", "g1-0", FULL),
    ]
    assert outages(looks, 50, 1000) == [
        Outage("g1", reads_ms=200, writes_ms=850),
        Outage("g2", reads_ms=0, writes_ms=0),
        Outage(CLUSTER, reads_ms=0, writes_ms=0),
    ]


def test_an_outage_without_end_counts_to_the_end() -> None:
    looks = [Seen(0, "g1", "a", FULL), Seen(100, "g1", "a", NONE)]
    assert outages(looks, 0, 1000) == [
        Outage("g1", reads_ms=900, writes_ms=900),
        Outage(CLUSTER, reads_ms=900, writes_ms=900),
    ]


def test_the_cluster_is_out_when_all_groups_are() -> None:
    looks = [
        Seen(0, "g1", "a", FULL),
        Seen(0, "g2", "b", FULL),
        Seen(100, "g1", "a", NONE),
        Seen(200, "g2", "b", NONE),
        Seen(250, "g1", "a", FULL),
        Seen(400, "g2", "b", FULL),
    ]
    assert outages(looks, 0, 500)[-1] == Outage(CLUSTER, reads_ms=50, writes_ms=50)


def test_the_longest_pause_is_between_moments_and_to_the_edges() -> None:
    assert longest_pause([1, 5, 6], 0, 7) == 4
    assert longest_pause([1, 5, 6], 2, 20) == 14
    assert longest_pause([], 0, 7) == 7


def test_flights_are_json_keyed_by_tail_number() -> None:
    first = list(flights(3))
    assert [flight.key for flight in first] == [b"N14228", b"N24211", b"N619AA"]
    assert [row_of(flight.value) for flight in first] == [0, 1, 2]
    assert b'"dep_delay":2,' in first[0].value
    assert b'"dest":"IAH"' in first[0].value
    assert row_of(b"not json") == row_of(b"[1]") == row_of(b"{}") == -1
    assert ALL == 336_776


# ---- journals


def a_journal(path: Path, data: bytes, *, start: int = 0, segment: int = 100) -> Path:
    """A data directory: `data` split into segments, and a checkpoint at its end."""
    path.mkdir()
    for base in range(start, len(data), segment):
        piece = data[base : base + segment].ljust(segment, b"\0")
        (path / segment_name(Position(base))).write_bytes(piece)
    bases = tuple(Position(base) for base in range(start, len(data), segment))
    end = Position(len(data))
    checkpoint = Checkpoint(Position(start), end, end, 0, clean=True, bases=bases)
    (path / CHECKPOINT).write_bytes(encode_checkpoint(checkpoint))
    return path


DATA = bytes(n % 251 for n in range(1234))


def test_equal_journals_are_equal(tmp_path: Path) -> None:
    one, two = a_journal(tmp_path / "1", DATA), a_journal(tmp_path / "2", DATA)
    compared = compare_journals("g1", one, two)
    assert (compared.bytes, compared.finding) == (1234, None)


def test_a_slave_that_started_later_is_compared_from_there(tmp_path: Path) -> None:
    one, two = a_journal(tmp_path / "1", DATA), a_journal(tmp_path / "2", DATA, start=500)
    compared = compare_journals("g1", one, two)
    assert (compared.bytes, compared.finding) == (734, None)


@pytest.mark.parametrize("at", [0, 99, 100, 1233])
def test_one_different_byte_is_found_where_it_is(tmp_path: Path, at: int) -> None:
    other = DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]
    one, two = a_journal(tmp_path / "1", DATA), a_journal(tmp_path / "2", other)
    compared = compare_journals("g1", one, two)
    assert compared.finding is not None
    assert compared.finding.text.endswith(f"differ at position {at}")
    assert compared.bytes == at


def test_a_shorter_journal_is_a_difference(tmp_path: Path) -> None:
    one, two = a_journal(tmp_path / "1", DATA), a_journal(tmp_path / "2", DATA[:-1])
    compared = compare_journals("g1", one, two)
    assert compared.finding is not None
    assert "ends at 1234" in compared.finding.text


def test_a_missing_segment_or_checkpoint_is_a_difference(tmp_path: Path) -> None:
    one, two = a_journal(tmp_path / "1", DATA), a_journal(tmp_path / "2", DATA)
    (two / segment_name(Position(300))).unlink()
    assert compare_journals("g1", one, two).finding is not None
    (one / CHECKPOINT).unlink()
    gone = compare_journals("g1", one, two).finding
    assert gone is not None
    assert "cannot be read" in gone.text
