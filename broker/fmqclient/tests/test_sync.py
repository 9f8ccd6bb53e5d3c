"""The facade for programs without asyncio, against the double in a loop of its own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster


@pytest.fixture
def double() -> Iterator[ClusterDouble]:
    """The double on a loop in another thread: the test itself blocks."""
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


def test_the_same_without_asyncio(double: ClusterDouble) -> None:
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
    assert threading.active_count() <= threads + 1  # gRPC keeps one of its own


def test_nobody_there_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(fmqclient.Unavailable):
        fmqclient.sync.connect("fmq://127.0.0.1:1", timeout_s=0.1)
    assert threading.active_count() <= threads + 1
