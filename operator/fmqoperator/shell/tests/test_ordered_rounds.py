"""Ordered topics by the operator's rounds, with real brokers and a real ZooKeeper."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcore.errors import Unavailable
from fmqcore.ids import GroupName
from fmqcore.ordered.moments import stamped
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Segment, Sender
from fmqcore.zk.chain_json import chain_from_json, chain_to_json
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqoperator.core.actions import SwitchSends
from fmqoperator.shell import topics as rounds
from fmqoperator.shell.apply import Applier, Failed
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import Key, Outcome
from fmqoperator.shell.topics import Topics
from fmqoperator.shell.zookeeper import Ensembles
from fmqoperator.tests.samples import group
from fmqwire.methods import DELETE_TOPIC

pytestmark = [pytest.mark.processes, pytest.mark.timeout(290)]

G1, G2 = GroupName("g1"), GroupName("g2")
KEY = Key("Topic", "dev", "changes")
NODE = layout.chain_node("dev", "changes")


class Ears:
    """Records Events."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def emit(self, _about: Any, _kind: str, reason: str, _message: str) -> None:
        self.heard.append(reason)

    def round_ended(self, _about: Any) -> None:
        """See `Events`."""


class NoOthers:
    """No other resource declares the topic."""

    def topics(self, _cluster: str, _name: str) -> list[Any]:
        return []


@dataclass
class Stage:
    """A cluster of two groups of two, and the operator's rounds of Topics."""

    session: ZooKeeperSession
    ensembles: Ensembles
    brokers: Brokers
    topics: Topics
    ears: Ears
    body: dict[str, Any]
    woken: asyncio.Event

    async def round(self) -> Outcome:
        done = await self.topics.round(KEY, self.body, (), self.woken.set)
        self.body["status"] = done.status
        return done

    async def chain(self) -> Chain:
        node = await self.session.get(NODE, synced=True)
        assert node is not None
        return chain_from_json(node.data)

    async def put(self, **changes: Any) -> None:
        """Write the chain as a coordinator leaves it."""
        found = await self.session.get(NODE, synced=True)
        assert found is not None
        before = chain_from_json(found.data)
        after = stamped(before, replace(before, **changes), 1_700_000_000_000)
        await self.session.set(NODE, chain_to_json(after), found.version)

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {c["type"]: (c["status"], c["reason"]) for c in self.body["status"]["conditions"]}


@pytest.fixture
async def stage(tmp_path: Path, zookeeper: str) -> AsyncIterator[Stage]:
    options = ClusterOptions(groups=2, slaves=1, zookeeper=zookeeper)
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    ensembles, brokers, ears = Ensembles(), Brokers(GrpcTransport()), Ears()
    topics = Topics(ensembles, cast(Events, ears), cast(Cache, NoOthers()), brokers)
    groups = [{"group": "g1"}, {"group": "g2"}]
    body = {
        "metadata": {"name": "changes", "namespace": "dev", "uid": "u", "generation": 1},
        "spec": {"zookeeper": {"connect": zookeeper}, "ordered": {"groups": groups}},
    }
    try:
        async with DevCluster(tmp_path / "dev", options):
            yield Stage(session, ensembles, brokers, topics, ears, body, asyncio.Event())
    finally:
        await asyncio.gather(ensembles.close(), brokers.close(), session.close())


async def test_an_ordered_topic_from_creation_to_deletion(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One story, because starting a cluster costs more than the whole test."""
    await is_created(stage)
    await a_switch_wakes_the_round_and_is_shown(stage)
    await groups_are_changed(stage)
    await the_operator_switches_off_a_group(stage)
    await deletion_waits_for_the_sender(stage, monkeypatch)


async def is_created(stage: Stage) -> None:
    assert (await stage.round()).failures == ()
    chain = await stage.chain()
    assert [g.group for g in chain.groups] == [G1, G2]
    assert stage.conditions() == {
        "Ready": ("True", "AsDeclared"),
        "SendAvailable": ("True", "NoSender"),
        "ConsumersBlocked": ("False", "NotBlocked"),
    }
    assert stage.body["status"]["id"] == chain.topic_id
    assert stage.ears.heard == ["TopicCreated"]


async def a_switch_wakes_the_round_and_is_shown(stage: Stage) -> None:
    stage.woken.clear()
    line, opened = layout.senders_node("dev", "changes"), Segment(1, G1, 1, (1,), (0,))
    places = [f"{line}/{name}" for name in ("next-1-aa-0000000001", "copier-1-bb-0000000002")]
    for place in places:
        await stage.session.create(place, b"", make_parents=True)
    await stage.put(segments=(opened,), sender=Sender("copier-1", 1))
    await stage.woken.wait()
    await stage.round()
    shown = stage.body["status"]["ordered"]
    assert (shown["openSegment"], shown["sendingGroup"], shown["phase"]) == (1, "g1", "Open")
    assert (shown["senders"], shown["reason"]) == (2, "copier-1 sends into segment 1 in g1")
    assert stage.conditions()["SendAvailable"] == ("True", "Open")
    assert stage.ears.heard[-1] == "SegmentOpened"
    for place in places:
        await stage.session.delete(place)


async def groups_are_changed(stage: Stage) -> None:
    stage.body["spec"]["ordered"]["groups"] = [{"group": "g1"}, {"group": "g2", "weight": 4}]
    assert (await stage.round()).failures == ()
    assert dict((await stage.chain()).groups) == {"g1": 1, "g2": 4}
    stage.body["spec"]["ordered"]["groups"] = [{"group": "g1"}, {"group": "nowhere"}]
    await stage.round()
    assert stage.conditions()["Ready"] == ("False", "NoSuchGroup")
    stage.body["spec"]["ordered"]["groups"] = [{"group": "g1"}, {"group": "g2", "weight": 4}]
    await stage.round()


async def the_operator_switches_off_a_group(stage: Stage) -> None:
    spec = stage.body["spec"]["zookeeper"]
    ensemble = stage.ensembles.of(spec["connect"])
    assert (await ensemble.read_group("dev", "g1")).has_chains
    assert not (await ensemble.read_group("dev", "g3")).has_chains
    (seen,) = await ensemble.chains_with("dev", "g1")
    assert seen.chain is not None
    assert [view.takes_writes for view in seen.views.values()] == [True, True]
    assert await ensemble.chains_with("dev", "g3") == ()
    made = group(zookeeper=spec, cluster="dev")
    none = cast(Any, None)
    applier = Applier(none, stage.ensembles, cast(Events, stage.ears), stage.brokers)
    switch = SwitchSends("changes", 1, "g1-1 is restarted")
    await applier.do(made, stage.body, switch)
    assert (await stage.chain()).closing == "g1-1 is restarted"
    await applier.do(made, stage.body, switch)
    with pytest.raises(Failed, match="there is no topic 'nowhere'"):
        await applier.do(made, stage.body, SwitchSends("nowhere", 1, "cause"))
    with pytest.raises(Unavailable, match="no broker of these groups is live"):
        await stage.brokers.change([], DELETE_TOPIC, None)


async def deletion_waits_for_the_sender(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_CLEANUP_POLL_S", 0)
    stage.body["spec"]["onDelete"] = "Delete"
    sender = f"{layout.senders_node('dev', 'changes')}/copier-0000000001"
    await stage.session.create(sender, b"", make_parents=True)
    await stage.topics.gone(KEY, stage.body)
    assert await stage.session.get(NODE, synced=True) is not None
    await stage.session.delete(sender)
    await stage.topics.gone(KEY, stage.body)
    assert await stage.session.get(NODE, synced=True) is None
    topic = await stage.session.get(layout.topic_node("dev", "changes"), synced=True)
    assert topic is None
    assert not stage.topics._watched
