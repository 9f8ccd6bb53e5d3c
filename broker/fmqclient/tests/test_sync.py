"""The facade for programs without asyncio, against the double on its own loop."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster


@pytest.fixture
def double() -> Iterator[ClusterDouble]:
    """Run the double on a loop in another thread: the test itself blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = cluster(2)
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(20)
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_sync_client_sends_and_receives(double: ClusterDouble) -> None:
    threads = threading.active_count()
    with fmqclient.sync.connect(double.url) as c:
        p = c.producer()
        assert p.send("orders", b"v", key=b"k").offset == 0
        futures = [p.send_nowait("orders", b"%d" % n) for n in range(100)]
        assert {f.result(20).group for f in futures} <= {"g1", "g2"}
        assert len(p.send_batch("orders", [b"a", b"b"])) == 2
        with c.consumer("orders", group="billing") as sub:
            seen = []
            for m in sub:
                seen.append(m.value)
                assert m.topic == "orders"
                m.ack()
                if len(seen) == 103:
                    break
            sub.commit()
            assert len(sub.assignment) == 8
        assert sorted(seen) == sorted([b"v", b"a", b"b", *(b"%d" % n for n in range(100))])
        assert [t.name for t in c.admin().topics()] == ["orders"]
        with pytest.raises(fmqclient.UnknownTopic):
            p.send("nope", b"x")
    with pytest.raises(fmqclient.Unavailable, match="closed"):
        c.producer()
    assert sum(sum(g.floors.values()) for g in double.groups.values()) == 103
    assert threading.active_count() <= threads + 1  # gRPC keeps one thread


def _acked(double: ClusterDouble) -> int:
    return sum(end - first for b in double.brokers.values() for _, first, end in b.acks)


def _wait_for_acks(double: ClusterDouble, count: int) -> None:
    until = time.monotonic() + 20
    while _acked(double) < count and time.monotonic() < until:
        time.sleep(0.01)
    assert _acked(double) == count


def test_iteration_continues_after_a_left_loop(double: ClusterDouble) -> None:
    """Prefetched messages are not lost, and an ack is sent without a further fetch."""
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(100)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        seen = []
        for count in (10, 30):
            for m in sub:
                seen.append(m.value)
                m.ack()
                if len(seen) == count:
                    break
            _wait_for_acks(double, count)
        seen += [m.value for m in sub.fetch(5)]
        assert seen == [b"%d" % n for n in range(35)]


def test_auto_ack_covers_only_finished_messages(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(100)], group="g1", queue=0)
        with c.consumer("orders", group="billing", ack="auto") as sub:
            for n, m in enumerate(sub):
                if n == 3:
                    m.nack()
                elif n == 9:
                    break
        _wait_for_acks(double, 9)
        sub = c.consumer("orders", group="billing", ack="auto")
        with suppress(ZeroDivisionError), sub:
            for n, _ in enumerate(sub):
                assert 1 // (4 - n) is not None
        _wait_for_acks(double, 9 + 4)


def test_failed_sync_connect_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(fmqclient.Unavailable):
        fmqclient.sync.connect("fmq://127.0.0.1:1", timeout_s=0.1)
    assert threading.active_count() <= threads + 1
