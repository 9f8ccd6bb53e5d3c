"""Events on resources: what is written, and what happens when a write fails."""

import asyncio
from typing import Any, cast

import pytest

from fmqoperator.shell import events as module
from fmqoperator.shell.events import Events
from fmqoperator.shell.kube import Json, Kube, KubeError

GROUP: Json = {"metadata": {"name": "g1", "namespace": "shop", "uid": "u"}}


class FakeKube:
    def __init__(self) -> None:
        self.written: list[tuple[str, str, Json]] = []
        self.refuse: KubeError | None = None
        self.hangs = False
        self.tries = 0

    async def create(self, kind: str, namespace: str, body: Json) -> Json:
        self.tries += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuse is not None:
            raise self.refuse
        self.written.append((kind, namespace, body))
        return body


def made() -> tuple[FakeKube, Events]:
    kube = FakeKube()
    return kube, Events(cast(Kube, kube), "operator-1")


async def test_event_is_on_its_resource_and_short_enough() -> None:
    kube, events = made()
    await events.emit(GROUP, "Warning", "VolumeLost", "ü" * 5000)
    ((kind, namespace, event),) = kube.written
    assert (kind, namespace) == ("Event", "shop")
    assert (event["type"], event["reason"]) == ("Warning", "VolumeLost")
    assert len(event["message"].encode()) <= 1024, "the API server takes no more"
    assert set(event["message"]) == {"ü"}
    about: dict[str, Any] = event["involvedObject"]
    assert (about["kind"], about["namespace"], about["name"], about["uid"]) == (
        "BrokerGroup",
        "shop",
        "g1",
        "u",
    )


async def test_event_is_repeated_only_after_its_cause_ended() -> None:
    kube, events = made()
    for over in (False, False, True, False):
        await events.emit(GROUP, "Normal", "Switchover", "g1-1 is to be master")
        events.round_ended(GROUP)
        if over:
            events.round_ended(GROUP)
    assert len(kube.written) == 2


@pytest.mark.parametrize(("status", "again"), [(0, True), (503, True), (403, False), (422, False)])
async def test_event_that_failed_to_write_is_retried_unless_refused(
    status: int, again: bool
) -> None:
    """Unless it was refused: it would be refused again, and logged, in every round."""
    kube, events = made()
    kube.refuse = KubeError(status, "no", "no")
    await events.emit(GROUP, "Normal", "Switchover", "g1-1 is to be master")
    kube.refuse = None
    await events.emit(GROUP, "Normal", "Switchover", "g1-1 is to be master")
    assert len(kube.written) == again


async def test_nothing_waits_for_a_store_of_events_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise no round would get to its actions: the observation would be too old by then."""
    kube, events = made()
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.01, raising=False)
    kube.hangs = True
    for at in range(20):
        await asyncio.wait_for(events.emit(GROUP, "Normal", "Switchover", f"to g1-{at}"), 5)
    assert kube.tries == 1, "one is tried, and waited for, in a while"
    kube.hangs = False
    monkeypatch.setattr(events, "_silent_until_s", 0.0)
    await events.emit(GROUP, "Normal", "Switchover", "to g1-0")
    assert len(kube.written) == 1, "it was not written again"
