"""The ordered producer over real gRPC, against the chain's real decisions."""

import asyncio
import time
from typing import Any

import pytest

import fmqclient
from fmqclient.producer import group_cuts
from fmqclient.producer.ordered_records import OrderedResult, error_of_cut
from fmqclient.producer.ordered_values import Batch
from fmqclient.tests.double import until
from fmqclient.tests.ordered_double import OrderedDouble, ordered_cluster
from fmqcore.errors import (
    BadCrc,
    DeliveryUnknown,
    FmqError,
    InvalidArgument,
    Overloaded,
    SenderFenced,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
)
from fmqproto.v1 import client_pb2


async def test_records_are_stored_in_order_with_their_sequences() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", name="copier") as p:
            assert p.active
            assert p.last == {}
            assert await p.send(b"0") == OrderedResult("g1", 0, 0, 1, 1)  # type: ignore[arg-type]
            futures = [p.send_nowait(b"%d" % n) for n in range(1, 500)]
            await p.flush()
            assert [f.result().sequence for f in futures] == list(range(2, 501))
            results = await p.send_batch([b"500", b"501"])
            assert results[-1].sequence == 502
        assert double.values_of_chain() == [b"%d" % n for n in range(502)]
        assert not p.active
        with pytest.raises(Unavailable, match="closed"):
            p.send_nowait(b"late")
        await until(lambda: not double.line)  # the role is given up


async def test_switches_are_invisible_but_for_a_pause() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", linger_ms=1, max_batch_records=7) as p:
            futures = []
            for n in range(2_000):
                futures.append(p.send_nowait(b"%d" % n))
                if n % 400 == 399:
                    await futures[n - 399]  # each segment has a record; most are under way
                    double.switch()
                if n % 50 == 0:
                    await asyncio.sleep(0.002)
            await p.flush()
            await until(lambda: double.chain.closing is None)  # all may be acked before
        groups = {future.result().group for future in futures}
        assert groups == {"g1", "g2"}
        assert len(double.chain.segments) == 6
        assert double.values_of_chain() == [b"%d" % n for n in range(2_000)]


async def test_lost_streams_and_refusals_keep_the_order() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        seen: set[int] = set()

        def fate(batch: client_pb2.ProduceBatch) -> str | Overloaded | None:
            number = batch.ordered_sequence
            if number in seen or number % 5:
                return None
            seen.add(number)
            return "lose" if number % 2 else Overloaded("not now")

        double.fate = fate
        async with client.ordered_producer("changes", max_batch_records=1) as p:
            await p.send_batch([b"%d" % n for n in range(60)])
        assert len(seen) > 5
        assert double.values_of_chain() == [b"%d" % n for n in range(60)]


def unknown_topic(double: OrderedDouble) -> None:
    """Let the broker that keeps the place end its session, as it knows the topic no more."""
    error = client_pb2.Error(code=client_pb2.UNKNOWN_TOPIC, message="there is no topic")
    next(s for s in double.sessions if s.own).send(client_pb2.ProduceReply(error=error))


async def test_deleted_topic_ends_the_sender_typed() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", delivery_timeout_s=20) as p:
            await p.send(b"1")
            double.fate = lambda batch: Overloaded("not now")
            waiting = p.send_nowait(b"2")
            del double.topics["changes"]
            unknown_topic(double)
            with pytest.raises(UnknownTopic, match="not stored: ordered topic changes was deleted"):
                await waiting
            with pytest.raises(UnknownTopic, match="was deleted"):
                p.send_nowait(b"3")
        assert len([s for s in double.sessions if s.own]) == 1, "no place was asked for again"


async def test_sender_of_a_deleted_topic_joins_no_line_of_the_new_one() -> None:
    """First in that line it would keep all its senders waiting, and take itself for active."""
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", delivery_timeout_s=20) as p:
            await p.send(b"1")
            double.recreate(2)
            await until(lambda: not p.active)
            with pytest.raises(UnknownTopic, match="deleted and created again"):
                p.send_nowait(b"2")
        assert double.line == []
        async with client.ordered_producer("changes") as p:
            await p.send(b"first")


async def test_broker_that_is_down_does_not_hide_a_deleted_topic() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            await p.send(b"1")
            line = p._line
            assert line is not None
            errors = iter([Unavailable("it is down"), UnknownTopic("no topic"), Unavailable("no")])

            async def refuse(*_: object) -> None:
                raise next(errors)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("fmqclient.producer.ordered_line.open_at_first", refuse)
                patch.setattr(line, "_brokers", lambda: list(double_routes(client)) * 3)
                with pytest.raises(UnknownTopic, match="no topic"):
                    await line._open()


def double_routes(client: fmqclient.Client) -> list[Any]:
    """Return one broker of the routes."""
    table = client._wire[1].table
    return [next(b for route in table.groups.values() for b in route.brokers)]


async def test_topic_unknown_to_one_broker_goes_on() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            await p.send(b"1")
            unknown_topic(double)
            await until(lambda: p._state.epoch == 2)  # a record on its way would end the sender
            assert (await p.send(b"2")).sequence == 2
            assert len([s for s in double.sessions if s.own]) == 2


async def test_second_sender_waits_and_learns_the_last_record() -> None:
    async with ordered_cluster(queues=2) as double, fmqclient.connect(double.url) as client:
        first = client.ordered_producer("changes", name="a")
        called = asyncio.Event()
        second = client.ordered_producer("changes", name="b", on_active=called.set)
        async with first:
            await first.send(b"v", key=b"k", headers={"position": "17"}, queue=1)
            entering = asyncio.create_task(second.__aenter__())
            await until(lambda: len(double.line) == 2)
            await until(lambda: "first in line" in second.waits_for)
            assert not entering.done()
            assert not second.active
        await entering
        assert called.is_set()
        assert list(second.last) == [1]
        record = second.last[1]
        assert (record.sequence, record.value, record.key) == (1, b"v", b"k")
        assert record.headers == {"position": b"17"}
        assert record.readable
        assert (await second.send(b"w", queue=1)).sequence == 2
        await second.close()
        assert double.values_of_chain(1) == [b"v", b"w"]


async def test_fenced_sender_ends_typed_and_sends_no_more() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", name="a") as p:
            await p.send(b"1")
            double.fate = lambda batch: SenderFenced("sender b-7 is active")
            waiting = p.send_nowait(b"2")
            with pytest.raises(SenderFenced, match="open it again"):
                await waiting
            double.fate = lambda batch: None
            sent = sum(len(b.requests) for b in double.brokers.values())
            with pytest.raises(SenderFenced):
                p.send_nowait(b"3")
            assert not p.active
        batches = [r for b in double.brokers.values() for r in b.requests[sent:] if r.batches]
        assert batches == []
        assert double.values_of_chain() == [b"1"]


async def test_sender_that_has_rejoined_goes_on_if_nothing_is_in_doubt() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            await p.send(b"1")
            place = next(s for s in double.sessions if s.own)
            place.stream.cancel()
            await until(lambda: p._state.epoch == 2)
            assert (await p.send(b"2")).segment == 2
            assert p.last[0].value == b"1"
        assert double.values_of_chain() == [b"1", b"2"]


async def test_sender_that_rejoins_with_records_in_doubt_is_fenced() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            await p.send(b"1")
            double.fate = lambda batch: "hang"  # stored, and never acknowledged
            waiting = p.send_nowait(b"2")
            await until(lambda: double.groups["g1"].next_offset(0) == 2)
            next(s for s in double.sessions if s.own).stream.cancel()
            with pytest.raises(SenderFenced, match="`last`"):
                await waiting
        async with client.ordered_producer("changes") as again:
            assert again.last[0].value == b"2"


@pytest.mark.parametrize("own", [True, False])
async def test_session_that_a_broker_ends_is_opened_again_at_once(own: bool) -> None:
    """The broker keeps the stream until the client closes it."""
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            await p.send(b"1")
            ended = next(s for s in double.sessions if s.own is own)
            ended.send(ended_by(Unavailable("the place in the line is gone")))
            await until(lambda: len([s for s in double.sessions if s.own is own]) > 1)
            await until(lambda: p._state.epoch == 1 + own)  # the role is its own again
            await p.send(b"2")
        assert double.values_of_chain() == [b"1", b"2"]


async def test_sender_whose_place_session_is_fenced_ends_typed() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            await p.send(b"1")
            place = next(s for s in double.sessions if s.own)
            place.send(ended_by(SenderFenced("sender b-7 is active")))
            await until(lambda: not p.active)
            with pytest.raises(SenderFenced, match="b-7 is active"):
                await p.send(b"2")
        assert double.values_of_chain() == [b"1"]


def ended_by(error: FmqError) -> client_pb2.ProduceReply:
    code = client_pb2.ErrorCode.Name(int(error.code))
    return client_pb2.ProduceReply(error=client_pb2.Error(code=code, message=str(error)))


async def test_sender_fenced_while_it_closes_ends_at_once_typed() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        p = client.ordered_producer("changes", close_timeout_s=60)
        await p.__aenter__()
        double.fate = lambda batch: Overloaded("not now")
        waiting = p.send_nowait(b"1")
        closing = asyncio.create_task(p.close())
        await asyncio.sleep(0.05)
        error = client_pb2.Error(code=client_pb2.SENDER_FENCED, message="sender b has the role")
        own = next(s for s in double.sessions if s.own)
        own.send(client_pb2.ProduceReply(error=error))
        async with asyncio.timeout(30):
            await closing
        with pytest.raises(SenderFenced, match="sender b has the role"):
            await waiting


async def test_record_without_outcome_ends_the_producer() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", delivery_timeout_s=0.5) as p:
            await p.send(b"1")
            double.fate = lambda batch: "hang"
            first = p.send_nowait(b"2")
            await until(lambda: double.groups["g1"].next_offset(0) == 2)
            double.full = {"g2"}
            later = p.send_nowait(b"3")
            with pytest.raises(DeliveryUnknown, match="may be stored or not") as unknown:
                await first
            assert "no answer from g1: see `fmq ordered status changes`" in str(unknown.value)
            with pytest.raises((DeliveryUnknown, Unavailable)):
                await later
            with pytest.raises(Unavailable, match="go on after its `last` records"):
                await p.send(b"4")
        assert double.values_of_chain() in ([b"1", b"2"], [b"1", b"2", b"3"])


@pytest.mark.parametrize("lost_before", [True, False])
async def test_refusal_after_a_lost_attempt_is_no_certain_error(lost_before: bool) -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        fates: list[FmqError | str] = [BadCrc("bad")]
        fates += ["lose"] if lost_before else []
        async with client.ordered_producer("changes", max_batch_records=1, pipeline=1) as p:
            double.fate = lambda batch: fates.pop() if fates else None
            kind = DeliveryUnknown if lost_before else BadCrc
            with pytest.raises(kind, match="bad"):
                await p.send(b"1")


@pytest.mark.parametrize(
    ("error", "open_attempts", "refused", "kind"),
    [
        (BadCrc("x"), 0, True, BadCrc),
        (BadCrc("x"), 1, True, DeliveryUnknown),
        (BadCrc("x"), 0, False, Unavailable),
        (Unavailable("closed"), 0, False, Unavailable),
        (Unavailable("closed"), 1, False, DeliveryUnknown),
        (SenderFenced("x"), 1, False, SenderFenced),
    ],
)
def test_error_of_a_batch_is_certain_without_an_open_attempt(
    error: FmqError, open_attempts: int, refused: bool, kind: type[FmqError]
) -> None:
    content: Any = None
    batch = Batch(0, 1, content, open_attempts)
    assert type(error_of_cut(batch, error, refused=refused)) is kind


async def test_heartbeats_name_a_group_that_is_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over the session in the line, once for each change."""
    monkeypatch.setattr(group_cuts, "CUT_MS", 50)

    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        double.heartbeat_ms = 100
        async with client.ordered_producer("changes", name="copier") as p:
            await p.send(b"0")
            place = next(s for s in double.sessions if s.own)
            home = next(b for b in double.brokers.values() if place.stream in b.streams)
            if double.chain.segments[-1].group == home.group.name:
                double.switch()
            group = (await p.send(b"1")).group

            def reported() -> list[list[str]]:
                return [list(r.sender_links.cut_groups) for r in place.heard if _has_links(r)]

            brokers = [b for b in double.brokers.values() if b.group.name == group]
            for broker in brokers:
                await broker.stop()
                broker.reset_streams()
            await until(lambda: reported() == [[group]])
            for broker in brokers:
                await broker.start()
            await p.send(b"2")
            await until(lambda: reported() == [[group], []])


def _has_links(request: client_pb2.ProduceRequest) -> bool:
    return request.HasField("sender_links")


async def test_key_selects_the_queue_for_good() -> None:
    async with ordered_cluster(queues=4) as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            queues = {key: (await p.send(b"v", key=key)).queue for key in (b"a", b"b", b"c")}
            double.switch()
            for key, queue in queues.items():
                assert (await p.send(b"w", key=key)).queue == queue
            assert {(await p.send(b"x")).queue for _ in range(4)} == {(await p.send(b"x")).queue}
            with pytest.raises(UnknownQueue, match="queues 0 to 3"):
                p.send_nowait(b"v", queue=4)


async def test_batch_too_large_for_a_group_is_sent_in_halves() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:

        def fate(batch: client_pb2.ProduceBatch) -> TooLarge | None:
            return TooLarge("too many") if batch.record_count > 3 else None

        double.fate = fate
        async with client.ordered_producer("changes") as p:
            await p.send_batch([b"%d" % n for n in range(20)])
        assert double.values_of_chain() == [b"%d" % n for n in range(20)]


async def test_record_over_the_broker_limit_is_refused_at_once() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        for broker in double.brokers.values():
            broker.max_batch_bytes = 1000
        async with client.ordered_producer("changes", max_batch_bytes=100) as p:
            await p.send(b"1" * 500)  # over the program's own limit: alone in a batch
            with pytest.raises(TooLarge, match="at most 1000"):
                await p.send(b"2" * 2000)
            assert (await p.send(b"3")).sequence == 2


async def test_silent_sender_keeps_its_place_by_heartbeats() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes"):
            place = next(s for s in double.sessions if s.own)
            await until(lambda: len(place.heard) > 3)
            time.sleep(0.7)  # noqa: ASYNC251 - a program that blocks the loop
            await until(lambda: len(place.heard) > 5)
            assert double.chain.sender.epoch == 1


async def test_ordinary_or_missing_topic_is_refused() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        with pytest.raises(UnknownTopic, match="fmq topic create orders --ordered --groups"):
            await client.ordered_producer("orders").__aenter__()
        double.topics["orders"] = 2
        with pytest.raises(InvalidArgument, match="orders is not ordered: use `producer"):
            await client.ordered_producer("orders").__aenter__()


async def test_ordinary_producer_is_refused_by_an_ordered_topic() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.producer() as p:
            with pytest.raises(InvalidArgument, match="use ordered_producer"):
                await p.send("changes", b"v")


def test_blocking_twin_sends_in_order() -> None:
    async def up(ready: "asyncio.Queue[str]", done: asyncio.Event) -> None:
        async with ordered_cluster() as double:
            await ready.put(double.url)
            await done.wait()
            assert double.values_of_chain() == [b"1", b"2", b"3"]

    async def main() -> None:
        ready: asyncio.Queue[str] = asyncio.Queue()
        done = asyncio.Event()
        serving = asyncio.create_task(up(ready, done))
        await asyncio.to_thread(_send_blocking, await ready.get())
        done.set()
        await serving

    asyncio.run(main())


def _send_blocking(url: str) -> None:
    with fmqclient.sync.connect(url) as client:
        with client.ordered_producer("changes") as p:
            assert p.send(b"1").sequence == 1
            assert p.send_nowait(b"2").result().sequence == 2
            assert [r.sequence for r in p.send_batch([b"3"])] == [3]
            assert p.active
            assert p.outstanding == 0
            assert p.waits_for == ""


async def test_producer_that_is_opened_again_is_refused_at_once() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        p = client.ordered_producer("changes")
        async with p:
            with pytest.raises(InvalidArgument, match="opened once"):
                await p.__aenter__()
            await p.send(b"1")  # the refusal changes nothing
        await until(lambda: not double.line)
        with pytest.raises(InvalidArgument, match="opened once"):
            await p.__aenter__()
        assert not double.line  # or it would keep the role from all others


async def test_producer_given_up_in_line_names_that_as_the_cause() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes"):
            waiting = client.ordered_producer("changes")
            entering = asyncio.create_task(waiting.__aenter__())
            await until(lambda: len(double.line) == 2)
            entering.cancel()
            await asyncio.wait([entering])
            assert "closed before it got the role" in waiting.waits_for


async def test_sender_that_gets_no_place_names_why() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        double.no_place = Unavailable("no connection with ZooKeeper")
        waiting = client.ordered_producer("changes")
        entering = asyncio.create_task(waiting.__aenter__())
        await until(lambda: "no connection with ZooKeeper" in waiting.waits_for)
        double.no_place = None
        await entering
        assert "ZooKeeper" not in waiting.waits_for
        await waiting.close()


async def test_new_active_sender_waits_for_no_segment_but_its_group() -> None:
    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes") as p:
            assert p.waits_for in ("", "it connects to the group that takes the sends")
            await p.send(b"1")
            assert not p.waits_for


async def test_callback_that_would_never_run_is_refused() -> None:
    async def later() -> None:
        """Never awaited by the client."""

    async with ordered_cluster() as double, fmqclient.connect(double.url) as client:
        for callback in (later, 7):
            with pytest.raises(InvalidArgument, match="on_active"):
                client.ordered_producer("changes", on_active=callback)  # type: ignore[arg-type]
