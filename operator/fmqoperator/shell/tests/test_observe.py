"""The observation of a group: a missing answer differs from a senseless one."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqcore.errors import Unavailable
from fmqcore.zk.group_state import state_from_json
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Defaults, InZooKeeper
from fmqoperator.core.plan import plan
from fmqoperator.core.status import conditions as judge
from fmqoperator.shell import observe
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.observe import Observer
from fmqoperator.tests.world import running


class Ensemble:
    """A ZooKeeper that holds garbage, or cannot be asked."""

    def __init__(self, raw: bytes | None) -> None:
        self.raw = raw

    def of(self, _address: str) -> "Ensemble":
        return self

    async def read_group(self, *_: Any) -> Any:
        if self.raw is None:
            raise Unavailable("no ZooKeeper answers at zk:2181")
        return state_from_json(self.raw)


@pytest.mark.parametrize(
    ("raw", "reason", "event", "words"),
    [
        (None, "Unreachable", "ZooKeeperAway", "cannot know whether they reach ZooKeeper"),
        (b"{", "Unreadable", "ZooKeeperUnreadable", "zk:2181 answers, but group state does not"),
    ],
    ids=["away", "garbage"],
)
async def test_garbage_in_zookeeper_is_not_reported_as_away(
    raw: bytes | None, reason: str, event: str, words: str
) -> None:
    group = running().group
    cache = cast(Cache, SimpleNamespace(pods=_none, children=_none, claims=_none, **_REST))
    observer = Observer(
        Defaults("image"), cast(Any, None), cache, cast(Any, Ensemble(raw)), cast(Brokers, _Mute())
    )
    seen = await observer.observe(group, ())
    assert seen.zookeeper is None
    assert judge.zookeeper(seen).reason == reason
    events = [
        a for a in plan(seen) if isinstance(a, EmitEvent) and a.reason.startswith("ZooKeeper")
    ]
    assert [t.reason for t in events] == [event]
    assert words in events[0].message


async def test_missing_configuration_then_brokers_are_still_asked() -> None:
    """They serve on: the status would show no serving broker until it is written again."""
    made = running()
    asked = _Asked()
    known = {"pods": lambda _: made.pods, "children": _none, "claims": _none}
    cache = cast(Cache, SimpleNamespace(**_REST | known))
    there = _There(InZooKeeper(None, made.seen().zookeeper.state, {}))  # type: ignore[union-attr]
    observer = Observer(
        Defaults("image"), cast(Any, None), cache, cast(Any, there), cast(Brokers, asked)
    )
    await observer.observe(made.group, ())
    assert sorted(asked.addresses) == sorted(made.pods)


class _There:
    """A ZooKeeper with a known state."""

    def __init__(self, found: InZooKeeper) -> None:
        self.found = found

    def of(self, _address: str) -> "_There":
        return self

    async def read_group(self, *_: Any) -> InZooKeeper:
        return self.found


class _Asked:
    def __init__(self) -> None:
        self.addresses: dict[Any, str] = {}

    async def ask(self, addresses: dict[Any, str]) -> Any:
        self.addresses = addresses
        return {}


async def test_observation_does_not_wait_for_hanging_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of the observation would be too old to act on."""
    monkeypatch.setattr(observe, "_EVENTS_S", 0.01, raising=False)
    made = running()
    pods = {name: pod for name, pod in made.pods.items() if name != "g1-1"}
    maker = {"metadata": {"namespace": "shop", "uid": "u"}}
    known = {"pods": lambda _: pods, "stateful_set": lambda _: maker, "children": _none}
    cache = cast(Cache, SimpleNamespace(**_REST | known, claims=_none))
    kube = SimpleNamespace(events_of=_hangs)
    observer = Observer(
        Defaults("image"), cast(Any, kube), cache, cast(Any, Ensemble(None)), cast(Brokers, _Mute())
    )
    seen = await asyncio.wait_for(observer.observe(made.group, ()), 5)
    assert (seen.pods, seen.not_made) == (pods, {})


async def _hangs(*_: Any) -> None:
    await asyncio.Event().wait()


class _Mute:
    async def ask(self, _addresses: Any) -> Any:
        return {}


def _none(_key: Any) -> None:
    return None


_REST: dict[str, Any] = {
    "nodes": lambda _names: {},
    "stateful_set": _none,
    "jobs_of": lambda _key: [],
}
