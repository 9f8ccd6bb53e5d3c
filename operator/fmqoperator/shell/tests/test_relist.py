"""Deletions that kopf's new list reveals, through kopf's own watch: a change in kopf shows here."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kopf._cogs.clients import fetching, watching
from kopf._cogs.structs.references import Resource

from fmqoperator.shell.handlers import Patience, kopf_settings
from fmqoperator.shell.relist import Relisting, report_missed_deletions

PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
GONE_410 = {"type": "ERROR", "object": {"code": 410}}


def pod(name: str, uid: str = "") -> dict[str, Any]:
    labels = {"fmq.io/group": "g1"}
    meta = {"name": name, "namespace": "shop", "uid": uid or f"u-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"much": "more"}}


class Cluster:
    """Lists and streams as the test sets them; each stream ends with 410 Gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lists: list[list[dict[str, Any]]] = []
        self.streams: list[list[tuple[str, dict[str, Any]]]] = []
        self.breaks = False
        monkeypatch.setattr(fetching, "fetch_objs", self.fetch)
        monkeypatch.setattr(watching, "watch_objs", self.stream)

    async def fetch(self, **_: Any) -> AsyncIterator[Any]:
        for body in self.lists.pop(0):
            yield [body], "1"
        if self.breaks:
            self.breaks = False
            raise TimeoutError

    async def stream(self, **_: Any) -> AsyncIterator[Any]:
        for kind, body in self.streams.pop(0):
            yield {"type": kind, "object": body}
        yield GONE_410


async def seen(rounds: int) -> list[tuple[str | None, str]]:
    """Return what handlers would get."""
    settings, out = kopf_settings(Patience()), list[tuple[str | None, str]]()
    settings.watching.reconnect_backoff = 0
    stream = watching.infinite_watch(
        settings=settings, resource=PODS, namespace=None, _iterations=rounds
    )
    async for event in stream:
        if not isinstance(event, watching.Bookmark):
            meta = event["object"]["metadata"]
            assert meta["labels"] == {"fmq.io/group": "g1"}, "by these handlers are chosen"
            out.append((event["type"], meta["uid"]))
    return out


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    watch = getattr(watching.continuous_watch, "watch", watching.continuous_watch)
    monkeypatch.setattr(watching, "continuous_watch", watch)
    report_missed_deletions()
    assert isinstance(watching.continuous_watch, Relisting)
    return Cluster(monkeypatch)


async def test_resource_missing_in_a_new_list_is_deleted(cluster: Cluster) -> None:
    again = pod("g1-1", "u-again")
    cluster.lists = [[pod("g1-0"), pod("g1-1"), pod("g1-2")], [pod("g1-0"), again]]
    cluster.streams = [[("ADDED", pod("g1-3")), ("DELETED", pod("g1-2"))], []]
    assert await seen(2) == [
        *[(None, "u-g1-0"), (None, "u-g1-1"), (None, "u-g1-2")],
        *[("ADDED", "u-g1-3"), ("DELETED", "u-g1-2")],
        *[(None, "u-g1-0"), (None, "u-again")],
        *[("DELETED", "u-g1-1"), ("DELETED", "u-g1-3")],
    ]


async def test_interrupted_list_deletes_no_resource(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lists = [[pod("g1-0"), pod("g1-1")], [pod("g1-1")], [pod("g1-0")]]
    cluster.streams = [[], []]

    async def broken(**given: Any) -> AsyncIterator[Any]:
        cluster.breaks = len(cluster.lists) == 2
        async for found in whole(**given):
            yield found

    whole = cluster.fetch
    monkeypatch.setattr(fetching, "fetch_objs", broken)
    found = await seen(3)
    assert [uid for kind, uid in found if kind == "DELETED"] == ["u-g1-1"]
    assert found[-1] == ("DELETED", "u-g1-1"), "the third list says so, not the second"


def test_watch_is_patched_once(cluster: Cluster) -> None:
    first = watching.continuous_watch
    report_missed_deletions()
    assert watching.continuous_watch is first
