"""The traffic alone, on the double of the client's tests and in virtual time."""

import asyncio
from collections import Counter

import pytest

from e2e.checks.verdict import Limits, judge
from e2e.history.client_events import (
    Acked,
    Committed,
    Delivered,
    Failed,
    Joined,
    Left,
    Nacked,
    Place,
    Sent,
    Stored,
    Unsure,
)
from e2e.history.history import History, to_line
from e2e.traffic.ports import Door, Severable
from e2e.traffic.traffic import Member, Sending, Traffic, usual
from fmqclient.tests.double import cluster
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import ROUTES

SENDING = (
    Sending("keys", "orders", keys=3),
    Sending("pinned", "orders", "persisted", keys=0, pins=(("g1", 1),), linger_ms=3),
    Sending("careless", "orders", "one_way", burst=(1, 2)),
)
MEMBER = Member(
    "m", "orders", "billing", stay_s=(0.5, 1.5), away_s=(0.1, 0.2), abrupt=1.0, nacks=0.1
)


def run(seed: int) -> Traffic:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(some_seconds(seed))


async def some_seconds(seed: int) -> Traffic:
    transport, loop = MemoryTransport(seed), asyncio.get_running_loop()
    traffic = Traffic(History(), lambda: loop.time() * 1000, seed)
    async with cluster(2, 2, transport=transport) as double:
        door = Door(double.url, transport, SeededClock(seed))
        producing = [asyncio.create_task(traffic.produce(s, door)) for s in SENDING]
        consuming = asyncio.create_task(traffic.consume(MEMBER, door))
        await asyncio.sleep(3)
        double.brokers["g1-0"].reset_streams()
        await asyncio.sleep(3)
        traffic.stop_sending()
        await asyncio.gather(*producing)
        assert not traffic.unanswered()
        async with asyncio.timeout(60):
            while traffic.undelivered("billing"):
                await asyncio.sleep(0.1)
        traffic.stop_consuming()
        await consuming
    assert not traffic.bugs
    return traffic


@pytest.mark.parametrize("seed", [1, 2])
def test_traffic_history_is_complete_and_sound(seed: int) -> None:
    events = run(seed).history.events
    counted = Counter(type(event) for event in events)
    assert counted[Sent] == counted[Stored] + counted[Failed] + counted[Unsure] > 100
    assert counted[Joined] == counted[Left] >= 2
    assert {left.orderly for left in events if isinstance(left, Left)} == {True, False}
    for kind in (Delivered, Acked, Nacked, Committed):
        assert counted[kind], kind
    lives = [event.who for event in events if isinstance(event, Joined)]
    assert len(lives) == len(set(lives)), "every life has its own name"
    pinned = [e.place for e in events if isinstance(e, Stored) and e.who == "pinned"]
    assert Place("orders", "g1", 1) in pinned
    verdict = judge(events, [], Limits(acked_records=100, reader_changes=0))
    assert not verdict.findings, verdict
    assert not verdict.reasons


def test_abrupt_leave_is_noted_before_queues_can_move(monkeypatch: pytest.MonkeyPatch) -> None:
    sever = Severable.sever

    async def slow(line: Severable) -> None:
        await asyncio.sleep(1)
        await sever(line)

    monkeypatch.setattr(Severable, "sever", slow)
    events = run(1).history.events
    for left in (e for e in events if isinstance(e, Left) and not e.orderly):
        last_ms = max(e.at_ms for e in events if isinstance(e, Acked) and e.who == left.who)
        assert left.at_ms - last_ms < 1000


def test_one_seed_is_one_history() -> None:
    first, second = ([to_line(e) for e in run(3).history.events] for _ in range(2))
    assert first == second
    assert first != [to_line(e) for e in run(4).history.events]


def test_killed_client_leaves_its_sends_without_outcome() -> None:
    traffic = Traffic(History(), lambda: 5.0, 0)
    traffic.sent(Sent(1.0, "p", 1, "orders", "all"))
    traffic.sent(Sent(1.0, "q", 2, "orders", "all"))
    traffic.lives["m"] = ("m.1", "billing")
    traffic.died("p")
    traffic.died("m")
    traffic.died("unknown")
    unsure, left = traffic.history.events[2:]
    assert unsure == Unsure(5.0, "p", 1, "the producer was killed")
    assert left == Left(5.0, "m.1", "billing", orderly=False)
    assert traffic.unanswered() == 1


def test_each_incarnation_of_a_client_has_its_own_name() -> None:
    traffic = Traffic(History(), lambda: 5.0, 0)
    assert [traffic.born("p"), traffic.born("q"), traffic.born("p")] == ["p", "q", "p.2"]
    traffic.sent(Sent(1.0, "p.2", 1, "orders", "all"))
    traffic.sent(Sent(1.0, "p2", 2, "orders", "all"))
    traffic.died("p")
    assert traffic.unanswered() == 1


async def test_severed_client_logs_no_more_events() -> None:
    transport = MemoryTransport(0)
    async with cluster(1, transport=transport) as double:
        line = Severable(transport)
        address = next(iter(double.brokers.values())).address
        request = client_pb2.RouteRequest()
        assert await line.connect(address).call(ROUTES, request, 1)
        await line.sever()
        fresh = line.connect(address)
        with pytest.raises(TransportError, match="cut off"):
            await fresh.call(ROUTES, request, 1)
        with pytest.raises(TransportError, match="cut off"):
            await fresh.open(ROUTES, 1)
        await fresh.close()


def test_the_usual_plan_has_a_bit_of_everything() -> None:
    assert usual(1, ("a", "b")) == usual(1, ("a", "b")) != usual(2, ("a", "b"))
    plan = usual(1, ("a", "b"))
    assert {s.level for s in plan.sending} >= {"replicated", "one_way"}
    assert {m.readers for m in plan.members} == {"billing", "audit", "seekers"}
    names = [s.name for s in plan.sending] + [m.name for m in plan.members]
    assert len(names) == len(set(names))
