"""The facade for programs without asyncio: several threads, a client that closes, pauses, seeks."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import fmqclient
from fmqclient.sync.loop_thread import LoopThread
from fmqclient.tests.double import ClusterDouble
from fmqclient.tests.test_sync import _acked, double

__all__ = ["double"]  # the fixture


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait for another thread."""
    until_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until_s, "it does not come about"
        time.sleep(0.01)


def test_client_close_wakes_waiting_threads(double: ClusterDouble) -> None:
    for broker in double.brokers.values():
        broker.tokens = False
    ended: list[BaseException] = []
    c = fmqclient.sync.connect(double.url)
    c.producer().send("orders", b"v")
    sub = c.consumer("orders", group="billing", close_timeout_s=0.1)
    (m,) = sub.fetch(1)
    m.ack()

    def work() -> None:
        try:
            sub.commit()
        except fmqclient.FmqError as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(0.3)
    c.close()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(ended[0], fmqclient.Unavailable)
    with pytest.raises(fmqclient.Unavailable):
        c.producer()


def test_simultaneous_acks_of_two_threads_are_sent(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(2)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        first, second = sub.fetch(2)

        class Raced(deque):  # type: ignore[type-arg]
            raced = False

            def append(self, message: Any) -> None:
                super().append(message)
                if not self.raced:  # the other thread comes in between
                    self.raced = True
                    other = threading.Thread(target=second.ack)
                    other.start()
                    other.join()

        sub._acked = Raced()
        first.ack()
        until_s = time.monotonic() + 2
        while _acked(double) < 2 and time.monotonic() < until_s:
            time.sleep(0.01)
        assert _acked(double) == 2


def test_paused_queue_returns_no_prefetched_message(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(20)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        for m in sub:
            m.ack()
            break
        sub.pause([("g1", 0)])
        assert sub.fetch(100, timeout=0.3) == []
        sub.resume()
        seen: list[int] = []
        while len(seen) < 19:
            seen += [int(m.value) for m in sub.fetch(100, timeout=5)]
        assert seen == list(range(1, 20))


def test_a_seek_of_one_queue_loses_nothing_of_another(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        p = c.producer()
        p.send_batch("orders", [b"%d" % n for n in range(20)], group="g1", queue=0)
        sub = c.consumer("orders", group="billing")
        for m in sub:
            m.ack()
            break

        async def sought(*_: Any, **__: Any) -> None:
            pass

        sub._consumer.seek = sought  # type: ignore[method-assign]
        sub.seek("earliest", queues=[("g1", 1)])
        seen = [int(m.value) for m in sub.fetch(100, timeout=1)]
        assert seen == list(range(1, 20))


def test_a_loop_that_starts_late_is_not_taken_for_a_closed_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(asyncio.SelectorEventLoop):
        def run_forever(self) -> None:
            time.sleep(0.1)
            super().run_forever()

    monkeypatch.setattr(asyncio, "new_event_loop", Late)

    async def work() -> int:
        return 1

    loop = LoopThread()
    try:
        assert loop.run(work()) == 1
    finally:
        loop.stop()


def test_closed_parts_are_not_kept_by_the_client(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        for _ in range(3):
            with c.consumer("orders", group="billing"), c.producer():
                pass
        assert len(c._open) <= 2, "the last ones"


def test_sync_consumer_has_all_methods_of_the_async_one(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c, c.consumer("orders", group="billing") as sub:
        assert set(sub.connected) == {"g1", "g2"}
        assert c.producer().outstanding == 0


def test_change_during_a_read_of_another_thread_is_no_error(double: ClusterDouble) -> None:
    """A queue comes, or a group is learnt, in the loop's thread between two steps here."""

    class Growing(dict[Any, Any]):
        grown = 0

        def grow(self) -> None:
            if self.grown < 3:
                self.grown += 1
                self[f"new {self.grown}"] = next(iter(self.values()))

    class Part:
        """Part of a group; reading it is interrupted."""

        group, queue, reason, usable = "g1", 0, "", True
        error = None
        trackers: Growing
        skipped: Growing

        def __init__(self, parts: Growing) -> None:
            self.parts = parts

        def __getattribute__(self, name: str) -> Any:
            if name in ("held", "group", "reason", "usable"):
                object.__getattribute__(self, "parts").grow()
            return True if name == "held" else object.__getattribute__(self, name)

    sessions, senders, trackers = Growing(), Growing(), Growing()
    trackers[0] = Part(trackers)
    sessions["g1"] = Part(sessions)
    sessions["g1"].trackers, sessions["g1"].skipped = trackers, Growing({0: 1})
    senders["g1"] = Part(senders)
    with fmqclient.sync.connect(double.url) as c, c.consumer("orders", group="billing") as sub:
        p = c.producer()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sub._consumer, "_sessions", sessions)
            patched.setattr(p._producer, "_senders", senders)
            assert sub.assignment[:1] == [("g1", 0)]
            assert sub.skipped == {("g1", 0): 1}
            assert sub.connected == {"g1": ""}
            assert p.connected["g1"] == ""
