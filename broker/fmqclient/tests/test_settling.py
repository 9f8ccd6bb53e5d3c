"""Batches of unknown outcome whose group takes no messages any more: its master settles them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName, Permission

Scene = Callable[[ClusterDouble, fmqclient.Producer], Awaitable[None]]


def run(scene: Scene, timeout_s: float = 60) -> None:
    """Run a scene of two groups in virtual time; weight 0 would keep new records from g2."""

    async def play() -> None:
        transport = MemoryTransport(0)
        async with cluster(2, queues=1, transport=transport) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(delivery_timeout_s=timeout_s) as p:
                await p.send("orders", b"first", group="g1")
                await p.send("orders", b"first", group="g2")
                await scene(double, p)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


def key_of(p: fmqclient.Producer, group: str) -> bytes:
    """Return a key whose records go to the group."""
    topic = p._accumulator.topics["orders"]
    keys = (b"%d" % n for n in range(1000))
    for key in keys:
        buffer = topic.buffer_for_key(key)
        assert buffer is not None
        if buffer.group == group:
            return key
    raise AssertionError(group)


def break_off(double: ClusterDouble, how: str, *, settles: bool = True) -> None:
    """Lose g2's stream with its next batch, stored ("lose") or not ("drop"), and drain g2."""
    broker = double.brokers["g2-0"]

    def script(_: object) -> str:
        broker.script = lambda batch: None
        broker.permission, broker.settles = Permission.READ, settles
        return how

    broker.script = script


@pytest.mark.parametrize("how", ["lose", "drop"])
def test_a_drained_group_settles_what_it_may_have_stored(how: str) -> None:
    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        break_off(double, how)
        sent = await p.send("orders", b"a", key=key_of(p, "g2"))
        assert (sent.group, sent.offset) == ("g2" if how == "lose" else "g1", 1)
        assert sorted(double.values()) == [b"a", b"first", b"first"]

    run(scene)


def test_without_a_settling_master_the_outcome_stays_unknown() -> None:
    """A master of an older version, and a reader in slave-consume."""

    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        break_off(double, "drop", settles=False)
        with pytest.raises(fmqclient.DeliveryUnknown):
            await p.send("orders", b"a", key=key_of(p, "g2"))

    run(scene, timeout_s=5)


@pytest.mark.parametrize("failover", [False, True])
def test_error_after_never_appended_is_certain_in_its_term_only(failover: bool) -> None:
    """A master of a later term cannot know what was shown from a journal that was left behind."""

    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        break_off(double, "drop", settles=False)
        waiting = p.send_nowait("orders", b"a", group="g2")
        await until(lambda: not p._accumulator.senders[GroupName("g2")].usable)
        double.groups["g2"].epoch += failover
        double.brokers["g2-0"].settles = True
        kind = fmqclient.DeliveryUnknown if failover else fmqclient.Unavailable
        with pytest.raises(kind, match="not stored in time by group g2"):
            await waiting

    run(scene, timeout_s=5)


def test_doubtful_record_is_stored_elsewhere_all_the_same() -> None:
    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        break_off(double, "drop", settles=False)
        waiting = p.send_nowait("orders", b"a", key=key_of(p, "g2"))
        await until(lambda: not p._accumulator.senders[GroupName("g2")].usable)
        double.groups["g2"].epoch += 1
        double.brokers["g2-0"].settles = True
        assert (await waiting).group == "g1"

    run(scene)


def test_a_record_is_not_placed_after_a_later_one_of_its_key() -> None:
    """L6: the later one went to another group while the outcome was unknown."""

    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        key, broker = key_of(p, "g2"), double.brokers["g2-0"]
        other = next(k for k in (b"x%d" % n for n in range(99)) if key_in(p, k) == "g2")
        break_off(double, "drop", settles=False)
        older = p.send_nowait("orders", b"older", key=key)
        beside = p.send_nowait("orders", b"beside", key=other)
        await until(lambda: not p._accumulator.senders[GroupName("g2")].usable)
        assert (await p.send("orders", b"newer", key=key)).group == "g1"
        broker.settles = True
        assert (await beside).group == "g1"
        with pytest.raises(fmqclient.Unavailable, match="not stored in time by group g2"):
            await older
        assert double.groups["g1"].values() == [b"first", b"newer", b"beside"]

    run(scene, timeout_s=5)


def key_in(p: fmqclient.Producer, key: bytes) -> str:
    buffer = p._accumulator.topics["orders"].buffer_for_key(key)
    assert buffer is not None
    return buffer.group


def test_pipelined_batches_are_settled_in_their_order() -> None:
    """The first is stored; the others, which followed it, are not, and stay in order."""

    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        key, broker = key_of(p, "g2"), double.brokers["g2-0"]
        fates = ["drop", None]

        def script(_: object) -> str | None:
            fate = fates.pop()
            if fate:
                broker.script = lambda batch: None
                broker.permission, broker.settles = Permission.READ, True
            return fate

        broker.script = script
        broker.slow = lambda: 0.5
        futures = []
        for number in range(4):
            futures.append(p.send_nowait("orders", b"%d" % number, key=key))
            await asyncio.sleep(0.05)
        places = [(await future).group for future in futures]
        stored = double.groups["g2"].values()[1:] + double.groups["g1"].values()[1:]
        assert stored == [b"0", b"1", b"2", b"3"]
        assert (places[0], places[-1]) == ("g2", "g1")

    run(scene)


def test_a_group_that_was_drained_is_used_again_once_it_may() -> None:
    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        break_off(double, "lose")
        await p.send("orders", b"a", key=key_of(p, "g2"))
        broker = double.brokers["g2-0"]
        opened = broker.opened
        await until(lambda: broker.opened > opened)
        broker.permission = Permission.FULL
        assert (await p.send("orders", b"b", group="g2")).offset == 2
        assert double.groups["g2"].values() == [b"first", b"a", b"b"]

    run(scene)


def test_a_repeat_due_without_a_stream_is_sent_once() -> None:
    """Two copies in one session: the refusal of one would not be true of the other (P9)."""

    async def scene(double: ClusterDouble, p: fmqclient.Producer) -> None:
        broker, group = double.brokers["g2-0"], double.groups["g2"]
        settled, asked = group.settled, asyncio.Event()

        def not_now(*_: object) -> ErrorCode:
            asked.set()
            return ErrorCode.UNAVAILABLE

        group.settled = not_now  # type: ignore[assignment]
        break_off(double, "drop")
        waiting = p.send_nowait("orders", b"a", key=key_of(p, "g2"))
        await asked.wait()
        sender = p._senders[GroupName("g2")]
        await until(lambda: any(b.due_ms for buffer in sender._buffers() for b in buffer.in_flight))
        await broker.stop()
        broker.reset_streams()
        await asyncio.sleep(1)  # it falls due while the sender dials in vain
        broker.requests.clear()
        group.settled = settled  # type: ignore[method-assign]
        await broker.start()
        assert (await waiting).group == "g1"
        sent = [batch.base_sequence for request in broker.requests for batch in request.batches]
        assert sent == [1]

    run(scene)
