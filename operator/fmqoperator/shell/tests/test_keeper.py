"""The workers: a broken resource blocks no other, woken resources get a round, statuses are few."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from fmqoperator.core.event_dedup import lasting
from fmqoperator.core.observation import Failure
from fmqoperator.shell import keeper
from fmqoperator.shell.keeper import Keeper, Key, Outcome
from fmqoperator.shell.kube import NAMESPACE_ENDS, Json, Kube, KubeError, Ref

A, B = Key("BrokerGroup", "ns", "a"), Key("BrokerGroup", "ns", "b")


class FakeKube:
    """Records writes; raises `refuse` instead, if set."""

    def __init__(self) -> None:
        self.written: list[tuple[Ref, Json]] = []
        self.refuse: KubeError | None = None
        self.version, self.generation = 9, 1  # "10" comes after "9"
        self.drops: set[str] = set()
        self.stored: dict[str, Json] = {}
        self.there: Json | None = {"kind": "BrokerGroup"}

    async def get(self, _ref: Ref) -> Json | None:
        return self.there

    async def merge(self, ref: Ref, body: Json, part: str = "") -> Json:
        assert part == "status"
        if self.refuse is not None:
            raise self.refuse
        self.written.append((ref, body["status"]))
        self.version += 1
        meta = {"uid": "u", "generation": self.generation, "resourceVersion": str(self.version)}
        merged = {**self.stored.get(ref.name, {}), **body["status"]}
        kept = {k: v for k, v in merged.items() if v is not None and k not in self.drops}
        self.stored[ref.name] = kept
        return {"metadata": meta | {"managedFields": []}, "status": dict(kept)}


class FakeRounds:
    """Does what the test sets by name, and counts."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[Failure, ...]]] = []
        self.farewells: list[str] = []
        self.does: dict[str, Callable[[], Outcome]] = {}
        self.wakes: dict[str, Callable[[], None]] = {}
        self.changed = asyncio.Event()

    async def round(
        self, key: Key, _body: Json, failures: tuple[Failure, ...], wake: Callable[[], None]
    ) -> Outcome:
        self.seen.append((key.name, failures))
        self.wakes[key.name] = wake
        self.changed.set()
        return self.does.get(key.name, lambda: Outcome({"phase": "Running"}))()

    async def gone(self, key: Key, _body: Json) -> None:
        self.farewells.append(key.name)
        self.changed.set()
        raise RuntimeError("a bug")

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not look():
                self.changed.clear()
                await self.changed.wait()

    def rounds(self, name: str) -> int:
        return sum(seen == name for seen, _ in self.seen)


class World:
    def __init__(self) -> None:
        self.kube, self.rounds = FakeKube(), FakeRounds()
        self.keeper = Keeper(cast(Kube, self.kube), {"BrokerGroup": self.rounds})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    running = asyncio.create_task(world.keeper.run())
    await asyncio.sleep(0)
    yield world
    running.cancel()
    await asyncio.wait((running,))


def body(generation: int = 1, version: int = 9, uid: str = "u", **status: Any) -> Json:
    meta = {"uid": uid, "generation": generation, "resourceVersion": str(version)}
    return {"metadata": meta, "status": status}


async def settled(world: World) -> None:
    """Wait until no resource waits for a round."""
    async with asyncio.timeout(60):
        while world.keeper.stalled_s():
            await asyncio.sleep(0.01)


async def test_broken_resource_blocks_no_other(world: World) -> None:
    def bug() -> Outcome:
        raise ZeroDivisionError("a bug")

    world.rounds.does["a"] = bug
    world.keeper.update(A, body())
    world.keeper.update(B, body())
    await world.rounds.until(lambda: world.rounds.rounds("a") > 1 and world.rounds.rounds("b") > 0)
    failures_by_round = [failures for name, failures in world.rounds.seen if name == "a"]
    assert failures_by_round[0] == ()
    assert failures_by_round[1][0].reason == "ZeroDivisionError", "the next round knows"


async def test_deleted_namespace_then_nothing_is_retried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Mock()
    monkeypatch.setattr(keeper, "_log", log)
    refused = Failure("Service g1-rw", NAMESPACE_ENDS, "forbidden: it is being terminated")
    world.rounds.does["a"] = lambda: Outcome({}, failures=(refused,))
    world.keeper.update(A, body())
    world.keeper.update(B, body())
    await world.rounds.until(lambda: world.rounds.rounds("a") == world.rounds.rounds("b") == 1)
    await settled(world)
    for _ in range(3):
        world.keeper.wake(A)
        await settled(world)
    assert world.rounds.rounds("a") == 1
    assert world.keeper.counts.failed == 0
    of_a = [call.args[0] for call in log.info.call_args_list if call.kwargs["resource"] == str(A)]
    assert of_a == ["namespace_terminating"]
    assert log.warning.call_args_list == []
    world.keeper.update(A, None)
    await world.rounds.until(lambda: world.rounds.farewells == ["a"])


async def test_a_status_is_written_once(world: World) -> None:
    world.keeper.update(A, body())
    await settled(world)
    for _ in range(3):
        rounds = world.rounds.rounds("a")
        world.keeper.wake(A)
        await world.rounds.until(lambda: world.rounds.rounds("a") > rounds)  # noqa: B023
        await settled(world)
    assert world.kube.written == [(Ref(*A), {"phase": "Running"})]


async def test_own_status_write_wakes_no_worker_and_a_change_does(world: World) -> None:
    world.keeper.update(A, body())
    await settled(world)
    world.keeper.update(A, body(version=11, phase="Running"))
    assert world.keeper.stalled_s() == 0
    world.keeper.update(A, body(2, version=12, phase="Running"))
    assert world.keeper.stalled_s() >= 0
    await world.rounds.until(lambda: world.rounds.rounds("a") == 2)


@pytest.mark.parametrize(
    ("late", "believed"),
    [
        (body(version=9, phase="Old"), False),  # older than the reply to the operator's write
        (body(version=10, phase="Running"), True),
        (body(version=11, phase="By hand"), True),
        (body(version=12, uid="another", phase="New"), True),  # recreated
        (body(version=3, uid="another", phase="Old"), False),  # an event of the predecessor
    ],
)
async def test_late_watch_event_is_ignored(world: World, late: Json, believed: bool) -> None:
    world.keeper.update(A, body())
    await settled(world)
    assert len(world.kube.written) == 1
    world.keeper.update(A, late)
    assert (world.keeper._workers[A]._body == late) is believed


async def test_change_seen_in_a_write_reply_starts_a_round(
    world: World,
) -> None:
    world.kube.generation = 2
    world.keeper.update(A, body(1))
    await world.rounds.until(lambda: world.rounds.rounds("a") == 2)
    await settled(world)
    world.keeper.update(A, body(2, version=10))  # the watch brings it, too
    assert world.keeper.stalled_s() == 0


async def test_resource_woken_during_its_round_gets_another_round(world: World) -> None:
    def once() -> Outcome:
        del world.rounds.does["a"]
        world.rounds.wakes["a"]()
        return Outcome({})

    world.rounds.does["a"] = once
    world.keeper.update(A, body())
    await world.rounds.until(lambda: world.rounds.rounds("a") == 2)


async def test_resource_woken_in_every_round_does_not_stall(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the checkpoints of a takeover reader do, while its master does not answer."""
    now_s = 1000.0
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: now_s))

    def slow() -> Outcome:
        nonlocal now_s
        world.rounds.wakes["a"]()
        now_s += 3
        return Outcome({})

    world.rounds.does["a"] = slow
    world.keeper.update(A, body())
    await world.rounds.until(lambda: world.rounds.rounds("a") == 5)
    assert world.keeper.stalled_s() == 3, "since it was woken last, not since the first round"
    del world.rounds.does["a"]
    await settled(world)


async def test_a_status_that_is_refused_is_a_failure_of_the_round(world: World) -> None:
    world.kube.refuse = KubeError(403, "Forbidden", "you may not")
    world.keeper.update(A, body())
    await world.rounds.until(lambda: world.rounds.rounds("a") > 1)
    assert world.rounds.seen[1][1] == (Failure("status", "Forbidden", "you may not"),)


async def test_a_definition_without_a_status_is_a_failure_too(world: World) -> None:
    """An older CRD: the API server knows the resource, and no status."""
    world.kube.refuse = KubeError(404, "NotFound", "could not find the requested resource")
    world.keeper.update(A, body())
    await world.rounds.until(lambda: world.rounds.rounds("a") > 1)
    assert world.rounds.seen[1][1][0].message == "could not find the requested resource"
    assert world.keeper.count("BrokerGroup") == 1


async def test_resource_deleted_unseen_is_forgotten(world: World) -> None:
    """No event announced its deletion: its objects would be recreated for ever."""
    world.kube.refuse, world.kube.there = KubeError(404, "NotFound", "it is gone"), None
    world.keeper.update(A, body())
    await world.rounds.until(lambda: world.rounds.farewells == ["a"])
    assert world.keeper.count("BrokerGroup") == 0
    world.keeper.update(A, None)  # the event comes late
    world.kube.refuse = None
    world.keeper.update(A, body())  # recreated
    await world.rounds.until(lambda: world.rounds.rounds("a") == 2)
    assert world.rounds.farewells == ["a"]


async def test_consecutive_failures_are_counted(world: World) -> None:
    """In the round itself, and in the status that is written after it."""
    no = Failure("StatefulSet g1", "Forbidden", "you may not")
    world.rounds.does["a"] = lambda: Outcome({}, failures=(no,))
    world.kube.refuse = KubeError(422, "Invalid", "an older definition")
    world.rounds.does["b"] = lambda: Outcome({"phase": "New"})
    world.keeper.update(A, body())
    world.keeper.update(B, body())
    for name in ("a", "b"):
        while world.rounds.rounds(name) < 3:
            rounds = world.rounds.rounds(name)
            world.keeper.wake(Key("BrokerGroup", "ns", name))
            await world.rounds.until(lambda: world.rounds.rounds(name) > rounds)  # noqa: B023
        found = [failures for seen, failures in world.rounds.seen if seen == name][:3]
        assert [[f.rounds for f in failures] for failures in found] == [[], [1], [2]]


async def test_failing_time_of_each_round_is_known(world: World) -> None:
    """For each resource by itself; whatever failed."""
    no = Failure("StatefulSet g1", "Forbidden", "you may not")
    world.rounds.does["a"] = lambda: Outcome({}, failures=(no,))
    world.keeper.update(A, body())
    world.keeper.update(B, body())
    for worker in world.keeper._workers.values():
        worker.whole_since -= 1000
    await world.rounds.until(lambda: world.rounds.rounds("a") > 1)
    await world.rounds.until(lambda: world.rounds.rounds("b") > 0)
    assert neglected(world) == {"a": True, "b": False}
    del world.rounds.does["a"]
    world.keeper.wake(A)
    await settled(world)
    assert neglected(world) == {"a": False, "b": False}
    assert world.keeper.neglected("Topic") == []


def neglected(world: World) -> dict[str, bool]:
    """Return which of two is neglected for longer than a thousand seconds."""
    long = [seconds > 999 for _, seconds in world.keeper.neglected("BrokerGroup")]
    return dict(zip("ab", long, strict=True))


async def test_crd_dropping_status_fields_is_reported_and_retried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kube.drops = {"volumeSize"}
    looks = count()
    world.rounds.does["a"] = lambda: Outcome(
        {"phase": "Running", "volumeSize": "10Gi", "observedAt": f"look {next(looks)}"}
    )
    world.keeper.update(A, body())
    for rounds in (1, 2, 3):
        world.keeper.wake(A)
        await world.rounds.until(lambda: world.rounds.rounds("a") >= rounds)  # noqa: B023
        await settled(world)
    assert len(world.kube.written) == 1
    failures = world.rounds.seen[-1][1]
    (event,) = lasting(failures)
    assert event.reason == "OldDefinition"
    assert "drops volumeSize: apply the operator's definitions" in event.message
    assert world.keeper.counts.failed == 0, "rounds go on at their pace"
    world.kube.drops = {"volumeSize", "lag"}
    world.rounds.does["a"] = lambda: Outcome({"phase": "X", "lag": "1", "volumeSize": "10Gi"})
    for rounds in (4, 5):
        world.keeper.wake(A)
        await world.rounds.until(lambda: world.rounds.rounds("a") >= rounds)  # noqa: B023
        await settled(world)
    assert list(lasting(world.rounds.seen[-1][1])) == [event], "the same message: no other Event"
    world.kube.drops = set()  # the new CRDs were applied
    monkeypatch.setattr(keeper, "_REWRITE_MS", -1)
    for _ in range(2):
        rounds = world.rounds.rounds("a")
        world.keeper.wake(A)
        await world.rounds.until(lambda: world.rounds.rounds("a") > rounds)  # noqa: B023
        await settled(world)
    assert world.rounds.seen[-1][1] == ()
    assert len(world.kube.written) == 3


async def test_deleted_resource_gets_its_farewell_and_no_round(world: World) -> None:
    world.keeper.update(A, body())
    await settled(world)
    world.keeper.update(A, None)
    world.keeper.wake(A)
    await world.rounds.until(lambda: world.rounds.farewells == ["a"])
    assert world.keeper.count("BrokerGroup") == 0
    world.keeper.update(B, body())  # a cleanup that fails does not stop the operator
    await world.rounds.until(lambda: world.rounds.rounds("b") == 1)
    assert world.rounds.rounds("a") == 1


async def test_recreated_resource_is_not_taken_for_the_deleted_one(world: World) -> None:
    """kopf reports the two in separate ways: the deletion may come last."""
    refused = Failure("Service g1-rw", NAMESPACE_ENDS, "forbidden: it is being terminated")
    world.rounds.does["a"] = lambda: Outcome({}, failures=(refused,))
    world.keeper.update(A, body())
    await settled(world)
    del world.rounds.does["a"]
    world.keeper.update(A, body(version=20, uid="v"))
    world.keeper.update(A, None, "u")
    world.keeper.update(A, body(version=15))  # a late event of the first one
    await world.rounds.until(lambda: world.rounds.rounds("a") == 2)
    assert world.rounds.farewells == ["a"], "of the first one"
    assert world.rounds.seen[-1] == ("a", ()), "another resource's failure is not its own"
    (worker,) = world.keeper._workers.values()
    assert worker.body["metadata"]["uid"] == "v"
    world.keeper.update(A, None, "v")
    await world.rounds.until(lambda: world.rounds.farewells == ["a", "a"])
    assert world.keeper.count("BrokerGroup") == 0


async def test_a_change_of_state_is_one_line_with_its_reason(world: World) -> None:
    """Not each write: a value that only counts on, such as a lag, is in the status alone."""
    steps = iter(
        (
            {"phase": "Running", "access": "FULL", "master": "g1-0", "message": ""},
            {"phase": "Running", "access": "FULL", "master": "g1-0", "lag": 7},
            {"phase": "Degraded", "access": "READ", "master": "g1-0", "message": "g1-1 is away"},
        )
    )
    world.rounds.does["a"] = lambda: Outcome(next(steps))
    with capture_logs() as lines:
        world.keeper.update(A, body())
        for number in (1, 2, 3):
            await world.rounds.until(lambda at=number: world.rounds.rounds("a") >= at)  # type: ignore[misc]
            await settled(world)
            if number < 3:
                world.rounds.wakes["a"]()
    states = [line for line in lines if line["event"] == "status_changed"]
    assert [line.get("phase") for line in states] == ["none->Running", "Running->Degraded"]
    assert [line["reason"] for line in states] == ["", "g1-1 is away"]
    assert "master" not in states[1], "it is the same"
