"""The rules for leaving and entering the in-sync set."""

import pytest

from fmqcore.batch.header import BatchType, encode_header, padding
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.replication.frames import end_of_batches
from fmqcore.replication.in_sync_set import IsrLimits, Lag, LinkFacts, candidates, leavers

A, B = BrokerId("a"), BrokerId("b")
LIMITS = IsrLimits(dead_after_ms=1000, in_sync_lag_bytes=100)
UP = LinkFacts(connected=True, current=True, ready=True, counted_end=Position(1000))


@pytest.mark.parametrize(
    ("facts", "term_ms", "reason"),
    [
        (UP, 9999, ""),
        (UP._replace(lag_ms=999), 9999, ""),
        (UP._replace(lag_ms=1000), 0, "behind for 1000 ms"),
        (UP._replace(current=False), 9999, ""),
        (UP._replace(lost=True), 9999, ""),
        (LinkFacts(), 999, ""),
        (LinkFacts(), 1000, "did not come"),
        (LinkFacts(lost=True), 0, "stream broke"),
        (None, 0, "no configured slave"),
    ],
)
def test_slaves_that_leave_the_in_sync_set(
    facts: LinkFacts | None, term_ms: int, reason: str
) -> None:
    slaves = {B: UP} | ({} if facts is None else {A: facts})
    out = leavers(frozenset({A, B}), slaves, term_ms, LIMITS)
    assert (reason in out[A]) if reason else out == {}
    assert B not in out
    assert leavers(frozenset({B}), slaves, term_ms, LIMITS) == {}


@pytest.mark.parametrize(
    ("facts", "able"),
    [
        (UP, True),
        (UP._replace(counted_end=Position(900)), True),
        (UP._replace(counted_end=Position(899)), False),
        (UP._replace(connected=False), False),
        (UP._replace(current=False), False),
        (UP._replace(ready=False), False),
        (UP._replace(lag_ms=1000), False),
    ],
)
def test_slaves_that_may_enter_the_in_sync_set(facts: LinkFacts, able: bool) -> None:
    found = candidates(frozenset({B}), {B: UP, A: facts}, Position(1000), LIMITS)
    assert found == ([A] if able else [])
    assert candidates(frozenset({A, B}), {B: UP, A: facts}, Position(1000), LIMITS) == []


def test_a_slave_that_follows_a_flood_is_not_behind() -> None:
    """It is always a little behind the end, yet gets everything that existed a moment ago."""
    lag = Lag.begin(Position(0), 0)
    for now in range(0, 60_000, 50):
        lag.note(Position(now * 1000), Position(now * 1000 + 900_000), now)
        assert lag.lag_ms(now) <= 2 * 900  # by one mark at a time: at most twice what it is


def test_lag_of_a_late_slave_is_not_underestimated() -> None:
    lag = Lag.begin(Position(900_000), 900)
    for now in range(1800, 60_000, 50):
        lag.note(Position((now - 900) * 1000), Position(now * 1000), now)
        assert 900 <= lag.lag_ms(now) <= 2 * 900


def test_a_slave_that_stops_is_behind_from_then_on() -> None:
    lag = Lag.begin(Position(500), 0)
    lag.note(Position(500), Position(500), 10)
    assert lag.lag_ms(30) == 20
    for now in range(40, 5000, 10):
        lag.note(Position(500), Position(600 + now), now)  # it acks, but gets nothing new
    assert lag.lag_ms(5000) >= 4960
    lag.note(Position(9999), Position(9999), 5001)
    assert lag.lag_ms(5001) == 0


def test_an_eof_stands_for_the_rest_of_its_segment() -> None:
    plain, _ = encode_header(
        type=BatchType.DATA,
        position=Position(64),
        epoch=Epoch(1),
        prev_header_crc=0,
        payload_len=5,
        payload_crc=0,
        store_ms=0,
    )
    batch = plain + b"12345" + padding(5)
    assert end_of_batches(Position(64), b"") == 64
    assert end_of_batches(Position(64), batch * 3) == 64 + 3 * len(batch)
    eof, _ = encode_header(
        type=BatchType.EOF,
        position=Position(64 + len(batch)),
        epoch=Epoch(1),
        prev_header_crc=0,
        payload_len=0,
        payload_crc=0,
        store_ms=0,
        total_len=4096,
    )
    assert end_of_batches(Position(64), batch + eof) == 64 + len(batch) + 4096
