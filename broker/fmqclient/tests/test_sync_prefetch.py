"""The blocking consumer's prefetched messages when a queue is lost, moved or paused."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import fmqclient
from fmqclient.sync.prefetch import Ahead
from fmqclient.tests.double import ClusterDouble
from fmqclient.tests.double_parts import ConsumeDouble
from fmqclient.tests.test_sync import double
from fmqclient.tests.test_sync_threads import wait_until
from fmqcore.ids import GroupName

__all__ = ["double"]  # the fixture


@pytest.fixture
def sub(double: ClusterDouble) -> Iterator[fmqclient.sync.Consumer]:
    """A consumer that returned one message of `g1/0` to a `for` loop, with 39 prefetched."""
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(40)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        for m in sub:
            m.ack()
            break
        yield sub


def _session(double: ClusterDouble) -> ConsumeDouble:
    return double.brokers["g1-0"].consumers[-1]


def test_prefetched_messages_of_a_revoked_queue_are_given_back(
    double: ClusterDouble, sub: fmqclient.sync.Consumer
) -> None:
    """Otherwise the next holder waits for it in vain, then both work on the same messages."""
    session = _session(double)
    session.revoke(0)
    wait_until(lambda: session.progress[0].in_flight_records == 0)
    assert {(n.first_offset, n.end_offset) for n in session.nacks} == {(1, 40)}
    assert sub.fetch(100, timeout=0.2) == []


def test_prefetched_messages_are_dropped_at_a_seek(
    double: ClusterDouble, sub: fmqclient.sync.Consumer
) -> None:
    _session(double).move_to(0, 30)
    wait_until(lambda: _session(double).progress[0].in_flight_records == 10)
    wait_until(lambda: sub._consumer._sessions[GroupName("g1")].trackers[0].term == 1)
    assert [int(m.value) for m in sub.fetch(100, timeout=5)] == list(range(30, 40))


def test_messages_dropped_by_a_seek_return_their_credit(
    sub: fmqclient.sync.Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here they are dropped before the session hears of the seek. No credit: no deliveries."""
    session, given = sub._consumer._sessions[GroupName("g1")], list[int]()
    give_credit = session.give_credit

    def give(size: int, records: int = 0) -> None:
        given.append(records)
        give_credit(size, records)

    async def sought(*_: Any, **__: Any) -> None: ...

    sub.commit()  # the message that was handed out is reported
    monkeypatch.setattr(session, "give_credit", give)
    monkeypatch.setattr(sub._consumer, "seek", sought)
    sub.seek("earliest")
    assert sum(given) == 39


def test_prefetched_messages_of_lost_session_are_returned_once(
    double: ClusterDouble, sub: fmqclient.sync.Consumer
) -> None:
    before = len(double.brokers["g1-0"].consumers)
    double.brokers["g1-0"].reset_streams()
    wait_until(lambda: len(double.brokers["g1-0"].consumers) > before)
    wait_until(lambda: ("g1", 0) in sub.assignment)
    seen = [int(m.value) for m in sub.fetch(100, timeout=5)]
    assert seen == list(range(1, 40))


def test_fetch_interrupted_at_its_end_loses_nothing(
    double: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be redelivered a minute later, after newer ones."""

    class Interrupted:
        def __init__(self, done: "Future[Any]") -> None:
            self._done = done

        def result(self) -> None:
            self._done.result()
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self._done.cancel()

    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(10)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        submit = sub._loop.submit
        with monkeypatch.context() as patched:
            patched.setattr(sub._loop, "submit", lambda work: Interrupted(submit(work)))
            with pytest.raises(KeyboardInterrupt):
                sub.fetch(10, timeout=20)
        assert [int(m.value) for m in sub.fetch(10, timeout=5)] == list(range(10))


def test_unbounded_fetch_waits_on_if_another_thread_took_all(
    double: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list would mean that the consumer was closed."""
    with fmqclient.sync.connect(double.url) as c:
        p = c.producer()
        p.send("orders", b"taken", group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        give = sub._give

        def another(count: int) -> list[fmqclient.sync.Message]:
            monkeypatch.undo()
            assert [m.value for m in give(count)] == [b"taken"]
            p.send("orders", b"next", group="g1", queue=0)
            return give(count)

        monkeypatch.setattr(sub, "_give", another)
        assert [m.value for m in sub.fetch(10)] == [b"next"]


def test_order_is_kept_while_another_thread_pauses_another_queue(double: ClusterDouble) -> None:
    seen: list[int] = []
    before, count = sys.getswitchinterval(), 6000
    sys.setswitchinterval(1e-6)
    try:
        with fmqclient.sync.connect(double.url) as c:
            values = [b"%d" % n for n in range(count)]
            c.producer().send_batch("orders", values, group="g1", queue=0)
            sub = c.consumer("orders", group="billing")

            def work() -> None:
                for m in sub:
                    seen.append(int(m.value))
                    if len(seen) == count:
                        return

            wait_until(lambda: ("g1", 1) in sub.assignment)
            thread = threading.Thread(target=work)
            thread.start()
            while thread.is_alive():
                sub.pause([("g1", 1)])
                sub.resume([("g1", 1)])
    finally:
        sys.setswitchinterval(before)
    assert seen == list(range(count))


class _Counted(dict[int, bool]):
    """Counts how often iteration starts at the beginning."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        self.looks += 1
        return super().__iter__()


def test_many_are_taken_at_one_look() -> None:
    """Taken messages leave gaps that each look passes: fifty thousand per `fetch` took 1.5 s."""
    ahead: Ahead[int] = Ahead()
    waiting = ahead._waiting = _Counted(dict.fromkeys(range(1000), True))
    assert ahead.take(600) == list(range(600))
    assert ahead.take(600) == list(range(600, 1000))
    assert waiting.looks == 2
