"""A group's rounds and its end, with its state in ZooKeeper."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import BrokerId
from fmqoperator.core.event_dedup import old_definition
from fmqoperator.core.observation import Claim, Defaults, Failure, InZooKeeper, Observation
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.shell import groups
from fmqoperator.shell.apply import Applier, Failed, Outdated
from fmqoperator.shell.groups import Groups
from fmqoperator.shell.keeper import Key, Outcome
from fmqoperator.shell.observe import Observer
from fmqoperator.tests.chain_samples import G1, SENDER, chain, seen
from fmqoperator.tests.samples import group
from fmqoperator.tests.world import running

KEY = Key("BrokerGroup", "shop", "g1")
OLD_UID = group().metadata.uid
_THERE = {"data-g1-0": Claim("data-g1-0")}


class Ensemble:
    """A ZooKeeper in which brokers of the group live for that many looks."""

    def __init__(self, living: int = 0) -> None:
        self.living = living
        self.forgotten: list[str] = []
        self.there = InZooKeeper()

    def of(self, _address: str) -> "Ensemble":
        return self

    def watch(self, *_: Any) -> Any:
        return lambda: None

    async def read_group(self, *_: Any) -> InZooKeeper:
        return self.there

    async def forget(self, cluster: str, name: str) -> None:
        if self.living > 0:
            self.living -= 1
            raise Unavailable("a broker is still live")
        self.forgotten.append(f"{cluster}/{name}")


class Cache:
    """Claims as one look after the other finds them; the last repeats."""

    def __init__(self, *claims: Mapping[str, Claim] | None) -> None:
        self.found = list(claims)

    def claims(self, key: tuple[str, str]) -> Mapping[str, Claim] | None:
        assert key == ("shop", "g1")
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


class Brokers:
    """Records which connections are closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def forget(self, addresses: Mapping[BrokerId, str]) -> None:
        self.meanwhile()
        self.closed += addresses.values()


class Alone:
    """The cache of a cluster in which no other group is being updated."""

    def updating(self) -> list[tuple[Key, str]]:
        return []


class World:
    def __init__(self, ensemble: Ensemble, cache: Cache) -> None:
        self.ensemble, self.brokers = ensemble, Brokers()
        observer = SimpleNamespace(
            ensembles=ensemble, cache=cache, brokers=self.brokers, defaults=Defaults("image")
        )
        self.groups = Groups(cast(Observer, observer), cast(Applier, None))

    async def gone(self, on_delete: str = "Delete") -> list[str]:
        made = group(storage={"onDelete": on_delete})
        await self.groups.gone(KEY, made.as_json())
        return self.ensemble.forgotten


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_CLEANUP_TRIES", 5)

    async def at_once(_seconds: float) -> None:
        return

    monkeypatch.setattr("asyncio.sleep", at_once)


@pytest.mark.parametrize(
    ("claims", "living", "forgotten"),
    [
        pytest.param(({},), 0, True, id="nothing is left"),
        pytest.param(({},), 3, True, id="brokers take a while to stop"),
        pytest.param((_THERE, _THERE, {}), 0, True, id="volumes take a while to go"),
        pytest.param(({},), 1000, False, id="brokers live on: somebody kept the objects"),
        pytest.param((_THERE,), 0, False, id="volumes stay: the wish came too late"),
        pytest.param((None,), 0, False, id="it is not known whether they stay"),
    ],
)
async def test_the_state_goes_with_the_volumes_and_not_without(
    claims: tuple[Mapping[str, Claim] | None, ...], living: int, forgotten: bool
) -> None:
    world = World(Ensemble(living), Cache(*claims))
    assert await world.gone() == (["shop/g1"] if forgotten else [])


async def test_the_state_stays_with_volumes_that_are_kept() -> None:
    assert await World(Ensemble(), Cache({})).gone("Retain") == []


@pytest.mark.parametrize(("namespace", "forgotten"), [("shop", ["shop/g1"]), ("elsewhere", [])])
async def test_the_state_of_a_group_elsewhere_that_has_the_name_stays(
    namespace: str, forgotten: list[str]
) -> None:
    """It was `NameTaken`, never this resource's; hibernated, it has no live broker now."""
    world, made = World(Ensemble(), Cache({})), running()
    assert made.config is not None
    moved = tuple(
        replace(m, address=m.address.replace(".shop.", f".{namespace}."))
        for m in made.config.value.members
    )
    config = replace(made.config, value=replace(made.config.value, members=moved))
    world.ensemble.there = InZooKeeper(config, made.state)
    assert await world.gone() == forgotten


OWNED = {"data-g1-0": Claim("data-g1-0", owners=frozenset({("BrokerGroup", OLD_UID)}))}
LEAVING = {"data-g1-0": Claim("data-g1-0", deleting=True)}


async def made_again(world: World) -> Observation:
    """Return what the first round of a group made again under the name observes."""
    made = running(metadata={"uid": "another"})

    async def observe(_group: Any, failures: tuple[Failure, ...]) -> Observation:
        return replace(made.seen(), failures=failures)

    vars(world.groups._observer)["observe"] = observe
    world.groups._uids[KEY] = "another"
    return await world.groups._observe(KEY, made.group, ())


@pytest.mark.parametrize(
    ("claims", "living", "forgotten"),
    [
        pytest.param(({},), 1, True, id="its brokers stop"),
        pytest.param((OWNED, OWNED, {}), 0, True, id="its volumes are about to go"),
        pytest.param((LEAVING, LEAVING, {}), 0, True, id="its volumes go"),
        pytest.param((_THERE, {}), 0, False, id="its volumes were kept"),
        pytest.param((OWNED,), 0, False, id="its volumes never go"),
    ],
)
async def test_group_made_again_waits_until_the_old_state_is_gone(
    claims: tuple[Mapping[str, Claim] | None, ...],
    living: int,
    forgotten: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first round comes while brokers and volumes of the deleted group are still going."""
    world, waits = World(Ensemble(living), Cache(*claims)), list[str]()

    async def look(_seconds: float) -> None:
        waits.append((await made_again(world)).predecessor)

    monkeypatch.setattr("asyncio.sleep", look)
    world.groups._uids[KEY] = OLD_UID
    world.brokers.meanwhile = lambda: world.groups._uids.update({KEY: "another"})
    assert await world.gone() == (["shop/g1"] if forgotten else [])
    assert all(waits)
    assert bool(waits) is (claims[0] is not _THERE)
    assert (await made_again(world)).predecessor == "", "it starts"


async def test_state_of_a_group_that_still_exists_is_kept() -> None:
    """A watch may have missed its second half: it is the same resource."""
    world = World(Ensemble(), Cache({}))
    world.brokers.meanwhile = lambda: world.groups._uids.update({KEY: OLD_UID})
    assert await world.gone() == []


async def test_connections_to_its_brokers_are_closed() -> None:
    world = World(Ensemble(), Cache({}))
    await world.gone("Retain")
    assert world.brokers.closed[:2] == [
        "g1-0.g1-brokers.shop.svc:9876",
        "g1-1.g1-brokers.shop.svc:9876",
    ]
    assert len(world.brokers.closed) == 9


async def test_group_with_invalid_address_is_observed_but_not_watched() -> None:
    """The schema accepts port 99999: the round continues, and the observation reports the fault."""
    world = World(Ensemble(), Cache({}))

    def refuse(_address: str) -> Ensemble:
        raise InvalidArgument("'zk:99999' is not host:port")

    world.groups._watch(KEY, group(), lambda: None)
    assert KEY in world.groups._watched
    world.ensemble.of = refuse  # type: ignore[method-assign]
    world.groups._watch(KEY, group(), lambda: None)
    assert KEY not in world.groups._watched


# ---- rounds


class Events:
    """Records reports, and when a round was whole."""

    def __init__(self) -> None:
        self.reported: list[str] = []

    async def emit(self, _about: Any, _kind: str, reason: str, _message: str) -> None:
        self.reported.append(reason)

    def round_ended(self, _about: Any) -> None:
        self.reported.append("-")


class FakeApplier:
    """Does nothing, and refuses actions of one kind."""

    def __init__(self, refuses: str = "", *, outdated: bool = False) -> None:
        self.events, self.refuses, self.outdated = Events(), refuses, outdated
        self.done: list[str] = []

    async def do(self, _group: Any, _body: Any, action: Any) -> None:
        kind = type(action).__name__
        if kind == self.refuses and self.outdated:
            raise Outdated("StatefulSet g1 was changed since the look")
        if kind == self.refuses:
            raise Failed(Failure(kind, "Forbidden", "you may not"))
        self.done.append(kind)


async def a_round(
    applier: FakeApplier,
    body: Any = None,
    before: tuple[Failure, ...] = (),
    chains: tuple[ChainSeen, ...] = (),
) -> Outcome:
    made = running()
    made.spec(image="new:2", service={"type": "NodePort"})
    made.round()
    made.children.pop(("Service", "g1-rw"))  # something to apply, and a pod to restart

    async def observe(_group: Any, failures: tuple[Failure, ...]) -> Observation:
        return replace(made.seen(), failures=failures)

    async def read(_group: Any) -> tuple[ChainSeen, ...]:
        return chains

    observer = SimpleNamespace(observe=observe, ensembles=Ensemble(), cache=Alone(), chains=read)
    groups = Groups(cast(Observer, observer), cast(Applier, applier))
    return await groups.round(KEY, body or made.body, before, lambda: None)


async def test_a_whole_round() -> None:
    applier = FakeApplier()
    done = await a_round(applier)
    assert done.failures == ()
    assert applier.done == ["ApplyChild", "EmitEvent", "RestartPod"]
    assert applier.events.reported == ["-"], "what the round did not report is over"
    assert done.pause_s == 2.0


async def test_ordered_topic_that_sends_here_leaves_before_the_restart() -> None:
    applier = FakeApplier()
    done = await a_round(applier, chains=(seen(chain(G1), SENDER),))
    assert applier.done == ["EmitEvent", "PutGroupConfig", "SwitchSends", "ApplyChild"]
    (found,) = [c for c in done.status["conditions"] if c["type"] == "Progressing"]
    assert found["reason"] == "OrderedTopicsLeave"
    assert "g1-1 is restarted: image fmq-broker:test -> new:2" in found["message"]
    assert found["message"].endswith("ordered topics still send here: orders")
    assert done.pause_s == 2.0


async def test_stale_observation_then_no_action_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call may take twenty seconds: by then an in-sync slave may be the last copy."""
    now_s, applier = 0.0, FakeApplier()
    monkeypatch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: now_s))
    quick = applier.do

    async def slow(_group: Any, _body: Any, action: Any) -> None:
        nonlocal now_s
        now_s += 11
        await quick(_group, _body, action)

    monkeypatch.setattr(applier, "do", slow)
    done = await a_round(applier)
    assert applier.done == ["ApplyChild"], "the restart waits for the next round"
    assert done.failures == ()
    assert 0 < done.pause_s < 1


async def test_failed_action_ends_the_round_and_is_in_the_status() -> None:
    applier = FakeApplier("ApplyChild")
    done = await a_round(applier)
    assert applier.done == []
    assert [f.reason for f in done.failures] == ["Forbidden"]
    assert applier.events.reported == [], "nothing is over because it could not be looked at"
    (found,) = [c for c in done.status["conditions"] if c["type"] == "ConfigApplied"]
    assert (found["status"], found["reason"]) == ("False", "Forbidden")
    assert "you may not" in found["message"]


async def test_object_changed_since_the_look_is_looked_at_again() -> None:
    applier = FakeApplier("ApplyChild", outdated=True)
    done = await a_round(applier)
    assert (applier.done, done.failures) == ([], ())
    assert 0 < done.pause_s <= 1


async def test_unreadable_spec_is_reported_and_nothing_is_changed() -> None:
    applier = FakeApplier()
    body = running().body
    done = await a_round(applier, body | {"spec": body["spec"] | {"replicas": 99}})
    assert applier.done == []
    assert applier.events.reported == ["Invalid"]
    assert "spec.replicas" in done.status["message"]


async def test_older_crd_sets_a_condition_and_fails_no_round() -> None:
    applier = FakeApplier()
    old = old_definition("BrokerGroup", {"volumeSize": "1Gi", "epoch": 1}, {"epoch": 1})
    done = await a_round(applier, before=old)
    assert done.failures == ()
    assert applier.done[0] == "EmitEvent"
    (found,) = [c for c in done.status["conditions"] if c["type"] == "ConfigApplied"]
    assert (found["status"], found["reason"]) == ("False", "OldDefinition")
    assert "drops volumeSize" in found["message"]
    hiccup = Failure("Service g1-rw", "Forbidden", "you may not")
    done = await a_round(FakeApplier(), before=(hiccup,))
    (found,) = [c for c in done.status["conditions"] if c["type"] == "ConfigApplied"]
    assert found["reason"] != "Forbidden", "it is over"


async def test_group_unseen_in_the_last_round_was_not_watched() -> None:
    """The first observation was not watched either: another operator was active, or none."""
    made, applier, watched = running(), FakeApplier(), []

    async def observe(_group: Any, _failures: tuple[Failure, ...]) -> Observation:
        return made.seen()

    observer = SimpleNamespace(observe=observe, ensembles=Ensemble(), cache=Alone())
    rounds = Groups(cast(Observer, observer), cast(Applier, applier))
    for away in (False, False, True, True, False, False):
        made.zookeeper_away = away
        seen = await rounds._observe(KEY, made.group, ())
        watched.append(seen.watched)
    assert watched == [False, True, True, False, False, True]
