"""A Topic's end: the topic is deleted if requested, and declared nowhere else. And a garbage
node."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from fmqcore.errors import Malformed, Unavailable
from fmqcore.ids import TopicId
from fmqcore.zk.chain import Chain
from fmqcore.zk.codec import Versioned
from fmqcore.zk.topic import TopicConfig
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.shell import topics
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import Key
from fmqoperator.shell.topics import Topics
from fmqoperator.shell.zookeeper import Ensembles
from fmqoperator.tests.chain_samples import G1, G2, SENDER, chain, seen

NO_BROKERS = cast(Brokers, None)
KEY = Key("Topic", "shop", "orders")


def body(uid: str = "u", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    meta = {"name": "orders", "namespace": namespace, "uid": uid, "generation": 1}
    groups = [{"group": "g1", "queues": 8}]
    zookeeper = {"connect": "zk:2181"}
    return {"metadata": meta, "spec": {"zookeeper": zookeeper, "groups": groups} | spec}


class Ensemble:
    """A ZooKeeper that is away for that many looks."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.deleted: list[str] = []

    def of(self, _address: str) -> "Ensemble":
        return self

    async def read_topic(self, _cluster: str, topic: str) -> Any:
        self.away -= 1
        if self.away >= 0:
            raise Unavailable("no ZooKeeper answers at zk:2181")
        return frozenset({"g1"}), Versioned(TopicConfig(topic, TopicId(7)), 1)

    async def delete_topic(self, cluster: str, topic: str, number: TopicId) -> None:
        self.deleted.append(f"{cluster}/{topic}/{number}")


class FakeCache:
    def __init__(self, *found: Any) -> None:
        self.found = found

    def topics(self, cluster: str, name: str) -> list[Any]:
        assert (cluster, name) == ("shop", "orders")
        return list(self.found)


@pytest.mark.parametrize(
    ("away", "others", "on_delete", "deleted"),
    [
        pytest.param(0, [], "Delete", ["shop/orders/7"], id="at once"),
        pytest.param(3, [], "Delete", ["shop/orders/7"], id="ZooKeeper was away for a moment"),
        pytest.param(1000, [], "Delete", [], id="ZooKeeper is away for long"),
        pytest.param(0, [], "Retain", [], id="it is to stay"),
        pytest.param(0, [body()], "Delete", ["shop/orders/7"], id="only itself is known yet"),
        pytest.param(0, [body("v", "b", cluster="shop")], "Delete", [], id="another declares it"),
        pytest.param(0, [{"metadata": {}}], "Delete", ["shop/orders/7"], id="what none can read"),
    ],
)
async def test_the_topic_goes_with_its_resource(
    away: int, others: Any, on_delete: str, deleted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_CLEANUP_POLL_S", 0)
    ensemble = Ensemble(away)
    made = Topics(
        cast(Ensembles, ensemble), cast(Events, None), cast(Cache, FakeCache(*others)), NO_BROKERS
    )
    await made.gone(KEY, body(onDelete=on_delete))
    assert ensemble.deleted == deleted


class Garbled(Ensemble):
    """It answers, with a node that is no topic."""

    async def read_topic(self, _cluster: str, topic: str) -> Any:
        raise Malformed(f"topic {topic} does not decode")


class Ears:
    """Records Events."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def emit(self, _about: Any, _kind: str, reason: str, _message: str) -> None:
        self.heard.append(reason)

    def round_ended(self, _about: Any) -> None:
        """See `Events`."""


class Moving(Ensemble):
    """Its chain is another one at each look; the last one stays."""

    def __init__(self, *chains: Chain) -> None:
        super().__init__(0)
        self.chains = list(chains)

    def watch_chain(self, *_args: Any) -> Callable[[], None]:
        return lambda: None

    async def read_topic(self, _cluster: str, topic: str) -> Any:
        number = TopicId(7)
        there = Versioned(TopicConfig(topic, number, ordered=True), 1)
        return frozenset({"g1", "g2"}), there

    async def read_chain(self, *_args: Any) -> ChainSeen:
        return seen(self.chains.pop(0) if len(self.chains) > 1 else self.chains[0], SENDER)


async def test_switch_between_two_looks_is_reported_once() -> None:
    ears, groups = Ears(), [{"group": "g1"}, {"group": "g2"}]
    made = body(groups=None, ordered={"groups": groups})
    ensemble = Moving(chain(G1), chain(G1), chain(G1), chain(G1, G2), chain(G1, G2))
    rounds = Topics(
        cast(Ensembles, ensemble), cast(Events, ears), cast(Cache, FakeCache()), NO_BROKERS
    )
    for heard in ([], ["SegmentOpened"], ["SegmentOpened"]):
        done = await rounds.round(KEY, made, (), lambda: None)
        made["status"] = done.status
        assert ears.heard == heard
    assert made["status"]["ordered"]["openSegment"] == 2


async def test_garbage_in_zookeeper_is_not_reported_as_away() -> None:
    """Otherwise the advice would be to check an address that is right, and no alert would fire."""
    ears = Ears()
    rounds = Topics(
        cast(Ensembles, Garbled(0)), cast(Events, ears), cast(Cache, FakeCache(body())), NO_BROKERS
    )
    done = await rounds.round(KEY, body(), (), lambda: None)
    (ready,) = done.status["conditions"]
    assert (ready["status"], ready["reason"], ears.heard) == ("False", "Unreadable", ["Unreadable"])
    assert ready["message"] == (
        "zk:2181 answers, but topic orders does not decode: restore that node from a backup"
    )
