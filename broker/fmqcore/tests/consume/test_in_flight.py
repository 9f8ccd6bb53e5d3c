"""A queue's progress against a naive oracle with one state per offset."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fmqcore.consume.in_flight import Lease, Limits, QueueProgress
from fmqcore.ids import Offset

_END = 40
_TIMEOUT = 5


@dataclass
class _Naive:
    """Per offset: state, time of the state, deliveries, and its limit while untouched."""

    limits: Limits
    states: list[tuple[str, int, int]] = field(default_factory=list)
    latest: dict[int, int] = field(default_factory=dict)
    floor: int = 0
    touched: int = 0

    def count(self, what: str) -> int:
        return sum(s[0] == what for s in self.states)

    def raise_floor(self) -> None:
        while self.floor < len(self.states) and self.states[self.floor][0] == "done":
            self.floor += 1


class Progress(RuleBasedStateMachine):
    """Random steps on both; after each, both must agree on every offset."""

    @initialize(
        floor=st.integers(0, 5),
        acked=st.lists(st.tuples(st.integers(6, 20), st.integers(6, 20)), max_size=3),
        room=st.integers(1, 12),
        ranges=st.integers(1, 6),
    )
    def begin(self, floor: int, acked: list[tuple[int, int]], room: int, ranges: int) -> None:
        limits = Limits(room, ranges)
        good = [(Offset(a), Offset(b)) for a, b in acked if a < b]
        self.now = self.alive_until = 0
        self.progress = QueueProgress(Offset(floor), good, limits)
        self.naive = _Naive(limits, floor=floor, touched=floor)
        done = {o for a, b in good for o in range(a, b)}
        top = max(done, default=-1)
        self.naive.states = [
            ("done", 0, 0)
            if o < floor or o in done
            else ("due", 0, 0)
            if o < top
            else ("fresh", 0, 0)
            for o in range(_END)
        ]
        self.naive.raise_floor()

    @rule(up_to=st.integers(0, _END), most=st.integers(1, 10))
    def deliver(self, up_to: int, most: int) -> None:
        want = self.progress.peek(Offset(up_to))
        states = self.naive.states
        room = self.naive.limits.max_in_flight_records - self.naive.count("flying")
        due = [o for o in range(up_to) if states[o][0] == "due"]
        fresh = [o for o in range(up_to) if states[o][0] == "fresh"]
        assert (self.progress.waits_for < up_to) == bool(due or fresh)
        if room <= 0:
            assert want is None
            return
        if want is None:
            assert not due
            assert not fresh or len(self.aside()) >= self.naive.limits.max_ranges
            return
        first, end = want
        assert first == (due[0] if due else fresh[0]), "what came back goes first, in order"
        assert end - first <= room
        end = Offset(min(end, first + most))
        latest = self.now + 2 * _TIMEOUT
        for lease in self.progress.lease(first, Offset(end), self.now + _TIMEOUT, latest):
            for o in range(lease.first, lease.end):
                kind, _, count = states[o]
                assert kind in ("due", "fresh")
                assert lease.deliveries == count + 1
                states[o] = ("flying", self.now + _TIMEOUT, count + 1)
                self.naive.latest[o] = latest

    def touch(self, first: int, end: int) -> None:
        """Always called before an ack or nack of the same range."""
        self.progress.touch(Offset(first), Offset(end), self.now + _TIMEOUT)
        for o in range(self.naive.touched, first):
            kind, when, count = self.naive.states[o]
            if kind == "flying":
                self.naive.states[o] = (kind, max(when, self.now + _TIMEOUT), count)
        known = [o for o, state in enumerate(self.naive.states) if state[0] != "fresh"]
        known_end = max(max(known, default=-1) + 1, self.naive.floor)
        self.naive.touched = max(self.naive.touched, min(end, known_end))
        self.alive_until = self.now + _TIMEOUT

    def aside(self) -> list[tuple[object, ...]]:
        pieces: list[tuple[object, ...]] = list(self.progress.acked)
        return pieces + list(self.progress._delayed) + list(self.progress._due)

    @rule(
        first=st.integers(0, _END), length=st.integers(0, 12), up_to=st.just(0) | st.integers(0, 40)
    )
    def ack(self, first: int, length: int, up_to: int) -> None:
        end = min(first + length, _END)
        self.touch(first, end)
        before = list(self.naive.states)
        full = len(self.aside()) >= self.naive.limits.most_ranges
        news = self.progress.ack(Offset(first), Offset(end), Offset(up_to))
        acked = [
            o for o in range(first, end) if before[o][0] != "fresh" or (o < up_to and not full)
        ]
        for o in acked:
            self.naive.states[o] = ("done", 0, 0)
        for o in range(max(acked, default=0)):
            if self.naive.states[o][0] == "fresh":  # left out: it precedes new records
                self.naive.states[o] = ("due", 0, 0)
        self.naive.raise_floor()
        assert news == any(before[o][0] != "done" for o in acked)

    @rule(first=st.integers(0, _END), length=st.integers(0, 12), delay=st.integers(0, 10))
    def nack(self, first: int, length: int, delay: int) -> None:
        end = min(first + length, _END)
        self.touch(first, end)
        self.progress.nack(Offset(first), Offset(end), self.now + delay, self.now)
        for o in range(first, end):
            kind, _, count = self.naive.states[o]
            if kind == "flying":
                self.naive.states[o] = ("delayed", self.now + delay, count)
        self.ripen("delayed")

    def ripen(self, *kinds: str) -> None:
        for o, (kind, when, count) in enumerate(self.naive.states):
            if kind in kinds and when <= self.now:
                self.naive.states[o] = ("due", 0, count)

    @rule(steps=st.integers(0, 8))
    def time(self, steps: int) -> None:
        self.now += steps
        woken = self.progress.wake_ms
        self.progress.expire(self.now, self.alive_until)
        self.ripen("delayed")
        for o, (kind, when, count) in enumerate(self.naive.states):
            if kind == "flying" and o >= self.naive.touched:
                when = max(when, min(self.alive_until, self.naive.latest[o]))
            if kind == "flying" and when <= self.now:
                self.naive.states[o] = ("due", 0, count)
        assert woken > self.now or self.progress.wake_ms != woken

    @rule()
    def session_gone(self) -> None:
        self.progress.session_gone(self.now)
        self.naive.touched = self.naive.floor
        for o, (kind, _, count) in enumerate(self.naive.states):
            if kind == "flying":
                self.naive.states[o] = ("due", 0, count)

    @rule(first=st.integers(0, _END), end=st.integers(0, _END))
    def unlease(self, first: int, end: int) -> None:
        self.progress.unlease(Offset(first), Offset(end), self.now)
        for o in range(first, end):
            kind, _, count = self.naive.states[o]
            if kind == "flying":
                self.naive.states[o] = ("due", 0, count - 1)

    @rule(offset=st.integers(0, _END))
    def seek(self, offset: int) -> None:
        self.progress.seek(Offset(offset))
        self.naive.floor = self.naive.touched = offset
        self.naive.states = [("done" if o < offset else "fresh", 0, 0) for o in range(_END)]

    @rule(offset=st.integers(0, _END))
    def retention(self, offset: int) -> None:
        self.progress.skip_to(Offset(offset))
        self.naive.floor = max(self.naive.floor, offset)
        self.naive.states[:offset] = [("done", 0, 0)] * offset
        self.naive.raise_floor()

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "progress"):
            return
        self.progress.check()
        places = {
            "flying": {
                o: (p.value.deadline_ms, p.value.deliveries)
                for p in self.progress._flying
                for o in range(p.first, p.end)
            },
            "delayed": {
                o: (p.value.due_ms, p.value.deliveries)
                for p in self.progress._delayed
                for o in range(p.first, p.end)
            },
            "due": {o: (0, p.value) for p in self.progress._due for o in range(p.first, p.end)},
        }
        for kind, found in places.items():
            wanted = {o: s[1:] for o, s in enumerate(self.naive.states) if s[0] == kind}
            assert found == wanted, kind
        assert self.progress.floor == self.naive.floor
        assert self.progress.in_flight_records == self.naive.count("flying")
        assert self.progress._touched == self.naive.touched
        moments = [s[1] for s in self.naive.states if s[0] == "delayed"]
        moments += [
            max(when, min(self.alive_until, self.naive.latest[o]))
            if o >= self.naive.touched
            else when
            for o, (kind, when, _) in enumerate(self.naive.states)
            if kind == "flying"
        ]
        wake = self.progress.wake_ms
        assert not moments or wake <= min(moments)


TestProgress = Progress.TestCase
TestProgress.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def _leases(progress: QueueProgress, up_to: int, deadline: int = 100) -> list[Lease]:
    leased = []
    while want := progress.peek(Offset(up_to)):
        leased += progress.lease(*want, deadline)
    return leased


def test_records_acked_in_order_leave_nothing_but_a_floor() -> None:
    progress = QueueProgress(Offset(0))
    assert _leases(progress, 10) == [Lease(Offset(0), Offset(10), 1)]
    for o in range(10):
        assert progress.ack(Offset(o), Offset(o + 1))
    assert (progress.floor, progress.acked, progress.in_flight_records) == (10, (), 0)


def test_ack_of_an_undelivered_record_is_ignored() -> None:
    progress = QueueProgress(Offset(0))
    assert not progress.ack(Offset(0), Offset(100))
    assert _leases(progress, 5) == [Lease(Offset(0), Offset(5), 1)]


def test_a_late_ack_of_an_expired_range_counts() -> None:
    progress = QueueProgress(Offset(0))
    _leases(progress, 5, deadline=10)
    assert progress.expire(10)
    assert progress.ack(Offset(0), Offset(5))
    assert progress.peek(Offset(5)) is None


def test_redeliveries_carry_their_count_and_precede_new_records() -> None:
    progress = QueueProgress(Offset(0))
    _leases(progress, 4)
    progress.nack(Offset(1), Offset(2), 50, 0)
    assert progress.wake_ms == 50
    progress.expire(49)
    assert _leases(progress, 6) == [Lease(Offset(4), Offset(6), 1)]
    progress.expire(50)
    assert _leases(progress, 8) == [Lease(Offset(1), Offset(2), 2), Lease(Offset(6), Offset(8), 1)]
    progress.session_gone(0)
    counts = {o: n.deliveries for n in _leases(progress, 8) for o in range(n.first, n.end)}
    assert counts == {0: 2, 1: 3, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2}


def test_buffered_records_of_a_busy_holder_expire_at_a_limit() -> None:
    progress = QueueProgress(Offset(0))
    progress.lease(Offset(0), Offset(10), 100, 300)
    progress.touch(Offset(3), Offset(4), 190)
    assert progress.ack(Offset(3), Offset(4))
    assert not progress.expire(100, alive_until_ms=190)
    assert progress.expire(190, alive_until_ms=250), "passed over a full timeout ago"
    assert progress.peek(Offset(10)) == (0, 3)
    assert not progress.expire(299, alive_until_ms=10_000)
    assert progress.expire(300, alive_until_ms=10_000)
    assert progress.in_flight_records == 0


def test_acks_of_undelivered_records_keep_the_range_limit() -> None:
    progress = QueueProgress(Offset(0), limits=Limits(2, 2))
    for first in (10, 20, 30, 40, 50):
        progress.ack(Offset(first), Offset(first + 1), Offset(100))
    assert progress.acked == ((10, 11), (20, 21))
    assert progress.next == 21


@pytest.mark.parametrize("ranges", [1, 3, 10])
def test_new_reader_accepts_all_ranges_the_previous_could_keep(ranges: int) -> None:
    """Otherwise it reports acks stored that it has dropped, and redelivers their messages."""
    limits = Limits(8, ranges)
    last = QueueProgress(Offset(0), limits=limits)
    while _leases(last, 1000):
        for held in range(last.floor + 1, last.next, 2):
            last.ack(Offset(held), Offset(held + 1))
    new = QueueProgress(Offset(0), limits=limits)
    for first, end in last.acked:
        new.ack(first, end, Offset(1000))
    assert new.acked == last.acked


def test_range_limit_stops_new_records_but_not_redeliveries() -> None:
    progress = QueueProgress(Offset(0), limits=Limits(10, 3))
    _leases(progress, 100)
    for o in (1, 3, 5):
        progress.ack(Offset(o), Offset(o + 1))
    assert progress.peek(Offset(100)) is None
    progress.session_gone(0)
    assert progress.peek(Offset(100)) == (0, 1)
    for lease in _leases(progress, 100):
        progress.ack(lease.first, lease.end)
    assert progress.peek(Offset(100)) == (10, 20)


def test_stored_ranges_leave_their_gaps_to_be_delivered_first() -> None:
    stored = [(Offset(7), Offset(9)), (Offset(12), Offset(14))]
    progress = QueueProgress(Offset(5), stored, Limits(100, 1))
    assert _leases(progress, 13) == [
        Lease(Offset(5), Offset(7), 1),
        Lease(Offset(9), Offset(12), 1),
    ]


def test_fresh_offsets_are_never_leased_with_a_hole() -> None:
    with pytest.raises(AssertionError, match="without a hole"):
        QueueProgress(Offset(0)).lease(Offset(3), Offset(5), 1)


@given(st.lists(st.integers(0, 199), unique=True))
def test_any_order_of_acks_ends_at_the_same_floor(order: list[int]) -> None:
    progress = QueueProgress(Offset(0), limits=Limits(200, 1000))
    _leases(progress, 200)
    for o in order:
        assert progress.ack(Offset(o), Offset(o + 1))
    missing = next(o for o in range(201) if o not in set(order))
    assert progress.floor == missing
    assert progress.in_flight_records == 200 - len(order)
