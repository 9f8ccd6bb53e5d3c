"""The facade for programs without asyncio: close, close in a callback, a forked process."""

import asyncio
import os
import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble
from fmqclient.tests.test_sync import _acked, double
from fmqclient.tests.test_sync_threads import wait_until

__all__ = ["double"]  # the fixture


@pytest.mark.parametrize("linger_ms", [0, 20])
def test_flush_covers_records_waiting_for_room(double: ClusterDouble, linger_ms: int) -> None:
    with fmqclient.sync.connect(double.url) as c:
        p = c.producer(max_outstanding_records=20, linger_ms=linger_ms)
        futures = [p.send_nowait("orders", b"%d" % n, key=b"k") for n in range(200)]
        p.flush()
        assert all(f.done() for f in futures)
    assert double.values() == [b"%d" % n for n in range(200)]


def test_close_sends_records_waiting_for_room(
    double: ClusterDouble,
) -> None:
    with fmqclient.sync.connect(double.url) as c, c.producer(max_outstanding_records=20) as p:
        futures = [p.send_nowait("orders", b"%d" % n, key=b"k") for n in range(200)]
    assert [f.exception() for f in futures] == [None] * 200
    assert double.values() == [b"%d" % n for n in range(200)]


def test_close_waits_for_waiting_records_only_until_timeout(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        p = c.producer(max_outstanding_records=1, close_timeout_s=0.2)
        p.send("orders", b"warm", key=b"k")
        for broker in double.brokers.values():
            broker.script = lambda batch: "hang"
        futures = [p.send_nowait("orders", b"%d" % n, key=b"k") for n in range(3)]
        p.close()
    errors = [type(f.exception(20)) for f in futures]
    assert errors == [fmqclient.DeliveryUnknown, fmqclient.Unavailable, fmqclient.Unavailable]


def test_client_close_waits_for_a_part_being_closed(double: ClusterDouble) -> None:
    """Otherwise it cuts the connections in the middle of the last flush."""
    c = fmqclient.sync.connect(double.url)
    p = c.producer()
    p.send("orders", b"warm", key=b"k")
    double.brokers["g1-0"].slow = double.brokers["g2-0"].slow = lambda: 0.5
    future = p.send_nowait("orders", b"v", key=b"k")
    thread = threading.Thread(target=p.close)
    thread.start()
    wait_until(lambda: p.closed)
    c.close()
    thread.join()
    assert future.exception(20) is None


@pytest.mark.parametrize("what", ["client", "producer"])
def test_close_in_a_callback_is_refused_without_loss_or_hang(
    double: ClusterDouble, what: str
) -> None:
    c = fmqclient.sync.connect(double.url)
    p = c.producer()
    refused: list[BaseException] = []
    asked = threading.Event()

    def answered(_: "Future[Any]") -> None:
        try:
            (c if what == "client" else p).close()
        except fmqclient.FmqError as error:
            refused.append(error)
        asked.set()

    double.brokers["g1-0"].slow = double.brokers["g2-0"].slow = lambda: 0.1
    p.send_nowait("orders", b"v").add_done_callback(answered)
    assert asked.wait(20), "the callback hangs, and with it the loop"
    assert isinstance(refused[0], fmqclient.InvalidArgument)
    p.send_nowait("orders", b"w")  # it is as open as before
    c.close()
    assert sorted(double.values()) == [b"v", b"w"]
    with pytest.raises(fmqclient.Unavailable):
        c.producer()


@pytest.mark.parametrize("what", ["client", "producer"])
def test_signal_handler_may_close_during_a_call(
    double: ClusterDouble, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its handler runs in the thread whose call it interrupts, at any place."""
    c = fmqclient.sync.connect(double.url)
    p = c.producer()
    submit = asyncio.run_coroutine_threadsafe

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        (c if what == "client" else p).close()
        return submit(*args)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(fmqclient.Unavailable, match="closed"):
        p.send("orders", b"v")
    c.close()


def test_close_by_a_late_signal_leaves_no_call_waiting(
    double: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop was not closed when checked, and is closed when it gets the call."""
    c = fmqclient.sync.connect(double.url)
    p = c.producer()
    loop: Any = c._loop._loop
    call_soon = loop._call_soon

    def interrupted(*args: Any) -> Any:
        loop._call_soon = call_soon
        c.close()
        return call_soon(*args)

    loop._call_soon = interrupted
    with pytest.raises(fmqclient.Unavailable, match="closed"):
        p.send_nowait("orders", b"v").result(20)


def test_closing_a_part_during_client_close_raises_nothing(
    double: ClusterDouble,
) -> None:
    """It is closed, as requested."""
    c = fmqclient.sync.connect(double.url)
    p = c.producer()
    go = threading.Event()

    async def lasts() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.to_thread(go.wait, 20)

    c._loop.submit(lasts())
    thread = threading.Thread(target=c.close)
    thread.start()
    wait_until(lambda: c._loop._stopped)
    try:
        p.close()
    finally:
        go.set()
        thread.join()


def test_exit_in_a_callback_leaves_no_caller_waiting(double: ClusterDouble) -> None:
    def answered(_: "Future[Any]") -> None:
        raise SystemExit(1)

    with fmqclient.sync.connect(double.url) as c, c.producer() as p:
        p.send_nowait("orders", b"v").add_done_callback(answered)
        p.flush()
        p.send("orders", b"w")
    assert sorted(double.values()) == [b"v", b"w"]


def test_forked_process_gets_an_error_instead_of_hanging(
    double: ClusterDouble,
) -> None:
    with fmqclient.sync.connect(double.url) as c, c.producer() as p:
        p.send("orders", b"v")
        sub = c.consumer("orders", group="billing")
        (m,) = sub.fetch(1)

        def reconnect() -> None:
            fmqclient.sync.connect(double.url)

        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # it would wait for ever
            raised = 0
            try:
                for call in (lambda: p.send("orders", b"w"), m.ack, sub.commit, reconnect):
                    with pytest.raises(fmqclient.Unavailable, match="process"):
                        call()
                    raised += 1
                sub.close()
                c.close()
            finally:
                os._exit(raised)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 4
        p.send("orders", b"x")  # what the other process did does not harm this one
        m.ack()
        sub.commit()


def test_consumer_closes_while_another_thread_gets_messages(
    double: ClusterDouble,
) -> None:
    """With ack="auto" these messages are not acked: the program may still handle them."""
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(3)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing", ack="auto")
        assert len(sub.fetch(2)) == 2
        threading.Thread(target=sub.close).start()
        wait_until(lambda: sub.closed)
        assert list(sub) == []
    assert _acked(double) == 0


def test_fetch_after_a_close_is_refused(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        sub = c.consumer("orders", group="billing")
        sub.close()
        with pytest.raises(fmqclient.Unavailable, match="the consumer is closed"):
            sub.fetch(1, timeout=0)
        assert list(sub) == []
        sub._fetch(1, 0)  # another thread closes it just before
